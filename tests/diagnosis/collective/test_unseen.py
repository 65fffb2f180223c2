"""What was not seen is unknown: it ends no diagnosis with an error, and nobody is blamed alone because of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.collective.comparing import SLOW, Comparer
from diagnosis.collective.course import Iteration
from diagnosis.collective.grid import ComparisonRules
from diagnosis.irregularity.monitor import IterationMonitor
from diagnosis.job import Job
from tests.diagnosis.collective.made_metrics import MS, Told, job
from tests.diagnosis.collective.test_localise import (
    PIPELINES,
    exchanges_between_neighbours,
    experts,
    iterations,
    pipelined,
)

MADE: dict[str, tuple[Callable[[], Told], Job]] = {
    "a slow host": (lambda: iterations({1: 2.0}), job()),
    "a slow NIC": (lambda: iterations(actual={3: 1.0}), job()),
    "experts": (lambda: experts((30, 40, 60, 30), (10, 30, 20, 10)), job(4, 1)),
    "pipelines": (lambda: pipelined({(1, 2): 8.0}), job()),
    "a pipeline that hangs": (lambda: pipelined(stop={(2, 3): True, (0, 5): True}), job()),
    "neighbours": (lambda: exchanges_between_neighbours([(10, 10, 10, 10), (40, 10, 10, 10)] * 3), job(4, 1)),
}
"""Telemetry of jobs with and without culprits."""


_BY_OTHERS = ("rate_to_peer", "unanswered")
"""What is told of a rank by those that send to it."""


def unseen(row: dict[str, Any], peers: bool) -> dict[str, Any]:
    """A row of whose operator nothing was seen; ``peers``: but to whom it is sent."""
    lost = {"state": "unknown", "start_ns": None, "end_ns": None, "duration_ns": None, "actual_time_ns": None}
    to_nobody: dict[str, list[int]] = {"peers": [], "peer_sent_bytes": [], "peer_actual_time_ns": []}
    return row | lost | {"coverage": 0.0} | ({} if peers else to_nobody)


@pytest.mark.parametrize("name", MADE)
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_is_not_seen_something_is_said_and_nobody_unseen_is_blamed(name: str, data: st.DataObject) -> None:
    make, of = MADE[name]
    told = make()
    at = range(len(told.rows))
    ranks: Collection[int] = data.draw(st.sets(st.sampled_from(of.ranks), max_size=2))
    some = data.draw(st.sets(st.sampled_from(at), max_size=len(at) // 2))
    since = data.draw(st.sampled_from((0, 0, len(told.rows) // 4, len(told.rows) // 2)))
    peers, dropped = data.draw(st.booleans()), data.draw(st.booleans())
    hidden = [i in some or (i >= since and row["rank"] in ranks) for i, row in enumerate(told.rows)]
    told.rows = [
        unseen(row, peers) if hides else row
        for row, hides in zip(told.rows, hidden, strict=True)
        if not (hides and dropped)
    ]
    if not told.rows:
        return
    table = told.table
    comparer = Comparer(ComparisonRules(), "actual_time", IterationMonitor(SLOW))
    pipelines = PIPELINES if "pipeline" in name else ()
    comparer.stages = list(pipelines)
    verdicts = [*comparer.judge(Iteration(0, 100 * MS, table), of).verdicts, *comparer.hang(table, of)]
    for verdict in verdicts:
        if verdict.method in _BY_OTHERS or since:
            continue
        assert verdict.level != "device" or not set(verdict.ranks) <= set(ranks), verdict
