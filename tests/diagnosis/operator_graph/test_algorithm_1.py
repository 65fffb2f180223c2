"""Holmes' search on hand-made logs: the published examples, the cases that the listing leaves open, termination."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.arrays import Bools
from diagnosis.irregularity.operator_detector import SigmaDetector
from diagnosis.irregularity.samples import Length, Samples
from diagnosis.job import Communicator, Job, Place
from diagnosis.operator_graph import algorithm_1
from diagnosis.operator_graph.algorithm_1 import COMPUTE, NETWORK, Root, Search, earliest, search
from diagnosis.operator_graph.leaf import Leaf, OperatorRef
from diagnosis.operator_graph.logs import Logs
from tests.diagnosis.answering import Asked, answered
from tests.diagnosis.made_logs import MS, SCHEMA, STARTED_NS, Collective, Compute, Recv, Row, Send, Step, Training
from tests.diagnosis.operator_graph.published_case import SLOW, reduced

Place_ = tuple[str, int, str | None]


def searched(
    training: Training,
    pivot: int,
    *,
    table: pa.Table | None = None,
    missing: Collection[int] = (),
    statistics: bool = False,
) -> tuple[Search, Asked]:
    """What is usual comes in the rows of the baseline, or as statistics of it."""
    logs = Logs(training.job(), (*training.baseline, training.irregular))
    if statistics:
        logs = Logs(training.job(), (training.irregular,), training.baseline)
    one = Search(logs, training.irregular, training.baseline)
    _, asked = answered(one.run(pivot), training.table() if table is None else table, missing)
    return one, asked


def causes(roots: Sequence[Root]) -> list[Place_]:
    return [(root.cause, root.leaf.rank, root.leaf.communicator) for root in roots]


def without(table: pa.Table, **values: object) -> pa.Table:
    """The log without the lines that hold these values."""
    hit = pa.array([True] * len(table))
    for name, value in values.items():
        hit = pc.and_(hit, pc.fill_null(pc.equal(table.column(name), value), False))
    return table.filter(pc.invert(hit))


def collectives(slow_ms: Mapping[int, float] | None = None, transfer_ms: float = 0.0) -> Training:
    """Figure 12: four GPUs meet three times; before the third operator some compute longer."""
    slow_ms = slow_ms or {}

    def program(rank: int) -> list[Step]:
        steps: list[Step] = [Compute(), Collective("g"), Compute(), Collective("g")]
        return [*steps, Compute(extra_ms=slow_ms.get(rank, 0)), Collective("g", extra_ms=transfer_ms)]

    return Training({rank: program(rank) for rank in range(4)}, {"g": (0, 1, 2, 3)})


def two_stages(link_ms: float = 0.0, slow_ms: float = 0.0) -> Training:
    """Rank 1 sends to rank 0, over a slow link or after slow compute."""
    return Training(
        {
            0: [Compute(), Recv(1), Compute(), Recv(1)],
            1: [Compute(), Send(0), Compute(extra_ms=slow_ms), Send(0, extra_ms=link_ms)],
        }
    )


def test_figure_12_the_gpu_whose_operator_is_normal_computed_slowly() -> None:
    found, asked = searched(collectives({3: 50.0}), pivot=0)
    assert causes(found.roots) == [(COMPUTE, 3, None)]
    [root] = found.roots
    assert (root.leaf.path, root.leaf.members) == ((0, 3), (3,))
    assert (root.leaf.operator.op, root.leaf.operator.position) == ("all_reduce", 2)
    assert root.leaf.excess_ns == pytest.approx(50 * MS, rel=0.02)
    assert [(wait.waiting_rank, wait.awaited_rank, wait.communicator) for wait in found.waits] == [(0, 3, "g")]
    assert asked.ranks == {0, 1, 2, 3}


def test_all_members_abnormal_is_the_network() -> None:
    found, _ = searched(collectives(transfer_ms=50.0), pivot=1)
    assert causes(found.roots) == [(NETWORK, 1, "g")]
    assert found.roots[0].leaf.members == (0, 1, 2, 3)
    assert found.waits == []


def test_two_stragglers_of_one_operator_are_both_found() -> None:
    found, _ = searched(collectives({1: 50.0, 2: 50.0}), pivot=0)
    assert sorted(causes(found.roots)) == [(COMPUTE, 1, None), (COMPUTE, 2, None)]


def test_a_pivot_without_an_abnormal_operator_leads_nowhere() -> None:
    found, asked = searched(collectives(), pivot=0)
    assert (found.roots, asked.ranks) == ([], {0})
    straggler, _ = searched(collectives({3: 50.0}), pivot=3)
    assert straggler.roots == []


def test_figure_19a_a_pipeline_is_followed_to_the_stage_whose_operator_is_slow() -> None:
    training = Training(
        {
            0: [Compute(), Send(1), Recv(1)],
            1: [Recv(0), Compute(), Send(2), Recv(2), Compute(), Send(0)],
            2: [Recv(1), Compute(), Collective("ep", "all_to_all", extra_ms=50), Compute(), Send(1)],
            3: [Compute(34), Collective("ep", "all_to_all")],
        },
        {"ep": (2, 3)},
    )
    found, _ = searched(training, pivot=0)
    assert causes(found.roots) == [(NETWORK, 2, "ep")]
    assert found.roots[0].leaf.path == (0, 1, 2)
    assert found.roots[0].leaf.operator.op == "all_to_all"
    assert [(wait.waiting_rank, wait.awaited_rank) for wait in found.waits] == [(0, 1), (1, 2)]


def test_figure_19b_the_search_passes_from_one_group_to_the_next() -> None:
    training = Training(
        {
            0: [Compute(extra_ms=50), Collective("tp"), Compute()],
            1: [Compute(), Collective("tp"), Compute(), Collective("ep", "all_to_all")],
            2: [Compute(22), Collective("ep", "all_to_all")],
        },
        {"tp": (0, 1), "ep": (1, 2)},
    )
    found, _ = searched(training, pivot=2)
    assert causes(found.roots) == [(COMPUTE, 0, None)]
    assert found.roots[0].leaf.path == (2, 1, 0)


def test_collectives_are_searched_breadth_first() -> None:
    """Rank 0 waits for two members, each of whom waited for another, who waited for one that computes slowly."""
    programs: dict[int, list[Step]] = {0: [Compute(), Collective("all")]}
    groups: dict[str, tuple[int, ...]] = {"all": (0, 1, 2)}
    for near, far, slow in ((1, 3, 5), (2, 4, 6)):
        programs[near] = [Compute(), Collective(f"near {near}"), Collective("all")]
        programs[far] = [Compute(), Collective(f"far {near}"), Collective(f"near {near}")]
        programs[slow] = [Compute(extra_ms=50), Collective(f"far {near}")]
        groups |= {f"near {near}": (near, far), f"far {near}": (far, slow)}
    found, _ = searched(Training(programs, groups), pivot=0)
    assert causes(found.roots) == [(COMPUTE, 5, None), (COMPUTE, 6, None)]
    assert found.visited == (0, 1, 2, 3, 4, 5, 6)


def test_sends_and_receives_are_searched_depth_first() -> None:
    """Stage 0 waits for stage 1 twice: what is behind the first wait is looked at before the second."""
    training = Training(
        {
            0: [Compute(), Recv(1), Compute(), Recv(1)],
            1: [Compute(), Recv(2), Send(0), Compute(), Recv(3), Send(0)],
            2: [Compute(extra_ms=50), Send(1)],
            3: [Compute(extra_ms=150), Send(1)],
        }
    )
    found, _ = searched(training, pivot=0)
    assert found.visited == (0, 1, 2, 3)
    assert [root.leaf.rank for root in found.roots] == [2, 3]


def test_the_case_of_section_5_3() -> None:
    found, asked = searched(reduced(), pivot=0)
    assert causes(found.roots) == [(COMPUTE, SLOW, None)]
    assert found.roots[0].leaf.path == (0, 16, 32, 48, 64, 80, 96, 104, SLOW)
    assert found.roots[0].leaf.operator.op == "all_gather"
    pipeline, data, tensor = {0, 16, 32, 48, 64, 80}, {96, 100, 104, 108}, {104, 105, 106, 107}
    assert asked.ranks == pipeline | data | tensor
    assert found.visited == (0, 16, 32, 48, 64, 80, 96, 104, SLOW)


def test_a_slow_link_is_the_network() -> None:
    found, _ = searched(two_stages(link_ms=50.0), pivot=0)
    assert causes(found.roots) == [(NETWORK, 0, "pp")]
    assert found.roots[0].leaf.members == (0, 1)


def test_a_peer_that_came_late_with_nothing_abnormal_before_computed_slowly() -> None:
    found, _ = searched(two_stages(slow_ms=50.0), pivot=0)
    assert causes(found.roots) == [(COMPUTE, 1, None)]
    assert found.roots[0].leaf.path == (0, 1)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([Recv(1), Send(0)], {(NETWORK, 1, "a"), (NETWORK, 1, "b")}),
        ([Collective("all"), Collective("all")], {(NETWORK, 1, "b")}),
    ],
    ids=["point-to-point", "collective"],
)
def test_of_a_normal_members_past_the_listing_takes_the_nearest_or_all(last: list[Step], expected: set[Place_]) -> None:
    """Two operators of rank 1 were abnormal before it came to the last one, for which rank 0 waited."""
    slow: list[Step] = [Compute(), Collective("a", extra_ms=50), Compute(), Collective("b", extra_ms=50), Compute()]
    training = Training(
        {0: [Compute(), last[0]], 1: [*slow, last[1]], 2: slow}, {"a": (1, 2), "b": (1, 2), "all": (0, 1)}
    )
    found, _ = searched(training, pivot=0)
    assert set(causes(found.roots)) == expected


def test_a_peer_that_never_called_is_the_network() -> None:
    training = Training(
        {
            0: [Compute(), Send(1), Compute(), Send(1, extra_ms=50)],
            1: [Compute(), Recv(0), Compute(), Recv(0)],
        }
    )
    table = without(training.table(), rank=1, iteration=training.irregular, position=1)
    found, _ = searched(training, pivot=0, table=table)
    assert causes(found.roots) == [(NETWORK, 0, "pp")]


def test_what_has_come_was_sent_though_the_line_is_lost() -> None:
    """Who received it late may have waited for a peer that computed; nobody knows."""
    for training in (two_stages(link_ms=50.0), two_stages(slow_ms=50.0)):
        table = without(training.table(), rank=1, iteration=training.irregular, position=1)
        found, _ = searched(training, pivot=0, table=table)
        assert found.roots == []


def test_a_peer_whose_line_was_lost_is_unknown() -> None:
    """Its later sends bear later numbers, so it did call."""
    training = Training(
        {
            0: [Compute(), Recv(1), Compute(), Recv(1)],
            1: [Compute(), Send(0, extra_ms=50), Compute(), Send(0)],
        }
    )
    table = without(training.table(), rank=1, iteration=training.irregular, position=0)
    found, _ = searched(training, pivot=0, table=table)
    assert found.roots == []


def test_a_peer_that_is_not_named_is_unknown() -> None:
    training = two_stages(link_ms=50.0)
    table = training.table()
    for name in ("peer", "p2p_seq"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.nulls(len(table), pa.int64()))
    found, _ = searched(training, pivot=0, table=table)
    assert found.roots == []


@pytest.mark.parametrize("training", [two_stages(link_ms=50.0), two_stages(slow_ms=50.0)], ids=["link", "compute"])
def test_a_peer_that_does_not_answer_is_unknown(training: Training) -> None:
    found, asked = searched(training, pivot=0, missing=[1])
    assert found.roots == []
    assert found.logs.missing == {1}
    assert found.logs.coverage == 0.5
    assert asked.ranks == {0, 1}


@pytest.mark.parametrize("missing", [[1], [1, 2], [1, 2, 3]])
def test_members_that_do_not_answer_are_unknown_not_the_network(missing: list[int]) -> None:
    found, _ = searched(collectives(transfer_ms=50.0), pivot=0, missing=missing)
    assert found.roots == []


def test_a_straggler_that_answers_is_found_though_others_do_not() -> None:
    found, _ = searched(collectives({3: 50.0}), pivot=0, missing=[1])
    assert causes(found.roots) == [(COMPUTE, 3, None)]
    missed, _ = searched(collectives({3: 50.0}), pivot=0, missing=[3])
    assert missed.roots == []


def test_a_member_whose_line_was_lost_is_unknown() -> None:
    training = collectives(transfer_ms=50.0)
    table = without(training.table(), rank=2, iteration=training.irregular, position=2)
    found, _ = searched(training, pivot=0, table=table)
    assert found.roots == []


def test_a_member_without_a_usual_duration_is_unknown_not_normal() -> None:
    """Nothing of rank 2's baseline is at hand: its operator can not be called normal, so it did not compute slowly."""
    training = collectives(transfer_ms=50.0)
    table = training.table()
    past = pc.and_(pc.equal(table.column("rank"), 2), pc.less(table.column("iteration"), training.irregular))
    found, _ = searched(training, pivot=0, table=table.filter(pc.invert(past)))
    assert found.roots == []


def test_operators_that_nothing_numbers_do_not_meet() -> None:
    """The abnormal one of two operators must not be taken for the normal other, for want of a number."""
    training = Training(
        {rank: [Compute(), Collective("a", extra_ms=50), Compute(), Collective("a")] for rank in (0, 1)}, {"a": (0, 1)}
    )
    table = training.table()
    seq, position = (table.schema.get_field_index(name) for name in ("seq", "position"))
    counted = table.set_column(seq, "seq", pa.nulls(len(table), pa.int64()))
    found, _ = searched(training, pivot=0, table=counted)
    assert [root.cause for root in found.roots] == [NETWORK]
    blank = counted.set_column(position, "position", pa.nulls(len(table), pa.int32()))
    here = pc.equal(table.column("iteration"), training.irregular)
    partly = table.set_column(seq, "seq", pc.if_else(here, None, table.column("seq")))
    for unknown in (blank, partly):
        found, _ = searched(training, pivot=0, table=unknown)
        assert (found.roots, found.waits) == ([], [])


def test_all_roots_of_the_pivot_with_the_earliest_count() -> None:
    """One pivot can wait for two stragglers; that there are several pivots must not hide one of them."""
    training = collectives({1: 50.0, 2: 50.0})
    logs = Logs(training.job(), tuple(range(training.iterations)))
    found, _ = answered(search(logs, training.irregular, training.baseline, (0,)), training.table())
    assert sorted(causes(found.roots)) == [(COMPUTE, 1, None), (COMPUTE, 2, None)]


def test_a_communicator_that_the_job_does_not_list_is_unknown() -> None:
    training = collectives(transfer_ms=50.0)
    job = replace(training.job(), communicators=())
    one = Search(Logs(job, tuple(range(training.iterations))), training.irregular, training.baseline)
    answered(one.run(0), training.table())
    assert one.roots == []


def without_ends(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("end_ns")
    return table.set_column(at, "end_ns", pa.nulls(len(table), pa.int64()))


def test_logs_without_ends_give_the_same_roots() -> None:
    """The members' next calls tell when an operator ended."""
    training = collectives({3: 50.0})
    longer = replace(
        training, programs={rank: [*p, Compute(1), Collective("g")] for rank, p in training.programs.items()}
    )
    found, _ = searched(longer, pivot=0, table=without_ends(longer.table()))
    assert causes(found.roots) == [(COMPUTE, 3, None)]


def test_nothing_is_asked_for_twice() -> None:
    _, asked = searched(reduced(), pivot=0)
    whole = [rank for need in asked.needs if need.communicator is None for rank in need.ranks]
    assert len(whole) == len(set(whole))
    partly = [(rank, need.communicator) for need in asked.needs if need.communicator for rank in need.ranks]
    assert len(partly) == len(set(partly))


@pytest.mark.parametrize("missing", [(), (1,), (3,)])
@pytest.mark.parametrize(
    ("training", "pivot"),
    [
        (collectives({3: 50.0}), 0),
        (collectives({1: 50.0, 2: 50.0}), 0),
        (collectives(transfer_ms=50.0), 1),
        (collectives(), 2),
        (two_stages(link_ms=50.0), 0),
        (two_stages(slow_ms=50.0), 0),
        (reduced(), 0),
    ],
    ids=["straggler", "two stragglers", "network", "nothing", "link", "stage", "section 5.3"],
)
def test_statistics_tell_what_the_baselines_rows_do(training: Training, pivot: int, missing: Sequence[int]) -> None:
    by_rows, all_rows = searched(training, pivot, missing=missing)
    by_statistics, few_rows = searched(training, pivot, missing=missing, statistics=True)
    assert by_statistics.roots == by_rows.roots
    assert by_statistics.waits == by_rows.waits
    assert few_rows.ranks == all_rows.ranks
    assert few_rows.rows <= all_rows.rows / 12


def test_of_a_collective_one_row_a_member_is_asked_for() -> None:
    _, asked = searched(collectives({3: 50.0}), pivot=0, statistics=True)
    whole, part, straggler = [need for need in asked.needs if need.what == "rows"]
    assert (whole.ranks, whole.communicator) == ((0,), None)
    assert (part.ranks, part.communicator, part.seq_from, part.seq_to) == ((1, 2, 3), "g", 38, 38)
    assert (straggler.ranks, straggler.communicator) == ((3,), None)
    assert {need.iterations for need in (whole, part, straggler)} == {(12,)}
    usual = [need for need in asked.needs if need.what == "statistics"]
    assert [(need.ranks, need.positions) for need in usual] == [((0,), ()), ((1, 2, 3), (2,)), ((3,), ())]


class Looking:
    """A detector that remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[Samples] = []

    def fit(self, samples: Samples, abnormal: Bools) -> Self:
        return self

    def predict(self, samples: Samples) -> Bools:
        self.shown.append(samples)
        return SigmaDetector().predict(samples)


def test_a_detector_is_shown_the_same_of_statistics_as_of_rows() -> None:
    training, shown = collectives({3: 50.0}), []
    length = Length(iteration_ns=120.0 * MS, usual_ns=70.0 * MS)
    for logs in (Logs(training.job(), (12,), training.baseline), Logs(training.job(), tuple(range(13)))):
        detector = Looking()
        answered(search(logs, 12, training.baseline, (0,), detector, length), training.table())
        shown.append(detector.shown)
    for by_statistics, by_rows in zip(*(of[:1] for of in shown), strict=True):
        for column in fields(Samples):
            assert getattr(by_statistics, column.name).tolist() == pytest.approx(
                getattr(by_rows, column.name).tolist(), nan_ok=True
            )
        assert set(by_statistics.iteration_ns.tolist()) == {120.0 * MS}
        assert by_statistics.count.tolist() == [12, 12, 12]


def test_where_no_statistics_come_nothing_is_judged() -> None:
    training = collectives({3: 50.0})
    one = Search(Logs(training.job(), (12,), window=(90, 91, 92)), 12, (90, 91, 92))
    answered(one.run(0), training.table())
    assert one.roots == []


def test_operators_called_at_the_same_time_are_told_apart() -> None:
    """A coarse clock: the abnormal operator and one that follows it bear the same call time."""
    training = Training(
        {rank: [Compute(), Collective("a", extra_ms=50), Collective("b")] for rank in (0, 1)},
        {"a": (0, 1), "b": (0, 1)},
    )
    rows = training.table().to_pylist()
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert (first["communicator"], second["communicator"]) == ("a", "b")
        second["call_ns"] = first["call_ns"]
        second["end_ns"] = first["call_ns"] + MS
    found, _ = searched(training, pivot=0, table=pa.Table.from_pylist(rows, schema=SCHEMA))
    assert causes(found.roots) == [(NETWORK, 0, "a")]


def zigzag(length: int) -> Training:
    """Two ranks whose every abnormal receive waits for a peer that an earlier abnormal receive held up."""
    return Training(
        {
            0: [step for _ in range(length) for step in (Compute(1), Send(1), Recv(1))],
            1: [step for _ in range(length) for step in (Recv(0), Compute(1), Send(0))],
        },
        iterations=5,
    )


def test_a_chain_as_long_as_an_iteration_is_followed_to_its_end() -> None:
    """Every receive of the irregular iteration lasts long, every send is as usual: the search walks all of them."""
    length = 400
    training = zigzag(length)
    table = training.table()
    calls = table.column("call_ns").to_numpy()
    receives = pc.equal(table.column("op"), "recv").to_numpy(zero_copy_only=False)
    irregular = pc.equal(table.column("iteration"), training.irregular).to_numpy(zero_copy_only=False)
    ends = calls + MS + 50 * MS * (receives & irregular)
    at = table.schema.get_field_index("end_ns")
    found, _ = searched(training, pivot=0, table=table.set_column(at, "end_ns", pa.array(ends)))
    assert causes(found.roots) == [(COMPUTE, 0, None)]
    assert len(found.waits) == 2 * length


def test_several_pivots_and_the_earliest_operator_on_corrected_clocks_wins() -> None:
    """Two stragglers, one early and one late; on the raw clocks the late one seems to come first."""
    training = Training(
        {
            0: [Compute(), Collective("all"), Compute(extra_ms=50), Collective("a")],
            1: [Compute(), Collective("all"), Compute(), Collective("a")],
            2: [Compute(), Collective("all"), Compute(), Collective("b"), Compute(extra_ms=50), Collective("b")],
            3: [Compute(), Collective("all"), Compute(), Collective("b"), Compute(), Collective("b")],
        },
        {"a": (0, 1), "b": (2, 3), "all": (0, 1, 2, 3)},
        offset_ns={2: -400 * MS, 3: -400 * MS, 0: 5 * MS},
    )
    one, _ = searched(training, pivot=1)
    other, _ = searched(training, pivot=3)
    assert (causes(one.roots), causes(other.roots)) == ([(COMPUTE, 0, None)], [(COMPUTE, 2, None)])
    assert other.roots[0].leaf.operator.call_ns < one.roots[0].leaf.operator.call_ns
    logs = Logs(training.job(), tuple(range(training.iterations)))
    found, _ = answered(search(logs, training.irregular, training.baseline, (1, 3)), training.table())
    assert causes(found.roots) == [(COMPUTE, 0, None)]
    assert found.uncertainty_ns < MS
    assert set(found.visited) == {0, 1, 2, 3}


@pytest.mark.parametrize(("iterations", "kept"), [(8, {0, 2}), (13, {0})])
def test_what_few_meetings_leave_uncertain_is_not_decided(iterations: int, kept: set[int]) -> None:
    """Those who wait for two stragglers call a millisecond apart: after a few iterations clocks are not so certain."""
    training = Training(
        {
            0: [Compute(), Collective("all"), Compute(extra_ms=50), Collective("a")],
            1: [Compute(), Collective("all"), Compute(), Collective("a")],
            2: [Compute(), Collective("all"), Compute(extra_ms=50), Collective("b")],
            3: [Compute(), Collective("all"), Compute(11), Collective("b")],
        },
        {"a": (0, 1), "b": (2, 3), "all": (0, 1, 2, 3)},
        iterations=iterations,
    )
    logs = Logs(training.job(), tuple(range(training.iterations)))
    found, _ = answered(search(logs, training.irregular, training.baseline, (1, 3)), training.table())
    assert {root.leaf.rank for root in found.roots} == kept


def test_the_earliest_abnormal_operator_counts_not_the_straggler_s_late_one() -> None:
    """Rank 0 enters "a" 50 ms late, after "b" was slow; but who waited for it called before that."""
    training = Training(
        {
            0: [Compute(), Collective("all"), Compute(extra_ms=50), Collective("a")],
            1: [Compute(), Collective("all"), Compute(), Collective("a")],
            2: [Compute(), Collective("all"), Compute(), Collective("b"), Compute(15), Collective("b", extra_ms=50)],
            3: [Compute(), Collective("all"), Compute(), Collective("b"), Compute(15), Collective("b")],
        },
        {"a": (0, 1), "b": (2, 3), "all": (0, 1, 2, 3)},
    )
    logs = Logs(training.job(), tuple(range(training.iterations)))
    found, _ = answered(search(logs, training.irregular, training.baseline, (1, 3)), training.table())
    assert causes(found.roots) == [(COMPUTE, 0, None)]
    [root] = found.roots
    assert (root.abnormal.rank, root.leaf.operator.rank) == (1, 0)
    assert root.abnormal.call_ns < root.leaf.operator.call_ns


def test_roots_closer_than_the_clocks_can_tell_are_all_kept() -> None:
    def root(rank: int, call_ns: int) -> Root:
        operator = OperatorRef(rank, "g", 0, "all_reduce", call_ns=call_ns)
        return Root(COMPUTE, Leaf(rank, None, (rank,), 0, 0, operator, (rank,)), operator)

    roots = [root(1, 1000), root(2, 1400), root(3, 2000)]
    assert [r.leaf.rank for r in earliest(roots, lambda o: o.call_ns)] == [1]
    assert [r.leaf.rank for r in earliest(roots, lambda o: o.call_ns, 400)] == [1, 2]
    assert [r.leaf.rank for r in earliest(roots, lambda o: o.call_ns - (1500 if o.rank == 3 else 0))] == [3]
    assert earliest([], lambda o: o.call_ns) == []


def test_a_search_of_too_many_ranks_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of ranks, each awaiting the next: more of them than a search may stand on."""
    monkeypatch.setattr(algorithm_1, "MOST_VISITED", 12)
    ranks = 16
    rows: list[Row] = []
    for rank in range(ranks):
        for iteration in range(4):
            for order, op in enumerate(("recv", "send")):
                call = STARTED_NS + iteration * 1000 * MS + order * MS
                abnormal = iteration == 3 and op == "recv"
                rows.append(
                    {
                        "rank": rank,
                        "communicator": "pp",
                        "op": op,
                        "iteration": iteration,
                        "seq": 2 * iteration + order,
                        "position": order,
                        "call_order": 2 * iteration + order,
                        "peer": (rank + (1 if op == "recv" else -1)) % ranks,
                        "p2p_seq": iteration,
                        "call_ns": call,
                        "end_ns": call + (50 if abnormal else 1) * MS,
                    }
                )
    job = Job("ring", tuple(Place(r) for r in range(ranks)), (Communicator("pp", tuple(range(ranks))),))
    one = Search(Logs(job, (0, 1, 2, 3)), 3, (0, 1, 2))
    answered(one.run(0), pa.Table.from_pylist(rows, schema=SCHEMA))
    assert one.roots == []
    assert (len(one.visited), one.bounded) == (12, True)


def test_members_beyond_the_bound_are_not_asked_for_their_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a large group but one computed as slowly: the one waited for more of them than may be searched."""
    monkeypatch.setattr(algorithm_1, "MOST_VISITED", 5)
    last: list[Step] = [Compute(), Collective("g")]
    programs: dict[int, list[Step]] = {rank: [Compute(extra_ms=50 if rank else 0), *last] for rank in range(20)}
    training = Training(programs, {"g": tuple(range(20))})
    found, asked = searched(training, pivot=0, statistics=True)
    whole = {rank for need in asked.needs if need.communicator is None for rank in need.ranks}
    assert whole == set(found.visited) == set(range(5))
    assert found.bounded
    assert [root.leaf.rank for root in found.roots] == [1, 2, 3, 4]


@pytest.mark.parametrize("most_rows", range(1, 80, 5))
def test_whose_rows_there_is_no_room_for_is_unknown(most_rows: int) -> None:
    """Rank 4 computes slowly, and rank 3 waits for it before the others wait for rank 3: its log tells of that."""
    last: list[Step] = [Compute(), Collective("g")]
    programs: dict[int, list[Step]] = {rank: [Compute(), *last] for rank in range(3)}
    programs |= {3: [Compute(), Collective("h"), *last], 4: [Compute(extra_ms=50), Collective("h")]}
    training = Training(programs, {"g": (0, 1, 2, 3), "h": (3, 4)})
    logs = Logs(training.job(), (*training.baseline, training.irregular), most_rows=most_rows)
    one = Search(logs, training.irregular, training.baseline)
    answered(one.run(0), training.table())
    assert causes(one.roots) in ([(COMPUTE, 4, None)], [])
    assert one.roots or logs.bounded


def test_rows_asked_for_instead_of_statistics_are_bounded_too() -> None:
    """Without ends the rows of all iterations are asked for: many times those of the irregular one."""
    last: list[Step] = [Compute(), Collective("g")] * 5
    training = Training(dict.fromkeys(range(40), last), {"g": tuple(range(40))}, iterations=12)
    table = without_ends(training.table())
    logs = Logs(training.job(), (training.irregular,), training.baseline, most_rows=len(table) // 4)
    one = Search(logs, training.irregular, training.baseline)
    _, asked = answered(one.run(0), table)
    assert logs.bounded
    assert asked.rows <= logs.most_rows


@st.composite
def tangled_logs(draw: st.DrawFn) -> tuple[Job, pa.Table, set[int]]:
    """A few ranks that meet in an order of each rank's own, so that waits go round in circles.

    Any part of a meeting may be abnormal, or its line lost.
    """
    ranks = draw(st.integers(2, 5))
    groups = {"all": tuple(range(ranks)), "pair": (0, 1)}
    pairs = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(lambda pair: pair[0] != pair[1])
    meetings = draw(st.lists(st.sampled_from(sorted(groups)) | pairs, min_size=2, max_size=8))
    rows: list[Row] = []
    for rank in range(ranks):
        own = [n for n, m in enumerate(meetings) if rank in (groups[m] if isinstance(m, str) else m)]
        order = draw(st.permutations(own))
        normal, lost = draw(st.sets(st.sampled_from(range(9)))), draw(st.sets(st.integers(0, 40), max_size=2))
        for iteration in range(4):
            for place, n in enumerate(order):
                call = STARTED_NS + (iteration * 1000 + place * 10) * MS
                excess = 90 if iteration == 3 and n not in normal else 0
                row: Row = {"rank": rank, "iteration": iteration, "call_ns": call, "end_ns": call + (9 + excess) * MS}
                row |= {"seq": 10 * iteration + n, "position": n, "call_order": 10 * iteration + place}
                match meetings[n]:
                    case str(name):
                        row |= {"communicator": name, "op": "all_reduce"}
                    case (source, target):
                        row |= {"communicator": "all", "op": "send" if rank == source else "recv"}
                        row |= {"peer": target if rank == source else source, "p2p_seq": 10 * iteration + n}
                if 10 * iteration + n not in lost:
                    rows.append(row)
    job = Job("tangled", tuple(Place(r) for r in range(ranks)), tuple(Communicator(n, m) for n, m in groups.items()))
    missing = draw(st.sets(st.integers(0, ranks - 1), max_size=1))
    return job, pa.Table.from_pylist(rows, schema=SCHEMA), missing


@settings(max_examples=60)
@given(tangled_logs(), st.integers(0, 4), st.booleans())
def test_whatever_the_logs_hold_a_search_ends_and_blames_nobody_unknown(
    tangled: tuple[Job, pa.Table, set[int]], pivot: int, statistics: bool
) -> None:
    job, table, missing = tangled
    logs = Logs(job, (3,), (0, 1, 2)) if statistics else Logs(job, (0, 1, 2, 3))
    one = Search(logs, 3, (0, 1, 2))
    roots, asked = answered(one.run(pivot % len(job.ranks)), table, missing)
    assert asked.ranks <= set(job.ranks)
    assert len({(root.cause, root.leaf.communicator, root.leaf.members) for root in roots}) == len(roots)
    for root in roots:
        assert root.leaf.rank not in missing
        if root.cause == NETWORK:
            assert not missing & set(root.leaf.members)
        assert root.leaf.path[0] == pivot % len(job.ranks)
        assert root.leaf.path[-1] == root.leaf.rank
    for wait in one.waits:
        assert not {wait.waiting_rank, wait.awaited_rank} & missing
