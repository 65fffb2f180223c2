"""A forest that is tuned once in an interval while its job drifts."""

from __future__ import annotations

from dataclasses import replace

from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.features import AS_PUBLISHED
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.tuning import WEEK_NS, TunedForest, TuningSettings
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
