"""Iterations inferred: what logs carried is stripped from them and must be found again."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diagnosis.iterations import OperatorPattern, infer_iterations
from producers.importers.recording import load
from producers.simulation import Omissions, Scenario, simulate
from tests.recordings import EXAMPLE, sample
from tests.training_log import Training

Ints = NDArray[np.int64]
STRIPPED = ("iteration", "position", "call_order", "phase", "microbatch")


def stripped(table: pa.Table, *names: str) -> pa.Table:
    """The table without what the columns say."""
    for name in names or STRIPPED:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.nulls(table.num_rows, table.schema.field(at).type))
    return table


def truth(table: pa.Table) -> Ints:
    return np.asarray(table.column("iteration").fill_null(-1).to_numpy(), dtype=np.int64)


def share_found(table: pa.Table, found: Ints) -> float:
    """Share of the rows in iterations that got theirs, up to one constant offset for all ranks."""
    known = truth(table) >= 0
    offsets, counts = np.unique((found - truth(table))[known], return_counts=True)
    return float(counts.max() / known.sum()) if len(offsets) else 1.0


def lossy(table: pa.Table, seed: int, *, share: float = 0.001, gap: int = 0) -> pa.Table:
    """The table without some lines, and without a stretch of lines."""
    draws = np.random.default_rng(seed)
    keep = draws.random(table.num_rows) >= share
    begin = int(draws.integers(table.num_rows))
    keep[begin : begin + gap] = False
    return table.filter(pa.array(keep))


@pytest.fixture(scope="module")
def example() -> pa.Table:
    return load([EXAMPLE]).table


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 32), gap=st.integers(0, 800))
def test_a_real_log_gives_its_iterations_back(example: pa.Table, seed: int, gap: int) -> None:
    table = lossy(example, seed, gap=gap)
    assert share_found(table, infer_iterations(stripped(table))) >= 0.999


@pytest.mark.parametrize("name", ["d1_nic_tbf_3d", "e1_hang_tp_notentered_3d", "healthy_3d_1"])
def test_the_other_samples_give_theirs_back(name: str) -> None:
    table = lossy(load([sample("gloo") / name]).table, 7, gap=300)
    assert share_found(table, infer_iterations(stripped(table))) >= 0.999


def test_one_rank_alone_is_enough(example: pa.Table) -> None:
    alone = example.filter(example.column("rank").to_numpy() == 4)
    assert (infer_iterations(stripped(alone)) == truth(alone)).all()


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param({"tp": 2, "pp": 2, "dp": 2}, id="3d"),
        pytest.param({"tp": 1, "pp": 4, "dp": 2}, id="many buckets in a pipeline"),
        pytest.param({"tp": 1, "pp": 1, "dp": 4}, id="data parallel only"),
        pytest.param({"tp": 4, "pp": 1, "dp": 1}, id="tensor parallel only"),
        pytest.param({"tp": 1, "pp": 4, "dp": 1}, id="pipeline only"),
        pytest.param({"tp": 2, "pp": 1, "dp": 2, "ep": 2}, id="experts"),
        pytest.param({"tp": 2, "pp": 4, "dp": 1, "microbatches": 2}, id="more stages than microbatches"),
    ],
)
def test_simulated_jobs_give_theirs_back(jobs: dict[str, Any]) -> None:
    said = simulate(Scenario(seed=11, iterations=12, layers=4, **jobs)).table
    silent = simulate(
        Scenario(seed=11, iterations=12, layers=4, omissions=Omissions(labels=True, ends=True), **jobs)
    ).table
    assert share_found(said, infer_iterations(silent)) >= 0.999


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(Training(iterations=20), id="3d"),
        pytest.param(Training(iterations=20, microbatches=1), id="one microbatch"),
        pytest.param(Training(iterations=20, buckets=30), id="many buckets"),
        pytest.param(Training(iterations=20, tp=1), id="no tensor groups"),
        pytest.param(Training(iterations=20, pp=1), id="no pipeline"),
        pytest.param(Training(iterations=20, tp=1, pp=1, buckets=5), id="one communicator"),
        pytest.param(Training(iterations=20, pp=4, dp=1), id="no gradients to reduce"),
        pytest.param(Training(iterations=20, evaluate_every=5), id="evaluations"),
    ],
)
@pytest.mark.parametrize("warm_up", [0, 2])
def test_all_shapes_of_jobs_give_theirs_back(training: Training, warm_up: int) -> None:
    table = Training(**{**training.__dict__, "warm_up": warm_up}).table()
    found = infer_iterations(stripped(table))
    assert share_found(table, found) == 1.0
    assert (found[truth(table) < 0] == -1).all()
    lost = lossy(table, 3, share=0.002, gap=table.num_rows // 40)
    assert share_found(lost, infer_iterations(stripped(lost))) >= 0.99


def test_ranks_agree_on_shared_operators(example: pa.Table) -> None:
    table = lossy(example, 5, share=0.01, gap=500)
    found = infer_iterations(stripped(table))
    collective = table.column("peer").is_null().to_numpy()
    names = table.column("communicator").to_pylist()
    of: dict[tuple[str, int], set[int]] = {}
    for i in np.flatnonzero(collective):
        of.setdefault((names[i], table.column("seq")[int(i)].as_py()), set()).add(int(found[i]))
    assert all(len(iterations) == 1 for iterations in of.values())


def test_without_sequence_numbers_counting_must_do(example: pa.Table) -> None:
    table = lossy(example, 2)
    assert share_found(table, infer_iterations(stripped(table, *STRIPPED, "seq"))) >= 0.999


def test_logs_that_begin_at_different_iterations_get_common_numbers() -> None:
    table = Training(iterations=20, pp=4).table()
    rank, iteration = table.column("rank").to_numpy(), truth(table)
    table = table.filter(pa.array(iteration >= rank % 5))
    assert share_found(table, infer_iterations(stripped(table))) == 1.0


def test_iterations_begin_with_the_first_forward_pass(example: pa.Table) -> None:
    found = infer_iterations(stripped(example))
    assert (np.flatnonzero(np.diff(found)) == np.flatnonzero(np.diff(truth(example)))).all()


def test_the_operator_that_ends_an_iteration_can_be_given(example: pa.Table) -> None:
    table = lossy(example, 9, gap=400)
    found = infer_iterations(stripped(table), OperatorPattern.parse("op=all_reduce,bytes=4,communicator=mp0|mp1"))
    ops = table.select(["communicator", "op", "bytes"]).to_pylist()
    ends = np.flatnonzero([o["communicator"] in ("mp0", "mp1") for o in ops])
    same_rank = np.diff(table.column("rank").to_numpy())[ends[:-1]] == 0
    assert (found[ends] == truth(table)[ends]).all()
    assert (found[ends[:-1] + 1][same_rank] == found[ends[:-1]][same_rank] + 1).mean() > 0.98


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("op=all_reduce,bytes=4", "found on several communicators of rank 4; name its communicators too"),
        ("op=barrier,bytes=3", "no operator matches op=barrier,bytes=3; name the operator that ends an iteration"),
        ("op=all_reduce,communicator=mp0", "cannot tell where the iterations of rank 2 begin; name the operator"),
        ("op=reduce_scatter", "does not come once an iteration"),
    ],
)
def test_an_operator_that_ends_no_iteration_is_refused(example: pa.Table, pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        infer_iterations(stripped(example), OperatorPattern.parse(pattern))


@pytest.mark.parametrize(
    "text", ["", "all_reduce", "bytes=4", "op=send,bytes=x", "op=send,seq=4", "op=send,4", "op=a,op=b"]
)
def test_a_pattern_has_a_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"the form is op=all_reduce,bytes=4,communicator=a\|b"):
        OperatorPattern.parse(text)


def test_too_short_a_log_is_refused(example: pa.Table) -> None:
    with pytest.raises(ValueError, match="cannot tell where the iterations of rank 0 begin; name the operator"):
        infer_iterations(stripped(example.filter(truth(example) < 2)))


def test_an_empty_log_has_no_iterations(example: pa.Table) -> None:
    with pytest.raises(ValueError, match="no operator"):
        infer_iterations(example.slice(0, 0))
