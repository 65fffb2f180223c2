"""What every detector of abnormal operators does, whatever it is made of."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis.irregularity import baselines
from diagnosis.irregularity.features import AS_PUBLISHED, EVERY, SCALE_FREE, matrix
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.operator_detector import LEAST_SAMPLES, OperatorDetector, SigmaDetector
from tests.diagnosis.irregularity.drawn_samples import drawn, f1

TRAINED: dict[str, OperatorDetector] = {
    "forest": ForestDetector(),
    "forest, entropy": ForestDetector(ForestSettings(criterion="entropy")),
    "forest, as published": ForestDetector(ForestSettings(features=AS_PUBLISHED)),
    "forest, every feature": ForestDetector(ForestSettings(features=EVERY)),
    "knn": baselines.knn(SCALE_FREE),
    "knn_pca": baselines.knn_pca(SCALE_FREE),
    "svm": baselines.svm(SCALE_FREE),
}
DETECTORS = {**TRAINED, "1 sigma": SigmaDetector(1.0), "3 sigma": SigmaDetector()}

every = pytest.mark.parametrize("detector", DETECTORS.values(), ids=DETECTORS)
trained = pytest.mark.parametrize("detector", TRAINED.values(), ids=TRAINED)


@every
def test_it_tells_abnormal_operators_that_it_never_saw(detector: OperatorDetector) -> None:
    fitted = detector.fit(*drawn())
    samples, abnormal = drawn(seed=2)
    said = fitted.predict(samples)
    assert said.shape == abnormal.shape
    assert said.dtype == np.bool_
    assert f1(abnormal, said) > (0.3 if isinstance(detector, SigmaDetector) else 0.8)


@every
def test_what_is_not_known_is_never_abnormal(detector: OperatorDetector) -> None:
    fitted = detector.fit(*drawn())
    samples, abnormal = drawn(seed=3)
    without_duration = replace(samples, duration_ns=np.full(len(samples), np.nan))
    seldom = replace(samples, count=np.full(len(samples), LEAST_SAMPLES - 1))
    assert fitted.predict(samples)[abnormal].any()
    assert not fitted.predict(without_duration).any()
    assert not fitted.predict(seldom).any()


@trained
def test_an_iteration_of_unknown_length_blames_no_operator(detector: OperatorDetector) -> None:
    samples, _ = drawn(seed=3)
    unknown = np.full(len(samples), np.nan)
    nothing = replace(samples, iteration_ns=unknown, usual_iteration_ns=unknown)
    assert not detector.fit(*drawn()).predict(nothing).any()


@every
def test_operators_are_judged_one_by_one(detector: OperatorDetector) -> None:
    fitted = detector.fit(*drawn())
    samples, _ = drawn(200, seed=4)
    order = np.random.default_rng(5).permutation(len(samples))[:50]
    assert fitted.predict(samples.take(order)).tolist() == fitted.predict(samples)[order].tolist()
    assert len(fitted.predict(samples.take(order[:0]))) == 0


@every
def test_fitting_twice_gives_the_same(detector: OperatorDetector) -> None:
    samples, _ = drawn(seed=6)
    once, again = (detector.fit(*drawn()).predict(samples) for _ in range(2))
    assert once.tolist() == again.tolist()


@trained
def test_labels_of_one_kind_teach_nothing(detector: OperatorDetector) -> None:
    samples, abnormal = drawn(100)
    for label in (False, True):
        with pytest.raises(ValueError, match="learns from both"):
            detector.fit(samples, np.full_like(abnormal, label))
    with pytest.raises(ValueError, match=r"100 operators have labels of shape \(99,\)"):
        detector.fit(samples, abnormal[1:])


@trained
def test_what_was_not_fitted_says_so(detector: OperatorDetector) -> None:
    with pytest.raises(ValueError, match="was not fitted"):
        detector.predict(drawn(10)[0])


@pytest.mark.parametrize("name", ["forest", "knn", "svm"])
def test_the_ratio_is_not_what_counts(name: str) -> None:
    """Holmes 4.2.2: of an iteration's 2 s, 0.02 ms become 1 ms and 1000 ms become 3000 ms; the latter is abnormal.

    Beyond three standard deviations both are.
    """
    samples, _ = drawn(2)
    ms = 1e6
    usual = np.array([0.02, 1000.0]) * ms
    both = replace(
        samples,
        duration_ns=np.array([1.0, 3000.0]) * ms,
        mean=usual,
        std=0.05 * usual,
        q1=0.97 * usual,
        q2=usual,
        q3=1.03 * usual,
        iteration_ns=np.array([9e9, 9e9]),
        usual_iteration_ns=np.array([7e9, 7e9]),
    )
    detector: Any = DETECTORS[name]
    assert detector.fit(*drawn()).predict(both).tolist() == [False, True]
    assert SigmaDetector().predict(both).tolist() == [True, True]


def test_the_published_features_are_the_papers_list_with_the_rank() -> None:
    """Holmes 4.2.2: mean and deviation, z-score, quartiles, IQR, rank, size, pattern; by its text both durations."""
    of_window = {"mean", "std", "z_score", "q1", "q2", "q3", "iqr"}
    assert set(AS_PUBLISHED) == {"elapsed", "iteration", *of_window, "rank", "size", "pattern"}
    assert "rank" not in SCALE_FREE
    samples, _ = drawn(200)
    assert matrix(samples, ("rank",))[:, 0].tolist() == samples.rank.tolist()
