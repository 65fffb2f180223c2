"""Drift, and the tuning against it."""

from dataclasses import replace

import numpy as np
import pytest

from diagnosis.irregularity.drift import STATISTICS, Levels, Statistic
from diagnosis.irregularity.features import AS_PUBLISHED, IN_NS, SCALE_FREE, matrix
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.operator_detector import SigmaDetector
from diagnosis.irregularity.tuning import tuned_to
from diagnosis.irregularity.window import WindowStatistics
from tests.diagnosis.irregularity.drawn_samples import drawn


def fitted(features: tuple[str, ...]) -> ForestDetector:
    samples, abnormal = drawn()
    return replace(ForestDetector(ForestSettings(features=features)).fit(samples, abnormal), levels=Levels.of(samples))


def test_levels_are_of_each_feature_in_ns() -> None:
    samples, _ = drawn(500)
    levels, features = Levels.of(samples), matrix(samples, IN_NS).astype(float)
    for statistic, expected in (
        ("mean", features.mean(axis=0)),
        ("p75", np.percentile(features, 75, axis=0)),
        ("p99", np.percentile(features, 99, axis=0)),
    ):
        assert list(getattr(levels, statistic).values()) == pytest.approx(expected.tolist())


@pytest.mark.parametrize("statistic", STATISTICS)
def test_every_threshold_of_a_feature_moves_by_the_features_shift(statistic: Statistic) -> None:
    forest = fitted(AS_PUBLISHED)
    assert forest.levels is not None
    assert forest.trees is not None
    now = Levels.of(drawn(scale=1.06)[0])
    tuned = forest.tuned(now, statistic)
    assert tuned.trees is not None
    moved = tuned.trees.threshold - forest.trees.threshold
    shift = now.shift_since(forest.levels, statistic)
    assert shift["iteration_mean"] == pytest.approx(0.06 * 7e9, rel=1e-6)
    for at, name in enumerate(AS_PUBLISHED):
        of_feature = moved[forest.trees.feature == at]
        assert of_feature.tolist() == pytest.approx([shift.get(name, 0.0)] * len(of_feature), abs=1e-3)
    assert tuned.levels == now


def test_scale_free_features_need_no_tuning() -> None:
    forest, (now, _) = fitted(SCALE_FREE), drawn(seed=2, scale=1.07)
    then, _ = drawn(seed=2)
    assert np.abs(forest.probability(now) - forest.probability(then)).max() < 0.2
    assert (forest.predict(now) != forest.predict(then)).mean() < 0.002
    assert forest.tuned(Levels.of(now)).predict(now).tolist() == forest.predict(now).tolist()


def test_levels_of_what_is_usual_need_no_samples() -> None:
    ints, durations = np.array([0, 0, 1, 1]), np.array([1e6, 3e6, 5e6, 9e6])
    usual = WindowStatistics.of(ints, ints, ints, durations, ("a", "b"))
    levels = Levels.of_usual(usual, 8e9)
    assert levels.mean["mean"] == levels.mean["elapsed"] == pytest.approx(4.5e6)
    assert levels.mean["iqr"] == pytest.approx(1.5e6)
    assert levels.p99["iteration"] == levels.mean["iteration_mean"] == 8e9
    for nothing, iteration_ns in ((usual.take(usual.rank == 5), 8e9), (usual, np.nan)):
        with pytest.raises(ValueError, match="neither operators nor iterations have a usual duration"):
            Levels.of_usual(nothing, iteration_ns)


def test_tunings_week_by_week_end_where_one_tuning_ends() -> None:
    forest = fitted(AS_PUBLISHED)
    halfway, now = (Levels.of(drawn(scale=scale)[0]) for scale in (1.03, 1.07))
    by_weeks, at_once = forest.tuned(halfway).tuned(now), forest.tuned(now)
    assert by_weeks.trees is not None
    assert at_once.trees is not None
    assert by_weeks.trees.threshold.tolist() == pytest.approx(at_once.trees.threshold.tolist())


def test_where_nothing_is_usual_nothing_is_tuned() -> None:
    forest = fitted(AS_PUBLISHED)
    assert tuned_to(forest, WindowStatistics.empty(), 8e9) is forest
    ints = np.zeros(1, dtype=np.int64)
    usual = WindowStatistics.of(ints, ints, ints, np.array([1e6]), ("a",))
    assert tuned_to(forest, usual, np.nan) is forest
    for detector in (fitted(SCALE_FREE), SigmaDetector()):
        assert tuned_to(detector, usual, 8e9) is detector
    assert tuned_to(forest, usual, 8e9) is not forest


def test_what_cannot_be_tuned_says_so() -> None:
    now = Levels.of(drawn(50)[0])
    for forest in (ForestDetector(), replace(fitted(SCALE_FREE), levels=None)):
        with pytest.raises(ValueError, match="it carries none"):
            forest.tuned(now)
    samples, _ = drawn(50)
    with pytest.raises(ValueError, match="none of the operators has a duration"):
        Levels.of(replace(samples, duration_ns=np.full(50, np.nan)))
