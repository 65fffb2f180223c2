"""Positions of operators within iteration and communicator, and what is missing there."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diagnosis.positions import Positions, operator_positions

Ints = NDArray[np.int64]
CALLS = (5, 2, 1)
"""Operators an iteration on each communicator."""


def log(ranks: int = 2, iterations: int = 8, base: Sequence[int] = (3, 0, 7)) -> Ints:
    """Columns rank, communicator, seq, iteration, position; communicators begin with the sequence number ``base``."""
    rows = [
        (rank, communicator, base[communicator] + iteration * calls + position, iteration, position)
        for rank in range(ranks)
        for iteration in range(iterations)
        for communicator, calls in enumerate(CALLS)
        for position in range(calls)
    ]
    return np.array(rows, dtype=np.int64)


def positions(rows: Ints) -> Positions:
    return operator_positions(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3])


def test_positions_count_from_each_iterations_first() -> None:
    rows = log()
    found = positions(rows)
    assert (found.position == rows[:, 4]).all()
    assert not found.lost.any()


@given(lost=st.integers(0, 127))
def test_one_lost_line_shifts_nothing(lost: int) -> None:
    kept = np.delete(log(), lost, axis=0)
    assert (positions(kept).position == kept[:, 4]).all()


@given(lost=st.sets(st.integers(0, 127), max_size=60))
def test_positions_stay_within_their_iteration(lost: set[int]) -> None:
    kept = np.delete(log(), sorted(lost), axis=0)
    found = positions(kept)
    assert (found.position >= 0).all()
    assert (found.lost >= 0).all()
    for i in range(len(found.rank)):
        own = (kept[:, 0] == found.rank[i]) & (kept[:, 1] == found.communicator[i]) & (kept[:, 3] == found.iteration[i])
        assert (kept[own, 2] - found.position[own] == found.first_seq[i]).all()
        assert own.sum() + found.lost[i] >= found.position[own].max() + 1


def test_what_is_lost_is_counted_where_it_is_missing() -> None:
    rows = log(ranks=1)
    gone = (rows[:, 1] == 0) & np.isin(rows[:, 2], [3 + 5 * 2 + 4, 3 + 5 * 3, 3 + 5 * 5 + 2])
    found = positions(rows[~gone])
    lost = {
        (int(c), int(i)): int(n) for c, i, n in zip(found.communicator, found.iteration, found.lost, strict=True) if n
    }
    assert lost == {(0, 2): 1, (0, 3): 1, (0, 5): 1}


def test_a_missing_iteration_is_nobodys_loss() -> None:
    rows = log(ranks=1)
    found = positions(rows[rows[:, 3] != 4])
    assert not found.lost.any()
    assert (found.position == rows[rows[:, 3] != 4][:, 4]).all()


def test_a_log_that_begins_within_an_iteration_keeps_its_positions() -> None:
    rows = log(ranks=1)[3:]
    assert (positions(rows).position == rows[:, 4]).all()


def test_without_sequence_numbers_rows_are_counted() -> None:
    rows = log()
    rows[rows[:, 1] == 1, 2] = -1
    found = positions(rows)
    assert (found.position == rows[:, 4]).all()
    assert (found.first_seq[found.communicator == 1] == -1).all()


def test_no_rows_have_no_positions() -> None:
    assert len(positions(np.zeros((0, 5), dtype=np.int64)).position) == 0
