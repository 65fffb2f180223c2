"""Forests that are tuned while their job drifts: once in an interval, and at each search."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.detectors.drifting import DAY_NS, EACH_SEARCH, TUNING, WEEK_NS, TunedForest, TuningSettings
from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.features import AS_PUBLISHED
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from tests.diagnosis.irregularity.drawn_samples import drawn


def fitted() -> ForestDetector:
    samples, abnormal = drawn()
    forest = ForestDetector(ForestSettings(features=AS_PUBLISHED)).fit(samples, abnormal)
    return replace(forest, levels=Levels.of(samples))


def test_a_forest_is_tuned_once_in_an_interval() -> None:
    forest = fitted()
    following = TunedForest(forest, tuned_ns=5 * WEEK_NS)
    later, latest = (Levels.of(drawn(200, scale=scale)[0]) for scale in (1.05, 1.1))
    assert following.at(6 * WEEK_NS - 1, later) is forest
    tuned = following.at(6 * WEEK_NS, later)
    assert tuned.levels == later
    assert following.at(6 * WEEK_NS + 1, latest) is tuned
    assert following.at(7 * WEEK_NS, latest).levels == latest
    by_tail = TunedForest(forest, 0, TuningSettings("p99", interval_ns=0)).at(0, later)
    assert by_tail.trees is not None
    assert tuned.trees is not None
    assert by_tail.trees.threshold.tolist() != tuned.trees.threshold.tolist()


def test_a_search_does_not_wait_for_the_week_to_end() -> None:
    forest, tomorrow = fitted(), Levels.of(drawn(200, scale=1.05)[0])
    levels = {how: TunedForest(forest, 0, settings).at(DAY_NS, tomorrow).levels for how, settings in TUNING.items()}
    assert {how for how, of in levels.items() if of == tomorrow} == {EACH_SEARCH}
