"""All machines that compute for longer than they did."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.collective.comparing import SLOW, Comparer
from diagnosis.collective.course import Iteration
from diagnosis.collective.everywhere import all_computing_longer
from diagnosis.collective.grid import ComparisonRules
from diagnosis.collective.own_lateness import computed_of_itself
from diagnosis.irregularity.monitor import IterationMonitor
from tests.diagnosis.collective.made_metrics import MS, Told, job
from tests.diagnosis.collective.one_f_one_b import pipelines, replica

JOB = job()
USUALLY_MS = 40.0


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 5), st.integers(4, 10), st.floats(1.2, 3.0), st.data())
def test_pipelines_compute_longer_by_what_their_own_stages_do_whatever_the_clocks_say(
    stages: int, microbatches: int, times: float, data: st.DataObject
) -> None:
    """Most stages of a pipeline all of which are slow; one that is paced by the next does not show it. The pipeline
    beside it computes as it did."""
    apart = data.draw(st.lists(st.floats(-1e9, 1e9), min_size=stages, max_size=stages))
    as_usual, slow = (
        replica(stages, microbatches, {}),
        replica(stages, microbatches, dict.fromkeys(range(stages), times)),
    )
    usual = computed_of_itself(pipelines([as_usual, as_usual], [0.0] * stages)).reshape(stages, 2)
    shifted = computed_of_itself(pipelines([as_usual, as_usual], apart)).reshape(stages, 2)
    now = computed_of_itself(pipelines([as_usual, slow], apart)).reshape(stages, 2)
    grown = now - shifted
    assert np.abs(grown[:, 0]).max() <= 1e3
    assert np.mean(grown[:, 1] >= 0.6 * (times - 1.0) * usual[:, 1]) > 2 / 3


def test_all_are_named_only_if_most_hosts_compute_longer() -> None:
    usual = {(f"h{at}",): 40.0 * MS for at in range(4)}
    (found,) = all_computing_longer({host: 1.3 * ns for host, ns in usual.items()}, usual, JOB)
    assert (found.cause, found.level, found.ranks) == ("compute_slow", "group", JOB.ranks)
    assert found.evidence["lost_ns"] == pytest.approx(12 * MS)
    some = {host: 1.3 * ns if host in {("h0",), ("h1",)} else ns for host, ns in usual.items()}
    little = {host: 1.08 * ns for host, ns in usual.items()}
    assert all_computing_longer(some, usual, JOB) == all_computing_longer(little, usual, JOB) == []
    unseen = {host: 1.3 * ns for host, ns in usual.items() if host != ("h2",)}
    assert all_computing_longer(unseen, usual, JOB) == all_computing_longer(usual, unseen, JOB) == []


def iteration(number: int, computed_ms: Mapping[int, float]) -> Iteration:
    """An all-reduce, a while of computing on each host, and an all-reduce for which the others wait."""
    told = Told()
    last = max(computed_ms.get(host, USUALLY_MS) for host in range(4))
    for rank in JOB.ranks:
        own = computed_ms.get(rank // 2, USUALLY_MS)
        told.tell(f"dp{rank % 2}", 2 * number, rank, 0, 10 * MS)
        told.tell(f"dp{rank % 2}", 2 * number + 1, rank, int((10 + own) * MS), int((last - own + 10) * MS), 10 * MS)
    return Iteration(number, int((20 + last) * MS), told.table)


@pytest.mark.parametrize(
    ("computed_ms", "ranks"), [(dict.fromkeys(range(4), 52.0), JOB.ranks), ({1: 70.0}, (2, 3)), ({}, None)]
)
def test_iterations_that_last_longer_because_all_compute_longer_name_all(
    computed_ms: Mapping[int, float], ranks: tuple[int, ...] | None
) -> None:
    comparer = Comparer(ComparisonRules(), "actual_time", IterationMonitor(SLOW))
    for number in range(4):
        assert comparer.judge(iteration(number, {}), JOB).verdicts == ()
    known = Comparer.from_state(comparer.rules, comparer.metric, SLOW, json.loads(json.dumps(comparer.to_state())))
    found = known.judge(iteration(4, computed_ms), JOB).verdicts
    assert [(one.cause, one.ranks) for one in found] == ([] if ranks is None else [("compute_slow", ranks)])
