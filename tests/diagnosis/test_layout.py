"""The layout and the purpose of communicators, told from who takes part and what is done."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.columns import codes, integers
from diagnosis.communicator_use import CommunicatorUse, communicator_uses, membership
from diagnosis.job import Layout
from diagnosis.layout import check_layout, communicator_kinds, infer_layout
from producers.simulation import Omissions, Scenario, simulate
from tests.training_log import Training


def told(table: pa.Table) -> tuple[Layout | None, dict[str, str | None], dict[str, tuple[int, ...]]]:
    """Layout, kinds and members that a log shows."""
    communicator, names = codes(table, "communicator")
    rank, peer = integers(table, "rank"), integers(table, "peer")
    members = {names[code]: ranks for code, ranks in membership(rank, communicator, peer).items()}
    uses = communicator_uses(table, members)
    pairs = sorted(set(zip(rank[peer >= 0].tolist(), peer[peer >= 0].tolist(), strict=True)))
    layout = infer_layout(uses, pairs, np.unique(rank).tolist())
    return layout, {} if layout is None else communicator_kinds(uses, layout), members


def without_phases(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("phase")
    return table.set_column(at, table.schema.field(at), pa.nulls(table.num_rows, table.schema.field(at).type))


SHAPES: Sequence[dict[str, Any]] = (
    {"tp": 2, "pp": 2, "dp": 2},
    {"tp": 2, "pp": 4, "dp": 1},
    {"tp": 1, "pp": 2, "dp": 4},
    {"tp": 4, "pp": 1, "dp": 2},
    {"tp": 1, "pp": 4, "dp": 1},
    {"tp": 1, "pp": 1, "dp": 4},
    {"tp": 4, "pp": 1, "dp": 1},
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(f"{n}{d}" for n, d in shape.items()))
@pytest.mark.parametrize("phases", [True, False], ids=["phases", "no phases"])
def test_degrees_and_kinds_are_told_without_a_look_at_names(shape: dict[str, Any], phases: bool) -> None:
    groups = Training(**shape).groups()
    names = {name: blake2b(name.encode(), digest_size=6).hexdigest() for name in groups}
    table = Training(**shape, names=names).table()
    layout, kinds, members = told(table if phases else without_phases(table))
    assert layout == Layout(**shape, cp=1, ep=1, source="inferred")
    purposes = {"mp": "model_parallel"}
    assert kinds == {names[name]: purposes.get(name[:2], name[:2]) for name in groups}
    assert members == {names[name]: ranks for name, ranks in groups.items()}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"tp": 2, "pp": 2, "dp": 2}, id="3d"),
        pytest.param({"tp": 1, "pp": 4, "dp": 2}, id="no tensor groups"),
        pytest.param({"tp": 2, "pp": 1, "dp": 4, "ep": 4}, id="experts"),
        pytest.param({"tp": 1, "pp": 1, "dp": 4, "ep": 4}, id="experts only"),
        pytest.param({"tp": 1, "pp": 1, "dp": 8}, id="data parallel only"),
    ],
)
def test_simulated_jobs_show_their_layout(job: dict[str, Any]) -> None:
    run = simulate(Scenario(seed=5, iterations=6, layers=4, omissions=Omissions(ends=True), **job))
    layout, kinds, members = told(without_phases(run.table))
    assert layout == Layout(**{"ep": 1, **job}, cp=1, source="inferred")
    assert members == {c.communicator: tuple(sorted(c.ranks)) for c in run.job.communicators}
    assert None not in kinds.values()


def test_what_fits_no_megatron_order_has_no_layout() -> None:
    table = Training(tp=1, pp=2, dp=2).table()
    at = table.schema.get_field_index("peer")
    swapped = pa.compute.bit_wise_xor(
        table.column("rank"), pa.compute.if_else(table.column("peer").is_valid(), 1, None)
    )
    table = table.set_column(at, table.schema.field(at), swapped.cast(pa.int32()))
    assert told(table)[0] is None


@pytest.mark.parametrize(
    ("degrees", "why"),
    [
        ({"tp": 2, "pp": 2}, "layout tp=2,pp=2,dp=None: give tp, pp and dp"),
        ({"tp": 2, "pp": 2, "dp": 1}, "layout tp=2,pp=2,dp=1 has 4 ranks, but there is a rank 7"),
        ({"tp": 4, "pp": 2, "dp": 2}, "layout tp=4,pp=2,dp=2 has 16 ranks, but rank 8 is not in the log"),
        ({"tp": 2, "pp": 1, "dp": 4}, "layout tp=2,pp=1,dp=4 puts ranks 0 and 4 into no common pipeline"),
        ({"tp": 1, "pp": 2, "dp": 2, "cp": 3}, "layout tp=1,pp=2,dp=2,cp=3 has 12 ranks, but rank 8 is not in the log"),
    ],
)
def test_a_given_layout_that_contradicts_the_log_is_refused(degrees: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_layout(Layout(**degrees, source="given"), [(0, 4)], range(8))


@pytest.mark.parametrize(
    ("ranks", "fits"),
    [((0, 1), False), ((0, 1, 2, 3), True), ((0, 4), True), ((0, 1, 2), False), ((0, 8), True), ((3,), True)],
)
def test_a_given_layout_that_contradicts_the_communicators_is_refused(ranks: tuple[int, ...], fits: bool) -> None:
    use = CommunicatorUse("c", ranks, frozenset({"all_reduce"}), 8.0, 64, False)
    layout = Layout(tp=4, pp=2, dp=2, source="given")
    if fits:
        check_layout(layout, (), range(16), [use])
    else:
        with pytest.raises(ValueError, match=r"layout tp=4,pp=2,dp=2: ranks .* of communicator c fit no group of it"):
            check_layout(layout, (), range(16), [use])


def test_a_given_layout_that_fits_is_taken() -> None:
    check_layout(Layout(tp=1, pp=2, dp=4, source="given"), [(0, 4), (7, 3)], range(8))
