"""The irregularity rate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.ranking.irregularity_rate import irregularity_rate, rate_told

series = st.lists(st.integers(-(10**9), 10**9), min_size=3, max_size=20)


def test_an_operator_that_moves_with_the_iteration_explains_it() -> None:
    assert irregularity_rate([1, 2, 3, 9], [10, 20, 30, 90]) == pytest.approx(1.0)
    assert irregularity_rate([1, 5, 1, 5], [10, 10, 20, 20]) == pytest.approx(0.0)
    assert 0.3 < irregularity_rate([1, 5, 1, 5, 9], [10, 10, 20, 20, 40]) < 1.0


@pytest.mark.parametrize(
    ("operator", "iteration"),
    [
        ([3, 2, 1], [1, 2, 3]),
        ([0.1] * 3, [0.1] * 3),
        ([0.1] * 7, [0.7] * 7),
        ([5, 5, 5], [1, 2, 3]),
        ([1, 2, 3], [5, 5, 5]),
        ([1, 2], [1, 2]),
        ([], []),
        ([1, np.nan, 3, np.inf], [1, 2, 3, 4]),
    ],
    ids=["negative", "constant", "other constants", "operator", "iteration", "short", "empty", "unknown"],
)
def test_what_explains_nothing_is_zero(operator: list[float], iteration: list[float]) -> None:
    assert irregularity_rate(operator, iteration) == 0.0


def test_unknown_values_are_left_out() -> None:
    assert irregularity_rate([1, np.nan, 2, 3, 9], [10, 5, 20, 30, np.nan]) == pytest.approx(1.0)


def test_series_must_be_of_one_length() -> None:
    with pytest.raises(ValueError, match=r"not \(3,\) and \(2,\)"):
        irregularity_rate([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="two series of one length"):
        irregularity_rate([[1, 2, 3]], [[1, 2, 3]])


@given(series, st.data())
def test_it_is_the_positive_part_of_the_correlation(operator: list[int], data: st.DataObject) -> None:
    iteration = data.draw(st.lists(st.integers(-(10**9), 10**9), min_size=len(operator), max_size=len(operator)))
    rate = irregularity_rate(operator, iteration)
    if len(set(operator)) > 1 and len(set(iteration)) > 1:
        assert rate == pytest.approx(max(0.0, float(np.corrcoef(operator, iteration)[0, 1])), abs=1e-9)
    else:
        assert rate == 0.0
    assert 0.0 <= rate <= 1.0
    assert irregularity_rate(iteration, operator) == pytest.approx(rate)
    assert irregularity_rate([3 * x + 7 for x in operator], iteration) == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize(
    ("operator", "iteration", "stored", "told"),
    [
        ([1, 2, 9], [10, 20, 90], 0.1, 1.0),
        ([5, 5, 5], [10, 20, 90], 0.9, 0.0),
        ([1, None, 2, 9], [10, 15, 20, 90], 0.1, 1.0),
        ([1, 2], [10, 20], 0.9, 0.0),
        ([], [], 0.9, 0.9),
        ([1, 2, 9], [10, 20], 0.9, 0.9),
        ([], [], None, 0.0),
        ([], [], float("nan"), 0.0),
        ([], [], float("inf"), 0.0),
        ([], [], -0.4, 0.0),
        ([], [], 1.5, 1.0),
    ],
)
def test_series_decide_and_the_stored_rate_stands_in_for_them(
    operator: list[float | None], iteration: list[float | None], stored: float | None, told: float
) -> None:
    assert rate_told(operator, iteration, stored) == pytest.approx(told)
