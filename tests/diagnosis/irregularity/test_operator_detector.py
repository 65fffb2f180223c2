"""The simplest detector: an operator's own mean and standard deviation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from diagnosis.irregularity.operator_detector import LEAST_SAMPLES, OperatorDetector, SigmaDetector

NAN = np.nan


def history(*series: list[float]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array(series, dtype=np.float64).T


def test_beyond_three_standard_deviations_is_abnormal() -> None:
    detector: OperatorDetector = SigmaDetector()
    fitted = detector.fit(history([8.0, 10.0, 12.0], [8.0, 10.0, 12.0], [8.0, 10.0, 12.0]))
    assert fitted.predict(np.array([16.0, 16.1, 1.0])).tolist() == [False, True, False]


def test_the_appendix_calls_one_standard_deviation_its_rule() -> None:
    fitted = SigmaDetector(sigmas=1.0).fit(history([8.0, 10.0, 12.0]))
    assert fitted.predict(np.array([12.1])).tolist() == [True]
    assert fitted.predict(np.array([12.0])).tolist() == [False]


def test_lost_lines_are_left_out_of_what_is_usual() -> None:
    fitted = SigmaDetector().fit(history([8.0, NAN, 10.0, 12.0, NAN]))
    assert fitted.predict(np.array([16.1])).tolist() == [True]
    assert fitted.predict(np.array([16.0])).tolist() == [False]


def test_what_was_seldom_seen_or_not_seen_now_is_never_abnormal() -> None:
    seldom = [1.0] * (LEAST_SAMPLES - 1) + [NAN]
    fitted = SigmaDetector().fit(history(seldom, [NAN] * LEAST_SAMPLES, [1.0] * LEAST_SAMPLES))
    assert fitted.predict(np.array([1e12, 1e12, NAN])).tolist() == [False, False, False]


def test_operators_of_every_length_are_judged_by_their_own_series() -> None:
    """The ratio alone says little: 0.02 to 1 ms and 1000 to 3000 ms are both abnormal here, 1000 to 1001 ms is not."""
    short, long_ = [0.019, 0.02, 0.021] * 4, [990.0, 1000.0, 1010.0] * 4
    fitted = SigmaDetector().fit(history(short, long_, long_))
    assert fitted.predict(np.array([1.0, 3000.0, 1001.0])).tolist() == [True, True, False]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"history has shape \(iterations, operators\), not \(3,\)"):
        SigmaDetector().fit(np.zeros(3))
    with pytest.raises(ValueError, match="2 operators were learned, 3 are asked about"):
        SigmaDetector().fit(np.zeros((4, 2))).predict(np.zeros(3))


@given(st.integers(0, 2**52), st.integers(LEAST_SAMPLES, 40))
def test_an_operator_that_never_varies_is_normal_at_its_usual_duration(duration: int, count: int) -> None:
    fitted = SigmaDetector().fit(np.full((count, 1), float(duration)))
    assert not fitted.predict(np.array([float(duration)]))[0]


_durations = st.integers(0, 10**12).map(float)


@given(npst.arrays(np.float64, (6, 3), elements=_durations), st.integers(1, 1000), st.permutations([0, 1, 2]))
def test_order_and_unit_do_not_matter(past: np.ndarray, scale: int, order: list[int]) -> None:
    now = past.max(axis=0) * 2 + 1
    verdict = SigmaDetector().fit(past).predict(now)
    assert SigmaDetector().fit(past[:, order]).predict(now[order]).tolist() == verdict[order].tolist()
    assert SigmaDetector().fit(past[::-1] * 2**10).predict(now * 2**10).tolist() == verdict.tolist()
