"""What was not seen is unknown: it ends no diagnosis with an error, and nobody is blamed because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.causes import Cause
from diagnosis.collective.comparing import SLOW, Comparer
from diagnosis.collective.course import Iteration
from diagnosis.collective.grid import ComparisonRules
from diagnosis.collective.participation import INCOMPLETE, MISSING_START
from diagnosis.collective.stages import Stages
from diagnosis.collective.verdict import Verdict
from diagnosis.irregularity.monitor import IterationMonitor
from diagnosis.job import Job, Layout
from tests.diagnosis.collective import test_stragglers
from tests.diagnosis.collective.made_metrics import MB, MS, Told, job
from tests.diagnosis.collective.test_localise import (
    PIPELINES,
    entering,
    exchanges_between_neighbours,
    experts,
    iterations,
    pipelined,
)


@dataclass(frozen=True)
class Made:
    """Telemetry of a job, and the ranks of which something is wrong or that cannot be told from these."""

    told: Callable[[], Told]
    culprits: frozenset[int]
    job: Job
    stages: tuple[Stages, ...] = ()


def stopped_ring() -> Told:
    told = Told(per_host=1)
    for rank, share in enumerate((0.5, 0.6, 0.3, 0.4)):
        sent, peers = int(share * 100 * MB), {(rank + 1) % 4: MB}
        told.tell("dp0", 7, rank, 0, sent=sent, peers=peers, state="incomplete", incomplete=list(peers))
    return told


def stopped_exchange() -> Told:
    told = Told(per_host=1)
    for rank in range(4):
        peers = {peer: 10 * MB for peer in range(4) if peer != rank}
        stuck = [peer for peer in peers if 2 in {rank, peer}]
        told.tell("ep", rank, rank, 0, op="custom", state="incomplete", peers=peers, incomplete=stuck)
    return told


ON_FOUR = job(4, 1)
SLOW_AT_ONE = [(10, 10, 10, 10), (10, 40, 10, 10)] * 3
MADE = {
    "a slow host": Made(lambda: iterations({1: 2.0}), frozenset({2, 3}), job()),
    "a slow NIC": Made(lambda: iterations(actual={3: 1.0}), frozenset({3}), job()),
    "a slow expert": Made(lambda: experts((30, 40, 60, 30), (10, 30, 20, 10)), frozenset({1}), ON_FOUR),
    "a hot expert": Made(lambda: experts((30, 30, 60, 30), (10, 10, 20, 10)), frozenset(), ON_FOUR),
    "neighbours": Made(lambda: exchanges_between_neighbours(SLOW_AT_ONE), frozenset({1}), ON_FOUR),
    "pipelines": Made(lambda: pipelined({(1, 2): 8.0}), frozenset({2, 3}), job(), PIPELINES),
    "who waits for whom": Made(
        lambda: entering(dict.fromkeys((2, 3, 4, 5), "missing_start")), frozenset({4, 5}), job()
    ),
    "a ring that stops": Made(stopped_ring, frozenset({2}), ON_FOUR),
    "an exchange that stops": Made(stopped_exchange, frozenset({2}), ON_FOUR),
}


def unseen(row: dict[str, Any], peers: bool) -> dict[str, Any]:
    """A row of whose operator nothing was seen; ``peers``: but to whom it is sent."""
    lost = {"state": "unknown", "start_ns": None, "end_ns": None, "duration_ns": None, "actual_time_ns": None}
    to_nobody: dict[str, list[int]] = {"peers": [], "peer_sent_bytes": [], "peer_actual_time_ns": []}
    return row | lost | {"coverage": 0.0, "incomplete_peers": []} | ({} if peers else to_nobody)


def said(made: Made, told: Told) -> list[Verdict]:
    """What is said of it as a slow iteration or, if anything does not end, as one that hangs."""
    comparer = Comparer(ComparisonRules(), "actual_time", IterationMonitor(SLOW), stages=list(made.stages))
    if np.isin(told.table.state, (INCOMPLETE, MISSING_START)).any():
        return comparer.hang(told.table, made.job)
    return list(comparer.judge(Iteration(0, 100 * MS, told.table), made.job).verdicts)


def check_possible(verdicts: Iterable[Verdict], ranks: Iterable[int]) -> None:
    """Fail for a verdict on nobody, on others than these ranks, or of no cause that there is."""
    for verdict in verdicts:
        assert verdict.cause in get_args(Cause), verdict
        assert verdict.ranks, verdict
        assert {*verdict.ranks, *chain.from_iterable(verdict.candidates)} <= {*ranks}, verdict


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("how", ["no rows", "unknown", "unknown, to whom"])
def test_where_a_host_is_not_seen_no_other_is_blamed_for_it(name: str, how: str) -> None:
    """Nobody is, or who is at fault, or several of which that is one."""
    made = MADE[name]
    whole = said(made, made.told())
    assert not made.culprits or any(set(one.ranks) & made.culprits for one in whole)
    for hidden in {made.job.clock(rank): made.job.ranks_beside(rank) for rank in made.job.ranks}.values():
        told = made.told()
        rows = [
            unseen(row, how == "unknown, to whom") if row["rank"] in hidden else row
            for row in told.rows
            if how != "no rows" or row["rank"] not in hidden
        ]
        told.rows = rows
        for verdict in said(made, told):
            assert verdict.cause == "imbalance" or set(verdict.ranks) & made.culprits, (hidden, verdict)


@pytest.mark.parametrize("name", MADE)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_whatever_rows_are_not_seen_what_is_said_is_possible(name: str, data: st.DataObject) -> None:
    made = MADE[name]
    told = made.told()
    at = range(len(told.rows))
    ranks = data.draw(st.sets(st.sampled_from(made.job.ranks), max_size=2))
    some = data.draw(st.sets(st.sampled_from(at), max_size=len(at) // 2))
    since = data.draw(st.sampled_from((0, 0, len(at) // 4, len(at) // 2)))
    peers, dropped = data.draw(st.booleans()), data.draw(st.booleans())
    hidden = [i in some or (i >= since and row["rank"] in ranks) for i, row in enumerate(told.rows)]
    told.rows = [
        unseen(row, peers) if hides else row
        for row, hides in zip(told.rows, hidden, strict=True)
        if not (hides and dropped)
    ]
    if told.rows:
        check_possible(said(made, told), made.job.ranks)


LAYOUT = Layout(tp=1, pp=2, dp=4, source="given")


@pytest.mark.parametrize(
    "known",
    [Job("j", (), (), layout=LAYOUT), replace(job(3), communicators=(), layout=LAYOUT)],
    ids=["no places", "a host less"],
)
def test_where_a_layout_tells_of_more_ranks_than_the_job_does_who_is_slow_is_named_all_the_same(known: Job) -> None:
    assert said(Made(pipelined, frozenset(), known), pipelined()) == []
    slow = iterations(actual={3: 1.0})
    [found] = said(Made(lambda: slow, frozenset({3}), known), slow)
    assert (found.cause, found.ranks) == ("communication_slow", (3,))


def test_whose_communicators_are_not_told_is_diagnosed_as_well() -> None:
    grouped = test_stragglers.GROUPED
    told = replace(grouped, communicators=tuple(replace(group, ranks=()) for group in grouped.communicators))
    comparer = Comparer(ComparisonRules(), "actual_time", IterationMonitor(SLOW))
    for iteration in range(4):
        comparer.judge(Iteration(iteration, 30 * MS, test_stragglers.groups({}, {})), told)
    (found,) = comparer.judge(Iteration(4, 40 * MS, test_stragglers.groups({1: 16.0}, {1: 9.1})), told).verdicts
    assert (found.cause, found.ranks) == ("host_slow", (4, 5, 6, 7))


@pytest.mark.parametrize("column", ["sent_bytes", "actual_time_ns", "start_ns"])
def test_a_figure_that_is_not_told_blames_nobody(column: str) -> None:
    for rank in range(4):
        told = test_stragglers.exchanges({})
        told.rows = [row | ({column: None} if row["rank"] == rank else {}) for row in told.rows]
        assert said(Made(Told, frozenset(), ON_FOUR), told) == []
