"""Statistics that outliers do not move."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.robust import of_most, running_median


@pytest.mark.parametrize(
    ("amounts", "most"),
    [([7.0], 7.0), ([0.0, 8.0], 0.0), ([8.0, 0.0, 8.0], 0.0), ([0.0, 8.0, 9.0, 8.0], 8.0)],
)
def test_of_fewer_than_four_it_is_the_least(amounts: list[float], most: float) -> None:
    assert of_most(amounts) == most


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_it_is_the_greatest_that_three_in_four_reach(amounts: list[float]) -> None:
    def reach(bound: float) -> float:
        return sum(amount >= bound for amount in amounts) / len(amounts)

    most = of_most(amounts)
    assert reach(most) >= 0.75
    assert all(reach(amount) < 0.75 for amount in amounts if amount > most)


@pytest.mark.parametrize(
    ("values", "medians"),
    [
        ([1, 1, 9, 1, 1, 1, 1], [1] * 7),  # what differs once
        ([1, 1, 1, 1, 9, 9, 9, 9], [1, 1, 1, 1, 9, 9, 9, 9]),  # what lasts
        ([np.nan, 1, 1, np.nan, 9, 9, 9], [1, 1, 1, 5, 9, 9, 9]),
        ([5, 1, 9], [5, 1, 9]),  # too few
    ],
)
def test_a_running_median_keeps_what_lasts(values: list[float], medians: list[float]) -> None:
    assert running_median(np.array(values, dtype=np.float64), 5).tolist() == medians
