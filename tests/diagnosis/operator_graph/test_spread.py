"""How much sums vary: their standard deviation, but no steadier than what is typical."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.operator_graph.spread import Spreads, spreads

BASELINE = (3, 4, 5, 7)


def of_sums(sums: dict[tuple[int, int], list[float]], usual: float = 100.0) -> Spreads:
    """Of ranks and groups with an excess in each iteration of the baseline, in two operators of ``usual`` ns."""
    rows = [
        (rank, group, iteration, usual, amount / 2)
        for (rank, group), amounts in sums.items()
        for iteration, amount in zip(BASELINE, amounts, strict=True)
        for _ in range(2)
    ]
    rank, group, iteration = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    values, excess = (np.array([row[i] for row in rows], dtype=np.float64) for i in (3, 4))
    return spreads(rank, group, iteration, values, excess, BASELINE, np.ones(len(rank), dtype=np.bool_))


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4))
def test_alone_it_is_the_standard_deviation(amounts: list[float]) -> None:
    assert of_sums({(0, 2): amounts})[0, 2] == pytest.approx(np.std(amounts, ddof=1), abs=1e-6)


def test_what_looks_steady_is_as_unsteady_as_its_like() -> None:
    told = of_sums({(0, 1): [5, 5, 5, 5], (1, 1): [0, 10, 0, 10], (2, 1): [0, 40, 0, 40], (3, 1): [0, 10, 0, 10]})
    typical = float(np.std([0, 10, 0, 10], ddof=1))
    assert told[0, 1] == told[1, 1] == told[3, 1] == pytest.approx(typical)
    assert told[2, 1] == pytest.approx(4 * typical)


def test_what_is_typical_goes_by_size() -> None:
    rank = np.repeat([0, 1, 2], 4)
    values = np.repeat([1000.0, 10.0, 10.0], 4)
    excess = np.array([0, 0, 0, 0, -1, 1, -1, 1, -1, 1, -1, 1], dtype=np.float64)
    iteration = np.tile(np.array(BASELINE), 3)
    told = spreads(rank, rank * 0, iteration, values, excess, BASELINE, np.ones(12, dtype=np.bool_))
    assert told[0, 0] == pytest.approx(100 * told[1, 0])


def test_unknown_values_and_other_iterations_do_not_count() -> None:
    rank = np.zeros(6, dtype=np.int64)
    iteration = np.array([3, 4, 5, 7, 7, 9])
    excess = np.array([1, 2, 1, 2, np.nan, 1e9])
    told = spreads(rank, rank, iteration, np.full(6, 1.0), excess, BASELINE, np.ones(6, dtype=np.bool_))
    assert told[0, 0] == pytest.approx(np.std([1, 2, 1, 2], ddof=1))


def test_iterations_of_which_nothing_is_known_are_not_taken_for_usual_ones() -> None:
    rank = np.zeros(8, dtype=np.int64)
    iteration = np.repeat(np.array(BASELINE), 2)
    excess = np.array([1, 1, np.nan, np.nan, 5, 5, np.nan, np.nan])
    told = spreads(rank, rank, iteration, np.full(8, 50.0), excess, BASELINE, np.ones(8, dtype=np.bool_))
    assert told[0, 0] == pytest.approx(np.std([2, 10], ddof=1))


def test_one_iteration_tells_of_no_spread() -> None:
    one = np.zeros(1, dtype=np.int64)
    assert spreads(one, one, one + 3, np.ones(1), np.ones(1), (3,), np.ones(1, dtype=np.bool_)) == {}
    assert spreads(one, one, one + 3, np.ones(1), np.ones(1), (3, 4), np.ones(1, dtype=np.bool_)) == {}
