"""Where the time went: it adds up, clocks do not matter, what is lost is unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.clocks import Clocks
from diagnosis.job import Communicator, Job, Place
from diagnosis.operator_graph.delays import Delays, Split, end_times, measure
from diagnosis.operator_graph.logs import Logs
from tests.diagnosis.answering import answered
from tests.diagnosis.made_logs import MS, SCHEMA, STARTED_NS, Collective, Compute, Recv, Row, Send, Step, Training

Floats = npt.NDArray[np.float64]


def fetched(job: Job, table: pa.Table) -> Logs:
    logs = Logs(job, tuple(sorted(set(table.column("iteration").to_pylist()))))
    answered(logs.fetch_whole_with_peers(job.ranks), table)
    return logs


def measured(training: Training, table: pa.Table | None = None) -> Delays:
    logs = fetched(training.job(), training.table() if table is None else table)
    return measure(logs.view, logs.view.clocks, training.baseline)


def irregular(delays: Delays, training: Training, rank: int) -> npt.NDArray[np.int64]:
    return delays.rows(rank, [training.irregular])


def in_ms(values: Floats) -> list[float]:
    return [round(float(value), 6) for value in values / MS]


def three_ranks(*, slow_ms: float = 0.0, link_ms: float = 0.0) -> Training:
    def program(rank: int) -> list[Step]:
        slow = Compute(extra_ms=slow_ms if rank == 2 else 0)
        return [Compute(), Collective("g"), slow, Collective("g", extra_ms=link_ms), Compute(5), Collective("g")]

    return Training({rank: program(rank) for rank in range(3)}, {"g": (0, 1, 2)}, jitter=False)


def test_what_all_paused_before_an_iteration_nobody_computed() -> None:
    training = three_ranks(slow_ms=40)
    table, pause_ns = training.table(), 600 * 1000 * MS
    late = pc.cast(pc.equal(table.column("iteration"), training.irregular), pa.int64())
    for name in ("call_ns", "end_ns"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pc.add(table[name], pc.multiply(late, pause_ns)))
    delays = measured(training, table)
    assert in_ms(delays.compute[irregular(delays, training, 2)]) == [600_000, 40, 0]
    logs = fetched(training.job(), table)
    logs.paused = {training.irregular: pause_ns}
    delays = measure(logs.view, logs.view.clocks, training.baseline)
    assert in_ms(delays.compute[irregular(delays, training, 2)]) == [0, 40, 0]
    assert in_ms(delays.compute[irregular(delays, training, 0)]) == [0, 0, 0]


def test_a_straggler_computes_and_the_others_wait_for_it() -> None:
    training = three_ranks(slow_ms=40)
    delays = measured(training)
    straggler, victim = irregular(delays, training, 2), irregular(delays, training, 0)
    assert in_ms(delays.compute[straggler]) == [0, 40, 0]
    assert in_ms(delays.exposed[straggler]) == in_ms(delays.wait[straggler]) == [0, 0, 0]
    assert in_ms(delays.compute[victim]) == [0, 0, 0]
    assert in_ms(delays.exposed[victim]) == in_ms(delays.wait[victim]) == [0, 40, 0]
    assert in_ms(delays.transfer[victim]) == [0, 0, 0]
    assert delays.awaited[victim][1] == 2


def test_a_slow_transfer_is_nobodys_wait() -> None:
    training = three_ranks(link_ms=30)
    delays = measured(training)
    for rank in range(3):
        rows = irregular(delays, training, rank)
        assert in_ms(delays.transfer[rows]) == in_ms(delays.exposed[rows]) == [0, 30, 0]
        assert in_ms(delays.wait[rows]) == in_ms(delays.compute[rows]) == [0, 0, 0]
        assert in_ms(delays.transfer_usual[rows]) == [1, 1, 1]


def test_what_shares_a_channel() -> None:
    training = Training(
        {
            0: [Compute(), Send(1), Recv(1), Collective("g")],
            1: [Compute(), Recv(0), Send(0), Collective("g"), Send(2)],
            2: [Compute(), Recv(1)],
        },
        {"g": (0, 1)},
    )
    delays, job = measured(training), training.job()
    zero, one, two = (irregular(delays, training, rank) for rank in range(3))
    assert [delays.members(int(row), job) for row in zero] == [(0, 1)] * 3
    assert delays.members(int(two[0]), job) == (1, 2)
    assert delays.channel[zero[0]] == delays.channel[zero[1]] == delays.channel[one[0]]
    assert len({*delays.channel[one].tolist()}) == 3
    assert delays.channel[one[3]] == delays.channel[two[0]]


def test_rows_before_a_time_and_sums_of_iterations() -> None:
    training = three_ranks(slow_ms=40)
    delays = measured(training)
    rows = irregular(delays, training, 0)
    until = int(delays.operators.call_ns[rows[1]])
    assert delays.rows(0, [training.irregular], until).tolist() == rows[:2].tolist()
    own = delays.operators.rank == 0
    assert in_ms(delays.series(delays.wait, own, [training.irregular, 3])) == [0, 40]
    assert delays.spread(delays.wait, own, training.baseline) == pytest.approx(0, abs=1)
    assert delays.spread(delays.wait, own, [*training.baseline, training.irregular]) > MS
    assert delays.spread(delays.wait, own, [3]) == float("inf")


def test_iterations_of_which_nothing_is_known_are_no_usual_ones() -> None:
    training = three_ranks()
    delays = measured(training)
    own = delays.operators.rank == 0
    first, *others = training.baseline
    unknown = np.where(delays.operators.iteration == first, np.nan, delays.compute + delays.operators.iteration * MS)
    assert np.isnan(delays.series(unknown, own, [first, others[0]])).tolist() == [True, False]
    assert delays.spread(unknown, own, training.baseline) == delays.spread(unknown, own, others) > 0


def test_a_seldom_seen_operator_has_no_usual_duration() -> None:
    training = replace(three_ranks(slow_ms=40), iterations=3)
    delays = measured(training)
    assert np.isnan(delays.exposed).all()
    assert np.isnan(delays.compute).all()


def test_no_rows_at_all() -> None:
    logs = fetched(three_ranks().job(), SCHEMA.empty_table())
    delays = measure(logs.view, logs.view.clocks, (0, 1, 2))
    assert len(delays.compute) == len(delays.exposed) == len(delays.awaited) == 0


_steps = st.lists(
    st.builds(Compute, st.integers(0, 20), st.integers(0, 60))
    | st.builds(Collective, st.sampled_from(["all", "pair"]), ms=st.integers(0, 5), extra_ms=st.integers(0, 60)),
    min_size=1,
    max_size=6,
)


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """Three ranks that do the same in turn, each computing for a time of its own; the last two exchange."""
    groups = {"all": (0, 1, 2), "pair": (0, 1)}
    common = draw(_steps)
    programs: dict[int, list[Step]] = {rank: [] for rank in range(3)}
    for step in common:
        for rank, program in programs.items():
            if not isinstance(step, Collective):
                program.append(replace(step, ms=draw(st.integers(0, 20))))
            elif rank in groups[step.communicator]:
                program.append(step)
    programs[1] += [Send(2), Recv(2)]
    programs[2] += [Recv(1), Compute(3), Send(1)]
    for program in programs.values():
        program.append(Collective("all"))
    return Training(programs, groups, iterations=7)


def spans(delays: Delays, rank: int, iterations: Sequence[int]) -> list[int]:
    """From the end of an iteration's last operator to the end of the next one's."""
    operators = delays.operators.of_rank(rank)
    ends = [int(operators.end_ns[operators.iteration == i].max()) for i in (min(iterations) - 1, *iterations)]
    return np.diff(ends).tolist()


@settings(max_examples=40)
@given(trainings())
def test_what_is_beyond_the_usual_adds_up_to_the_iterations_excess(training: Training) -> None:
    logs = fetched(training.job(), training.table())
    baseline = training.baseline[1:]
    delays = measure(logs.view, logs.view.clocks, baseline)
    for rank in training.programs:
        rows = irregular(delays, training, rank)
        excess = spans(delays, rank, [training.irregular])[0] - np.mean(spans(delays, rank, baseline))
        assert float(np.sum(delays.compute[rows] + delays.exposed[rows])) == pytest.approx(excess, abs=20)
        np.testing.assert_allclose(delays.wait[rows] + delays.transfer[rows], delays.exposed[rows], atol=5)


@st.composite
def overlapping_logs(draw: st.DrawFn) -> tuple[Job, pa.Table]:
    """Two ranks whose operators may overlap, as streams do; all ends are logged."""
    count = draw(st.integers(1, 8))
    calls = {rank: sorted(draw(st.lists(st.integers(0, 200), min_size=count, max_size=count))) for rank in (0, 1)}
    rows: list[Row] = []
    for seq in range(count):
        done = max(calls[0][seq], calls[1][seq]) + draw(st.integers(0, 60))
        between = draw(st.booleans())
        for rank in (0, 1):
            row: Row = {
                "rank": rank,
                "communicator": "g",
                "seq": seq,
                "position": seq,
                "call_order": seq,
                "iteration": 0,
            }
            row |= {"call_ns": STARTED_NS + calls[rank][seq], "end_ns": STARTED_NS + done}
            row |= {"op": ("send", "recv")[rank], "peer": 1 - rank, "p2p_seq": seq} if between else {"op": "barrier"}
            rows.append(row)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return Job("j", (Place(0, "h"), Place(1, "h")), (Communicator("g", (0, 1)),)), table


def split(job: Job, table: pa.Table) -> tuple[Logs, Split]:
    logs = fetched(job, table)
    return logs, measure(logs.view, Clocks("h", {"h": 0}, {"h": 0}), ()).spent


@given(overlapping_logs())
def test_the_time_of_a_rank_splits_without_remainder(made: tuple[Job, pa.Table]) -> None:
    logs, parts = split(*made)
    operators = logs.operators
    for rank in (0, 1):
        own = operators.rank == rank
        span = int(operators.end_ns[own].max() - operators.call_ns[own].min())
        assert float(np.nansum(parts.compute[own]) + np.sum(parts.exposed[own])) == span
    assert (parts.wait >= 0).all()
    assert (parts.transfer >= 0).all()


offsets = st.fixed_dictionaries({rank: st.integers(-5 * MS, 5 * MS) for rank in range(3)})


@settings(max_examples=25)
@given(trainings(), offsets)
def test_a_constant_clock_offset_changes_nothing(training: Training, offset_ns: Mapping[int, int]) -> None:
    plain, shifted = measured(training), measured(replace(training, offset_ns=offset_ns))
    for name in ("compute", "exposed", "wait", "transfer", "transfer_usual"):
        np.testing.assert_allclose(getattr(shifted, name), getattr(plain, name), atol=10, err_msg=name)


def test_an_offset_that_is_left_over_cancels_out() -> None:
    """Clocks that nobody corrected, off by less than the ranks usually wait for each other."""
    training = Training(
        {0: [Compute(5), Collective("g")], 1: [Compute(10, extra_ms=30), Collective("g")]}, {"g": (0, 1)}, jitter=False
    )
    logs = fetched(training.job(), replace(training, offset_ns={1: 2 * MS}).table())
    delays = measure(logs.view, Clocks("h0", {"h0": 0, "h1": 0}, {}), training.baseline)
    assert in_ms(delays.wait[irregular(delays, training, 0)]) == [30]
    assert in_ms(delays.compute[irregular(delays, training, 1)]) == [30]


@settings(max_examples=40)
@given(trainings(), st.data())
def test_a_lost_line_makes_values_unknown_never_different(training: Training, data: st.DataObject) -> None:
    table = training.table()
    iteration = np.asarray(table.column("iteration"))
    lost = data.draw(st.sampled_from(np.flatnonzero(iteration == training.irregular).tolist()))
    keep = np.arange(len(table)) != lost
    before, after = measured(training), measured(training, table.filter(pa.array(keep)))
    unknown = 0
    for name in ("compute", "exposed", "wait", "transfer"):
        was, now = getattr(before, name)[keep], getattr(after, name)
        known = ~np.isnan(now)
        np.testing.assert_allclose(now[known], was[known], atol=10, err_msg=name)
        unknown += int((~known & ~np.isnan(was)).sum())
    assert unknown > 0
    assert set(after.awaited.tolist()) <= {*before.awaited.tolist(), -1}


def without_ends(table: pa.Table, *ranks: int) -> pa.Table:
    ends = pc.if_else(pc.is_in(table.column("rank"), pa.array(ranks)), None, table.column("end_ns"))
    return table.set_column(table.schema.get_field_index("end_ns"), "end_ns", ends)


def test_an_end_that_nobody_tells_is_not_taken_for_compute() -> None:
    """Rank 2 is silent and no ends are logged: nobody knows when the operators with it ended."""
    training = three_ranks(slow_ms=40)
    training = replace(
        training,
        programs={r: [*p, Compute(1), Collective("two")] if r < 2 else p for r, p in training.programs.items()},
    )
    training = replace(training, groups={**training.groups, "two": (0, 1)})
    table = without_ends(training.table(), 0, 1, 2)
    delays = measured(training, table.filter(pc.less(table.column("rank"), 2)))
    rows = irregular(delays, training, 0)
    assert np.isnan(delays.exposed[rows][:3]).all()
    assert np.isnan(delays.compute[rows][1:]).all()
    assert (delays.awaited[rows][:3] == -1).all()


def test_without_ends_the_members_tell_when_an_operator_ended() -> None:
    training = three_ranks(slow_ms=40)
    table = training.table()
    complete, bare = fetched(training.job(), table), fetched(training.job(), without_ends(table, 0, 1, 2))
    told, inferred = end_times(complete.view, complete.view.clocks), end_times(bare.view, bare.view.clocks)
    assert told.tolist() == complete.operators.end_ns.tolist()
    known = inferred != -1
    assert known.sum() == len(inferred) - 3  # nobody goes on after the last operator
    late = (inferred - told)[known]
    assert late.min() >= 0
    assert late.max() <= 10 * MS  # the first to go on had computed that long


def test_a_sender_that_goes_on_before_its_receiver_has_come_does_not_end_the_message() -> None:
    """Without ends: the sender's next call is early, so the message ends when the receiver enters."""
    rows = [
        _p2p(0, "send", 1, STARTED_NS, STARTED_NS, 0),
        _p2p(1, "recv", 0, STARTED_NS + 20 * MS, STARTED_NS, 0),
    ]
    rows += [
        {**_p2p(r, "barrier", 0, STARTED_NS + at * MS, STARTED_NS, 1), "peer": None} for r, at in ((0, 1), (1, 21))
    ]
    table = pa.Table.from_pylist([{**row, "end_ns": None} for row in rows], schema=SCHEMA)
    logs = fetched(Job("j", (Place(0, "h"), Place(1, "h")), (Communicator("pp", (0, 1)),)), table)
    ends = end_times(logs.view, Clocks("h", {"h": 0}, {"h": 0}))
    assert ends[logs.operators.point_to_point].tolist() == [STARTED_NS + 20 * MS] * 2


def test_one_rank_without_ends_is_told_by_the_others() -> None:
    training = three_ranks(slow_ms=40)
    delays = measured(training, without_ends(training.table(), 0))
    rows = irregular(delays, training, 0)
    assert in_ms(delays.wait[rows])[1] == 40
    assert in_ms(delays.transfer[rows][:2]) == [0, 0]


def test_the_members_of_an_unlisted_communicator_are_never_all_seen() -> None:
    training = three_ranks(slow_ms=40)
    logs = fetched(replace(training.job(), communicators=()), training.table())
    delays = measure(logs.view, logs.view.clocks, training.baseline)
    assert np.isnan(delays.wait).all()
    assert np.isnan(delays.transfer).all()
    assert (delays.awaited == -1).all()
    assert in_ms(delays.exposed[irregular(delays, training, 0)])[1] == 40


def test_a_hole_of_iterations_is_nobodys_compute() -> None:
    training = three_ranks()
    table = training.table()
    kept = table.filter(pc.invert(pc.is_in(table.column("iteration"), pa.array([4, 5, 6]))))
    logs = fetched(training.job(), kept)
    parts = measure(logs.view, logs.view.clocks, ()).spent
    first = (logs.operators.iteration == 7) & (logs.operators.position == 0)
    assert np.isnan(parts.compute[first]).all()
    assert float(np.nanmax(parts.compute)) <= 10 * MS
    bare = fetched(training.job(), without_ends(kept, 0, 1, 2))
    assert float(np.nanmax(measure(bare.view, bare.view.clocks, ()).spent.exposed)) <= 11 * MS


def batch(send_peer_late_ms: int, recv_peer_late_ms: int) -> tuple[Job, pa.Table]:
    """Rank 1 posts a send to 2 and a receive from 0 at once and waits for both."""
    at, rows = STARTED_NS, []
    entered = {0: at + recv_peer_late_ms * MS, 2: at + send_peer_late_ms * MS}
    done = max(entered.values()) + MS
    for order, (op, peer) in enumerate((("send", 2), ("recv", 0))):
        rows.append(_p2p(1, op, peer, at + order, done if op == "send" else entered[0] + MS, order))
    rows.append(_p2p(0, "send", 1, entered[0], entered[0] + MS, 0))
    rows.append(_p2p(2, "recv", 1, entered[2], done, 0))
    places = tuple(Place(rank, "h") for rank in range(3))
    return Job("j", places, (Communicator("pp", (0, 1, 2)),)), pa.Table.from_pylist(rows, schema=SCHEMA)


def _p2p(rank: int, op: str, peer: int, call_ns: int, end_ns: int, order: int) -> Row:
    row: Row = {"rank": rank, "communicator": "pp", "op": op, "peer": peer, "p2p_seq": 0, "iteration": 0}
    return {**row, "seq": order, "position": order, "call_order": order, "call_ns": call_ns, "end_ns": end_ns}


@pytest.mark.parametrize(("send_late", "recv_late", "awaited"), [(50, 2, 2), (2, 50, 0)])
def test_of_a_send_and_a_receive_at_once_the_one_whose_peer_came_last_takes_the_time(
    send_late: int, recv_late: int, awaited: int
) -> None:
    job, table = batch(send_late, recv_late)
    logs, parts = split(job, table)
    own = logs.operators.rank == 1
    peers = logs.operators.peer[own].tolist()
    assert float(parts.exposed[own].sum()) == 51 * MS
    assert parts.exposed[own][peers.index(awaited)] == 51 * MS
    assert parts.wait[own][peers.index(awaited)] == pytest.approx(50 * MS, abs=2)
    assert np.nansum(parts.compute[own]) == 0


def test_a_batch_with_a_peer_that_was_not_seen_stays_as_it_is() -> None:
    job, table = batch(50, 2)
    logs, parts = split(job, table.filter(pc.not_equal(table.column("rank"), 0)))
    own = logs.operators.rank == 1
    assert np.isnan(parts.wait[own]).tolist() == [False, True]
    assert float(parts.exposed[own].sum()) == 51 * MS


def two_islands(offset_ns: Mapping[int, int]) -> Training:
    """Two pairs of ranks that never meet; rank 2 computes longer."""
    return Training(
        {rank: [Compute(extra_ms=40 if rank == 2 else 0), Collective(f"g{rank // 2}")] for rank in range(4)},
        {"g0": (0, 1), "g1": (2, 3)},
        offset_ns=offset_ns,
        jitter=False,
    )


def test_ranks_that_never_met_the_reference_are_compared_among_themselves() -> None:
    training = two_islands({2: 4 * MS, 3: 90 * MS})
    delays = measured(training)
    victim = irregular(delays, training, 3)
    assert in_ms(delays.wait[victim]) == [40]
    assert delays.awaited[victim].tolist() == [2]
    assert in_ms(delays.transfer[victim]) == [0]


def test_clocks_that_cannot_be_compared_tell_nobodys_wait() -> None:
    training = two_islands({})
    logs = fetched(training.job(), training.table())
    clocks = Clocks("h0", {"h0": 0, "h1": 0}, {}, {"h2": 0, "h3": 0}, {"h0": 0, "h1": 0, "h2": 2, "h3": 3})
    delays = measure(logs.view, clocks, training.baseline)
    known, unknown = irregular(delays, training, 0), irregular(delays, training, 3)
    assert not np.isnan(delays.wait[known]).any()
    assert np.isnan(delays.wait[unknown]).all()
    assert delays.awaited[unknown].tolist() == [-1]
    assert in_ms(delays.exposed[unknown]) == [40]


def test_messages_that_all_go_one_way_still_tell_who_waits() -> None:
    training = Training({0: [Compute(10), Recv(1)], 1: [Compute(30, extra_ms=40), Send(0)]}, offset_ns={1: -90 * MS})
    delays = measured(training)
    rows = irregular(delays, training, 0)
    assert delays.awaited[rows].tolist() == [1]
    assert in_ms(delays.wait[rows]) == [pytest.approx(40, abs=0.5)]
