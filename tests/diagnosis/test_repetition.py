"""After how many elements a sequence repeats itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.repetition import WINDOW, period


@pytest.mark.parametrize(
    ("once", "times", "expected"),
    [
        ("a", 3, 1),
        ("ab", 10, 2),
        ("aabb", 10, 4),
        ("abababac", 8, 8),
        ("abc" * 31 + "abd", 20, 96),
        ("ab", 2, None),
        ("abcdefgh", 2, None),
    ],
)
def test_the_shortest_repetition_counts(once: str, times: int, expected: int | None) -> None:
    assert period(np.array([ord(c) for c in once * times])) == expected


def test_what_does_not_repeat_has_no_period() -> None:
    assert period(np.arange(100)) is None
    assert period(np.zeros(0, dtype=np.int64)) is None
    assert period(np.full(50, -1)) is None


def test_a_long_sequence_is_read_from_its_middle() -> None:
    assert period(np.concatenate([np.arange(1000) + 10, np.tile([1, 2, 2], WINDOW)])) == 3


@given(
    once=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    times=st.integers(8, 20),
    lost=st.sets(st.integers(0, 60), max_size=6),
    warm_up=st.integers(0, 4),
)
def test_lost_elements_and_warm_up_do_not_hide_it(once: list[int], times: int, lost: set[int], warm_up: int) -> None:
    shortest = next(p for p in range(1, len(once) + 1) if len(once) % p == 0 and once == once[:p] * (len(once) // p))
    tokens = np.array([9] * min(warm_up, len(once)) + [0, *once, 1, 2] * times)
    tokens[[i for i in lost if i < len(tokens)]] = -1
    whole = [0, *once, 1, 2]
    shortest = next(
        p for p in range(1, len(whole) + 1) if len(whole) % p == 0 and whole == whole[:p] * (len(whole) // p)
    )
    assert period(tokens) == shortest
