"""Whom sends and recvs meet, told from the order of microbatches."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.pipeline_peers import infer_peers, number_pairs, program
from schemas.catalogue import COMM_OPS
from tests.training_log import Training

SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 9))


def blind(table: pa.Table) -> pa.Table:
    """The table without what is to be told from it."""
    for name in ("peer", "p2p_seq"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.nulls(len(table), table.schema.field(at).type))
    return table


def chains(training: Training) -> dict[str, tuple[int, ...]]:
    return {name: ranks for name, ranks in training.groups().items() if name.startswith("pp")}


@given(SHAPES)
def test_every_send_of_a_program_meets_the_recv_of_the_same_microbatch(shape: tuple[int, int]) -> None:
    stages, microbatches = shape
    calls: Counter[tuple[int, int, int, str]] = Counter()
    for stage in range(stages):
        for op, peer, microbatch in program(stage, stages, microbatches):
            source, target = (stage, peer) if op == "send" else (peer, stage)
            calls[source, target, microbatch, op] += 1
    assert set(calls.values()) == {1}
    assert {key[:3] for key in calls if key[3] == "send"} == {key[:3] for key in calls if key[3] == "recv"}
    assert len(calls) == 4 * (stages - 1) * microbatches


@given(SHAPES)
def test_messages_come_in_order(shape: tuple[int, int]) -> None:
    stages, microbatches = shape
    for stage in range(stages):
        for op in ("send", "recv"):
            for peer in (stage - 1, stage + 1):
                order = [m for what, to, m in program(stage, stages, microbatches) if (what, to) == (op, peer)]
                assert order == sorted(order)


@pytest.mark.parametrize("training", [Training(pp=4, microbatches=6), Training(pp=2), Training(pp=4, microbatches=2)])
def test_peers_are_those_that_were_called(training: Training) -> None:
    table = training.table()
    found = infer_peers(blind(table), chains(training))
    for name, values in (("peer", found.peer), ("p2p_seq", found.p2p_seq)):
        assert pa.array(values, mask=values < 0).to_pylist() == table.column(name).to_pylist()


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_of_pipelines_that_lack_logs_the_others_peers_are_told(stages: int) -> None:
    training = Training(tp=1, pp=stages, dp=1, microbatches=4)
    for missing in range(stages):
        table = training.table()
        table = table.filter(pc.not_equal(table.column("rank"), missing))
        found = infer_peers(blind(table), chains(training))
        for name, values in (("peer", found.peer), ("p2p_seq", found.p2p_seq)):
            assert pa.array(values, mask=values < 0).to_pylist() == table.column(name).to_pylist()


def test_what_is_named_stays() -> None:
    training = Training(pp=4)
    table = training.table()
    found = infer_peers(table, chains(training))
    assert pa.array(found.peer, mask=found.peer < 0).equals(table.column("peer").combine_chunks().cast(pa.int64()))


def with_group_calls(table: pa.Table) -> pa.Table:
    """Every send and recv a group call of its own, counted on each rank."""
    counted: Counter[int] = Counter()
    numbers = []
    for rank, peer in zip(table.column("rank").to_pylist(), table.column("peer").to_pylist(), strict=True):
        numbers.append(None if peer is None else counted[rank])
        counted[rank] += peer is not None
    at = table.schema.get_field_index("group_call")
    return table.set_column(at, table.schema.field(at), pa.array(numbers, pa.int64()))


@pytest.mark.parametrize("numbered", [False, True])
def test_lost_lines_leave_peers_unknown_or_right(numbered: bool) -> None:
    training = Training(pp=4, microbatches=6, iterations=8)
    whole = with_group_calls(training.table()) if numbered else training.table()
    kept = np.random.default_rng(1).random(len(whole)) > 0.02
    table = whole.filter(pa.array(kept))
    found = infer_peers(blind(table), chains(training))
    sent = table.column("peer").is_valid().to_numpy()
    known = sent & (found.peer >= 0)
    for name, values in (("peer", found.peer), ("p2p_seq", found.p2p_seq)):
        assert (values[known] == table.column(name).to_numpy()[known]).all()
    assert known.sum() == sent.sum() if numbered else known.sum() < sent.sum()


def test_a_pipeline_of_another_schedule_keeps_its_peers_unknown() -> None:
    rows = [
        {
            "rank": rank,
            "communicator": "pp0",
            "op": op,
            "iteration": i,
            "call_ns": 100 * i + k,
            "call_order": 10 * i + k,
        }
        for rank in range(3)
        for i in range(4)
        for k, op in enumerate(("recv", "send", "send", "recv", "send"))
    ]
    found = infer_peers(pa.Table.from_batches([COMM_OPS.from_rows(rows)]), {"pp0": (0, 1, 2)})
    assert (found.peer < 0).all()


def unnumbered(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("p2p_seq")
    return table.set_column(at, table.schema.field(at), pa.nulls(len(table), table.schema.field(at).type))


@pytest.mark.parametrize("training", [Training(pp=4, microbatches=6), Training(pp=2), Training(tp=2, pp=2, dp=2)])
def test_sends_and_recvs_of_known_peers_are_numbered_alike_at_both_ends(training: Training) -> None:
    table = training.table()
    found = number_pairs(unnumbered(table))
    assert pa.array(found, mask=found < 0).to_pylist() == table.column("p2p_seq").to_pylist()
    assert np.array_equal(number_pairs(table), np.where(found < 0, -1, found)), "what is numbered stays so"


def test_of_an_iteration_that_lacks_a_line_the_pair_is_not_numbered() -> None:
    table = Training(pp=4, microbatches=4).table()
    lost = int(np.flatnonzero(pc.equal(table.column("op").cast(pa.string()), "send").to_numpy())[9])
    gone = table.slice(lost, 1).to_pylist()[0]
    rest = pa.concat_tables([table.slice(0, lost), table.slice(lost + 1)])
    found = number_pairs(unnumbered(rest))
    told = rest.column("p2p_seq").to_numpy(zero_copy_only=False)
    known = found >= 0
    assert np.array_equal(found[known], told[known])
    unknown = [row for row, n in zip(rest.to_pylist(), found, strict=True) if row["peer"] is not None and n < 0]
    assert {(row["rank"], row["peer"], row["iteration"], row["op"]) for row in unknown} == {
        (gone["rank"], gone["peer"], gone["iteration"], "send")
    }


def test_without_an_iteration_or_the_other_end_nothing_is_numbered() -> None:
    table = Training(pp=2).table()
    alone = table.filter(pc.equal(table.column("rank"), 0))
    assert (number_pairs(unnumbered(alone)) < 0).all()
    at = table.schema.get_field_index("iteration")
    untold = table.set_column(
        at, table.schema.field(at), pa.nulls(len(table), pa.int64()).cast(table.schema.field(at).type)
    )
    assert (number_pairs(unnumbered(untold)) < 0).all()


def test_a_pair_of_which_an_end_is_numbered_stays_as_it_is() -> None:
    table = Training(pp=2).table()
    at = table.schema.get_field_index("p2p_seq")
    own = pc.if_else(pc.equal(table.column("rank"), 0), table.column("p2p_seq"), None)
    found = number_pairs(table.set_column(at, table.schema.field(at), own))
    of_pair = pc.or_(
        pc.equal(table.column("rank"), 0), pc.fill_null(pc.equal(table.column("peer"), 0), False)
    ).to_numpy()
    assert pa.array(found, mask=found < 0).filter(of_pair).to_pylist() == own.filter(of_pair).to_pylist()
    assert (found[~of_pair] >= 0).any()


def test_pairs_that_exchange_on_several_communicators_stay_as_they_are() -> None:
    table = unnumbered(Training(pp=2).table())
    at, own = table.schema.get_field_index("communicator"), table.column("communicator").cast(pa.string())
    even = pa.array(np.arange(len(table)) % 2 == 0)
    mixed = pc.if_else(even, own, "another").dictionary_encode().cast(table.schema.field(at).type)
    several = table.set_column(at, table.schema.field(at), mixed)
    assert (number_pairs(several) < 0).all()
