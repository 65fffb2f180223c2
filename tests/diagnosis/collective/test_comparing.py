"""Iterations judged one after the other, with what is usual by those before."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from diagnosis.collective.comparing import SLOW, Comparer, merged
from diagnosis.collective.course import Iteration
from diagnosis.collective.grid import ComparisonRules, Usual, grids
from diagnosis.collective.participation import Participation
from diagnosis.collective.verdict import Verdict
from diagnosis.irregularity.monitor import IterationMonitor
from tests.diagnosis.collective.made_metrics import MB, MS, Told, job

HOSTS, PER_HOST = 4, 2
JOB = job(HOSTS, PER_HOST)
USUALLY_MS, SENDING_MS = 10, 9


def comparer() -> Comparer:
    return Comparer(ComparisonRules(), "actual_time", IterationMonitor(SLOW))


def iteration(number: int, lasts_ms: int = USUALLY_MS, silent: Mapping[int, int] | None = None) -> Iteration:
    """All-reduces of the data-parallel groups, then eight sends of each rank to the next host, some of which go silent
    for a third of their time; what the all-reduces last longer, the iteration does."""
    told = Told(PER_HOST)
    for rank in range(HOSTS * PER_HOST):
        told.tell(f"dp{rank % PER_HOST}", number, rank, 0, lasts_ms * MS, SENDING_MS * MS)
        peer = (rank + PER_HOST) % (HOSTS * PER_HOST)
        for seq in range(8):
            lasts = 2 * MS if seq < (silent or {}).get(rank, 0) else 3 * MS
            told.tell(f"pp{rank}", seq, rank, (100 + 10 * seq) * MS, 3 * MS, lasts, op="send", peers={peer: MB})
    return Iteration(number, (200 + lasts_ms) * MS, told.table)


def restarted(known: Comparer) -> Comparer:
    return Comparer.from_state(known.rules, known.metric, SLOW, json.loads(json.dumps(known.to_state())))


def test_a_busy_host_is_told_from_its_group_over_several_iterations_and_a_restart() -> None:
    known = comparer()
    for number in range(4):
        assert known.judge(iteration(number), JOB).verdicts == ()
    found: list[Verdict] = []
    for number in range(4, 7):
        [verdict] = known.judge(iteration(number, 3 * USUALLY_MS, {2: 3, 3: 2}), JOB).verdicts
        found.append(verdict)
        known = restarted(known)
    assert [(v.cause, v.level) for v in found] == [("host_slow", "group"), *2 * [("host_slow", "machine")]]
    assert {v.ranks for v in found[1:]} == {(2, 3)}


def test_what_a_busy_host_costs_is_the_silence_of_its_sends_as_well() -> None:
    """Its collectives alone are not a tenth of what the iteration loses."""
    known = comparer()
    for number in range(4):
        known.judge(iteration(number), JOB)
    found = []
    for number in range(4, 7):
        slow = iteration(number, USUALLY_MS + 2, {2: 8, 3: 8})
        assert slow.duration_ns is not None
        longer = Iteration(number, slow.duration_ns + 40 * MS, slow.table)
        found.append([v.ranks for v in known.judge(longer, JOB).verdicts])
    assert found == [[], [(2, 3)], [(2, 3)]]


def test_what_a_job_is_slow_in_from_its_beginning_is_not_usual() -> None:
    """Nor is it because of the first iteration, of which nobody knows how long it took."""
    known = comparer()
    for number in range(3):
        told = Told(PER_HOST)
        for rank in range(HOSTS * PER_HOST):
            sends = SENDING_MS if rank == 2 else SENDING_MS // 3
            told.tell(f"dp{rank % PER_HOST}", number, rank, 0, USUALLY_MS * MS, sends * MS)
        found = known.judge(Iteration(number, 100 * MS if number else None, told.table), JOB).verdicts
        assert [(v.cause, v.ranks) for v in found] == ([("communication_slow", (2,))] if number else [])
    assert known.monitor.expected_ns is None


def test_who_was_slow_from_the_beginning_is_over_after_a_long_quiet() -> None:
    known = comparer()
    quiet = []
    for number in range(120):
        told = Told(PER_HOST)
        for rank in range(HOSTS * PER_HOST):
            sends = SENDING_MS if rank == 2 and number < 3 else SENDING_MS // 3
            told.tell(f"dp{rank % PER_HOST}", number, rank, 0, USUALLY_MS * MS, sends * MS)
        if known.judge(Iteration(number, 100 * MS if number else None, told.table), JOB).judgement.quiet:
            quiet.append(number)
    assert len(quiet) == 1


@pytest.mark.parametrize(("past", "told"), [(1, False), (2, False), (3, True)])
def test_rates_are_usual_from_three_iterations_on(past: int, told: bool) -> None:
    usual = merged([Usual.of(grids(_exchanges())) for _ in range(past)])
    assert usual is not None
    assert bool(usual.rate) == told
    assert merged([]) is None


def _exchanges() -> Participation:
    told = Told(PER_HOST)
    for rank in range(4):
        peers = {peer: 10 * MB for peer in range(4) if peer != rank}
        told.tell("ep", rank, rank, 0, 2 * MS, op="custom", sent=30 * MB, peers=peers)
    return told.table
