"""Who is late of itself in pipelines, whatever the clocks of their stages say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.collective.grid import ComparisonRules
from diagnosis.collective.own_lateness import late_of_itself, missing_of_itself
from diagnosis.collective.participation import UNKNOWN
from diagnosis.collective.pipelines import Pipelines
from diagnosis.job import Job, Place
from tests.diagnosis.collective.one_f_one_b import pipelines, replica, schedule

RULES = ComparisonRules()
REPLICAS = 3


def slowed(layout: tuple[int, int], slow: int, at: int, times: float, apart_ns: list[float] | None = None) -> Pipelines:
    """Replicas, a stage of one of which takes so many times as long to compute."""
    stages, microbatches = layout
    told = [replica(stages, microbatches, {slow: times} if one == at else {}) for one in range(REPLICAS)]
    return pipelines(told, apart_ns or [0.0] * stages)


layouts = st.tuples(st.integers(2, 5), st.integers(4, 10))
"""Stages and microbatches."""


def job(stages: int) -> Job:
    """A rank on each machine."""
    return Job("j", tuple(Place(rank, f"h{rank}", 0, ("mlx5_0",)) for rank in range(stages * REPLICAS)), ())


@settings(deadline=None, max_examples=60)
@given(layouts, st.data(), st.floats(1.8, 3.0))
def test_a_machine_that_computes_for_longer_is_named_whatever_the_clocks_say(
    layout: tuple[int, int], data: st.DataObject, times: float
) -> None:
    stages, _ = layout
    slow, at = data.draw(st.integers(0, stages - 1)), data.draw(st.integers(0, REPLICAS - 1))
    clocks = st.floats(-1e9, 1e9) | st.floats(-2e7, 2e7)
    apart = data.draw(st.lists(clocks, min_size=stages, max_size=stages))
    found = late_of_itself(slowed(layout, slow, at, times, apart), job(stages), RULES)
    assert found is not None
    culprit = slow * REPLICAS + at
    assert culprit in found.ranks
    assert set(found.ranks) <= {culprit, culprit - REPLICAS, culprit + REPLICAS}


@settings(deadline=None, max_examples=60)
@given(st.integers(4, 10), st.integers(0, 1), st.integers(0, REPLICAS - 1), st.floats(3.0, 12.0))
def test_whose_sends_take_longer_makes_nobody_of_two_stages_compute_for_longer(
    microbatches: int, slow: int, at: int, takes_ms: float
) -> None:
    """As beside a busy CPU: what comes late, forward or back, delays whoever takes it."""
    told = [replica(2, microbatches, {}, sends_ms={slow: takes_ms} if one == at else {}) for one in range(REPLICAS)]
    assert late_of_itself(pipelines(told, [0.0, 0.0]), job(2), RULES) is None


@settings(deadline=None, max_examples=60)
@given(layouts, st.data(), st.floats(1.8, 3.0))
def test_nobody_is_blamed_for_what_was_not_seen_of_another(
    layout: tuple[int, int], data: st.DataObject, times: float
) -> None:
    """Some of a machine's sends are lost, or all: the culprit's, its neighbour's or anybody's."""
    stages, _ = layout
    slow, at = data.draw(st.integers(0, stages - 1)), data.draw(st.integers(0, REPLICAS - 1))
    told = slowed(layout, slow, at, times)
    hidden = data.draw(st.integers(0, stages * REPLICAS - 1))
    whole_stage = data.draw(st.booleans())
    lost = np.zeros_like(told.absent)
    lost[hidden, data.draw(st.integers(0, told.start.shape[1] - 1)) :] = True
    if whole_stage:
        lost[told.stage == told.stage[hidden]] = True
    start, end = (np.where(lost, np.nan, times) for times in (told.start, told.end))
    seen = replace(told, start=start, end=end, peer=np.where(lost, UNKNOWN, told.peer))
    found = late_of_itself(seen, job(stages), RULES)
    assert found is None or slow * REPLICAS + at in found.ranks
    if hidden % REPLICAS != at and not whole_stage:  # what another pipeline sends tells nothing of this one's
        assert found is not None


@settings(deadline=None, max_examples=60)
@given(layouts, st.data())
def test_one_send_more_of_another_hides_nobody(layout: tuple[int, int], data: st.DataObject) -> None:
    """Where one's iteration ends later, a send of the next one is among its own."""
    stages, _ = layout
    slow = data.draw(st.integers(0, stages - 1))
    told = slowed(layout, slow, 0, 2.5)
    other = data.draw(st.sampled_from([at for at in range(stages * REPLICAS) if at % REPLICAS]))
    more = np.full((stages * REPLICAS, 1), np.nan)
    more[other] = np.nanmax(told.start) + 1e6
    peer = np.full(more.shape, UNKNOWN)
    peer[other] = told.peer[other, 0]
    seen = replace(
        told,
        start=np.hstack((told.start, more)),
        end=np.hstack((told.end, more + 2e5)),
        peer=np.hstack((told.peer, peer)),
        absent=np.hstack((told.absent, np.zeros_like(more, dtype=np.bool_))),
        stuck=np.hstack((told.stuck, np.full(more.shape, UNKNOWN))),
        stuck_to=np.hstack((told.stuck_to, np.full(more.shape, UNKNOWN))),
        again_to=np.hstack((told.again_to, np.full(more.shape, UNKNOWN))),
    )
    found = late_of_itself(seen, job(stages), RULES)
    assert found is not None
    assert slow * REPLICAS in found.ranks


@settings(deadline=None, max_examples=60)
@given(layouts, st.data())
def test_a_machine_that_computes_no_more_is_named(layout: tuple[int, int], data: st.DataObject) -> None:
    """Whoever only waits for it is not, unless both hold up the same exchange."""
    stages, microbatches = layout
    stage, at = data.draw(st.integers(0, stages - 1)), data.draw(st.integers(0, REPLICAS - 1))
    computing = [i for i, step in enumerate(schedule(stage, stages, microbatches)) if step.computes and step.transfers]
    stops = stage, data.draw(st.sampled_from(computing))
    told = [replica(stages, microbatches, {}, stops if one == at else None) for one in range(REPLICAS)]
    found = missing_of_itself(pipelines(told, [0.0] * stages), job(stages))
    assert found is not None
    culprit = stage * REPLICAS + at
    assert culprit in found.ranks
    assert set(found.ranks) <= {culprit, culprit - REPLICAS, culprit + REPLICAS}


@settings(deadline=None, max_examples=100)
@given(layouts, st.data())
def test_who_waits_for_what_was_not_seen_is_not_named_alone(layout: tuple[int, int], data: st.DataObject) -> None:
    """Of the machine that computes no more, or another one, all is lost from some send on."""
    stages, microbatches = layout
    stage, at = data.draw(st.integers(0, stages - 1)), data.draw(st.integers(0, REPLICAS - 1))
    computing = [i for i, step in enumerate(schedule(stage, stages, microbatches)) if step.computes and step.transfers]
    stops = stage, data.draw(st.sampled_from(computing))
    told = pipelines(
        [replica(stages, microbatches, {}, stops if one == at else None) for one in range(REPLICAS)], [0.0] * stages
    )
    hidden = data.draw(st.integers(0, stages - 1)) * REPLICAS + at
    lost = np.zeros_like(told.absent)
    lost[hidden, data.draw(st.integers(0, told.start.shape[1] - 1)) :] = True
    seen = replace(
        told,
        start=np.where(lost, np.nan, told.start),
        end=np.where(lost, np.nan, told.end),
        absent=told.absent & ~lost,
        peer=np.where(lost, UNKNOWN, told.peer),
    )
    found = missing_of_itself(seen, job(stages))
    assert found is None or stage * REPLICAS + at in found.ranks


def test_nobody_is_late_where_all_compute_alike() -> None:
    told = [replica(4, 8, {}) for _ in range(REPLICAS)]
    assert late_of_itself(pipelines(told, [0.0] * 4), job(4), RULES) is None
    assert missing_of_itself(pipelines(told, [0.0] * 4), job(4)) is None
