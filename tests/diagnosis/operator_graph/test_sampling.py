"""Operators that stand for others: which they are, and what they say where there is no room for all."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.operator_graph.attribution import Walk, walk
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.delays import Delays, measure
from diagnosis.operator_graph.ledger import Ledger, Stand
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Need, Wanted
from diagnosis.operator_graph.sampling import telling, weights_without_ends
from diagnosis.operator_graph.witnesses import Witnesses
from tests.diagnosis.answering import Asked, answered
from tests.diagnosis.made_logs import MS, Collective, Compute, Step, Training

RANKS, OPERATORS = 6, 60
GROUP = tuple(range(RANKS))
FEW = AttributionSettings(most_operators=16)


def training(late: Callable[[int, int], float] = lambda rank, number: 0.0, slow_ms: float = 0.0) -> Training:
    """A group's operators without ends, before each of which a rank computes ``late`` ms longer than usual, and each of
    which takes ``slow_ms`` longer.
    """
    programs: dict[int, list[Step]] = {
        rank: [
            step
            for number in range(OPERATORS)
            for step in (Compute(extra_ms=late(rank, number)), Collective("g", extra_ms=slow_ms))
        ]
        for rank in GROUP
    }
    return Training(programs, {"g": GROUP})


def log_of(made: Training) -> pa.Table:
    table = made.table()
    return table.set_column(table.column_names.index("end_ns"), "end_ns", pa.nulls(len(table), pa.int64()))


def walked(made: Training, most_rows: int) -> tuple[Walk, Logs, Asked]:
    logs = Logs(made.job(), tuple(range(made.iterations)), most_rows=most_rows, narrow=True)
    search = walk(logs, made.irregular, made.baseline, (0,), 120 * MS, FEW)
    found, asked = answered(search, log_of(made))
    return found, logs, asked


ROWS_OF_ONE = OPERATORS * 13
NO_ROOM = 4 * ROWS_OF_ONE
"""Of six ranks that have as many, all the walk asks for."""


def test_a_slow_group_is_told_where_there_is_no_room_for_all_of_its_operators() -> None:
    made = training(slow_ms=2.0)
    found, logs, asked = walked(made, NO_ROOM)
    [leaf] = found.leaves
    assert (leaf.communicator, leaf.members) == ("g", GROUP)
    assert leaf.excess_ns == pytest.approx(120 * MS, rel=0.02)
    assert not logs.bounded
    [sampled] = [need for need in asked.needs if need.positions]
    assert len(sampled.positions) <= FEW.most_operators
    assert asked.rows < NO_ROOM
    [whole] = walked(made, 10 * NO_ROOM)[0].leaves
    assert leaf.excess_ns == pytest.approx(whole.excess_ns, rel=0.02)


def test_who_is_waited_for_is_told_as_well_and_that_it_computed_only_as_far_as_is_known() -> None:
    found, logs, _ = walked(training(lambda rank, number: 2.0 * (rank == 3)), NO_ROOM)
    [wait] = [wait for wait in found.waits if wait.waiting_rank == 0]
    assert wait.awaited_rank == 3
    assert wait.ns == pytest.approx(120 * MS, rel=0.1)
    assert 3 in found.visited
    assert {leaf.rank for leaf in found.leaves} <= {3}
    assert logs.stood_for == {"g"}


def test_where_there_is_room_nothing_stands_for_others() -> None:
    _, logs, asked = walked(training(slow_ms=2.0), 10 * NO_ROOM)
    assert not logs.stood_for
    assert all(not need.positions for need in asked.needs)


def test_where_ends_are_logged_too_little_room_changes_nothing_in_what_is_common() -> None:
    """All compute longer, which is nobody's fault, and so do their transfers, which are looked at."""
    made = training(lambda rank, number: 2.0, slow_ms=0.9)
    logs = Logs(made.job(), tuple(range(made.iterations)), most_rows=NO_ROOM + 300, narrow=True)
    found, _ = answered(walk(logs, made.irregular, made.baseline, GROUP[:4], 174 * MS, FEW), made.table())
    assert {leaf.communicator for leaf in found.leaves} <= {"g"}
    assert not logs.stood_for


def test_of_a_communicator_of_which_one_rank_needs_all_its_operators_are_among_those_that_stand_for_others() -> None:
    """One was awaited amid the iteration, and has called few by then."""
    made = training()
    logs = Logs(made.job(), tuple(range(made.iterations)), narrow=True)
    answered(logs.fetch({None: [0, 1]}), log_of(made))
    part = logs.part([0, 1], ["g"])
    settings = replace(FEW, follow_share=0.0, follow_sigmas=-np.inf)
    ledger = Ledger(part, made.irregular, made.baseline, 120 * MS, settings, Witnesses(), [0, 1])
    delays = measure(part, part.clocks, made.baseline)
    until_ns = int(part.operators.call_ns[delays.rows(1, [made.irregular])[9]])
    wanted = ledger.unsplit([Stand(0, None, 120 * MS, ()), Stand(1, until_ns, 120 * MS, ())])
    assert wanted.positions == {}
    assert wanted.stand_ins["g"] >= set(range(10))
    assert len(wanted.stand_ins["g"]) < OPERATORS


def measured(made: Training, positions: tuple[int, ...]) -> tuple[Delays, np.ndarray]:
    """Rank 0's operators of the irregular iteration, with what the others say of some positions."""
    logs = Logs(made.job(), tuple(range(made.iterations)), narrow=True)
    table = log_of(made)
    answered(logs.fetch({None: [0]}), table)
    answered(logs.fetch({"g": GROUP}, {"g": positions}), table)
    part = logs.part([0], ["g"])
    delays = measure(part, part.clocks, made.baseline)
    return delays, delays.rows(0, [made.irregular])


def test_half_are_the_slowest_and_half_are_spread_evenly() -> None:
    made = training(lambda rank, number: 5.0 * (rank == 0 and number in {7, 8, 31}))
    delays, rows = measured(made, ())
    told = telling(delays, rows, 6)
    assert told is not None, "though all is known by now"
    assert sorted(told.slowest.tolist()) == [6, 7, 30]  # the rank's next call is late after these
    assert told.evenly.tolist() == [0, 29, 59]
    assert told.positions.tolist() == [0, 6, 7, 29, 30, 59]
    assert telling(delays, rows, OPERATORS) is None


def test_those_that_are_spread_stand_for_the_rest_and_the_slowest_for_themselves() -> None:
    made = training(lambda rank, number: 5.0 * (rank == 0 and number in {7, 8, 31}))
    positions = (0, 6, 7, 29, 30, 59)
    delays, rows = measured(made, positions)
    times = weights_without_ends(delays, rows, {"g"}, 6)
    assert times[[6, 7, 30]].tolist() == [1.0] * 3
    split = ~np.isnan(delays.transfer[rows])
    assert times[split].sum() == pytest.approx(OPERATORS)
    assert (weights_without_ends(delays, rows, (), 6) == 1).all()


def test_what_stands_for_others_is_asked_for_only_where_there_is_no_room() -> None:
    made = training()
    table, iterations = log_of(made), tuple(range(made.iterations))
    wanted = Wanted()
    wanted.add("g", GROUP, None, np.array([3, 5]))
    others = tuple(GROUP[1:])
    for most_rows, positions in ((10 * NO_ROOM, ()), (NO_ROOM, (3, 5))):
        logs = Logs(made.job(), iterations, most_rows=most_rows)
        answered(logs.fetch({None: [0]}), table)
        _, asked = answered(logs.fetch_as_room_allows(wanted), table)
        assert asked.needs == [Need(others, iterations, "g", positions=positions)]
