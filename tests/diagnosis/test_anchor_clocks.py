"""Clocks that are iterations apart, told by when two ranks passed their anchors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diagnosis.anchor_clocks import far_ahead

Ints = NDArray[np.int64]
SECOND = 1_000_000_000


def passed(seed: int, scatter: float = 0.03) -> Ints:
    lengths = np.random.default_rng(seed).normal(1.0, scatter, 40)
    return ((1_700_000_000 + np.cumsum(lengths)) * SECOND).astype(np.int64)


def as_seen(by: Ints, seed: int, ahead_s: float, lost: set[int]) -> Ints:
    """By another rank's clock, and as it went on itself, without some anchors."""
    jitter = np.random.default_rng(seed + 1).normal(0, 0.002, len(by))
    kept = [i for i in range(len(by)) if i not in lost]
    return (by + (ahead_s + jitter) * SECOND).astype(np.int64)[kept]


@given(
    seed=st.integers(0, 1000),
    ahead_s=st.floats(0.8, 6.0) | st.floats(-6.0, -0.8),
    lost=st.sets(st.integers(15, 25), max_size=3),
)
def test_clocks_seconds_apart_are_told(seed: int, ahead_s: float, lost: set[int]) -> None:
    here = passed(seed)
    found = far_ahead(here, as_seen(here, seed, ahead_s, lost))
    assert found.ns == pytest.approx(ahead_s * SECOND, abs=SECOND / 20)
    assert found.doubt < 0.5


@given(seed=st.integers(0, 1000), ahead_s=st.floats(-0.3, 0.3), lost=st.sets(st.integers(0, 39), max_size=4))
def test_clocks_less_than_half_an_iteration_apart_are_left_alone(seed: int, ahead_s: float, lost: set[int]) -> None:
    here = passed(seed)
    assert far_ahead(here, as_seen(here, seed, ahead_s, lost)).ns == 0
    assert far_ahead(as_seen(here, seed, ahead_s, lost), here).ns == 0


@pytest.mark.parametrize(("scatter", "count"), [(0.0, 40), (0.03, 7)], ids=["all alike", "too few"])
def test_where_nothing_tells_they_are_left_alone(scatter: float, count: int) -> None:
    here = passed(1, scatter)[:count]
    found = far_ahead(here, here + 3 * SECOND)
    assert found.ns == 0
    assert found.doubt == 1.0 if count < 8 else found.doubt <= 1.0
