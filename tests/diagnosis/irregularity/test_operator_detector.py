"""The simplest detector: an operator's own mean and standard deviation."""

from hypothesis import given
from hypothesis import strategies as st

from diagnosis.irregularity.operator_detector import LEAST_SAMPLES, OperatorDetector, SigmaDetector
from tests.diagnosis.irregularity.made_samples import NAN, samples

ABOUT_TEN = [8.0, 10.0, 12.0]


def test_beyond_three_standard_deviations_is_abnormal() -> None:
    detector: OperatorDetector = SigmaDetector()
    assert detector.predict(samples([ABOUT_TEN] * 3, [16.0, 16.1, 1.0])).tolist() == [False, True, False]


def test_the_appendix_calls_one_standard_deviation_its_rule() -> None:
    assert SigmaDetector(sigmas=1.0).predict(samples([ABOUT_TEN] * 2, [12.1, 12.0])).tolist() == [True, False]


def test_lost_lines_are_left_out_of_what_is_usual() -> None:
    with_gaps = [8.0, NAN, 10.0, 12.0, NAN]
    assert SigmaDetector().predict(samples([with_gaps] * 2, [16.1, 16.0])).tolist() == [True, False]


def test_what_was_seldom_seen_or_not_seen_now_is_never_abnormal() -> None:
    seldom = [1.0] * (LEAST_SAMPLES - 1) + [NAN]
    made = samples([seldom, [NAN] * LEAST_SAMPLES, [1.0] * LEAST_SAMPLES], [1e12, 1e12, NAN])
    assert SigmaDetector().predict(made).tolist() == [False, False, False]


def test_operators_of_every_length_are_judged_by_their_own_series() -> None:
    """The ratio alone says little: 0.02 to 1 ms and 1000 to 3000 ms are both abnormal here, 1000 to 1001 ms is not."""
    short, long_ = [0.019, 0.02, 0.021] * 4, [990.0, 1000.0, 1010.0] * 4
    made = samples([short, long_, long_], [1.0, 3000.0, 1001.0])
    assert SigmaDetector().predict(made).tolist() == [True, True, False]


@given(st.integers(0, 2**40), st.integers(LEAST_SAMPLES, 40))
def test_an_operator_that_never_varies_is_normal_at_its_usual_duration(duration: int, count: int) -> None:
    assert not SigmaDetector().predict(samples([[float(duration)] * count], [float(duration)]))[0]
