"""Figures of training that follow from what communicators serve."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic.figures import communicating_ns, microbatch_ns


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), max_size=12))
def test_time_that_operators_run_together_counts_once(operators: list[tuple[int, int]]) -> None:
    start = np.array([at for at, _ in operators], dtype=np.int64)
    end = np.array([at + length for at, length in operators], dtype=np.int64)
    moments = {moment for at, length in operators for moment in range(at, at + length)}
    assert communicating_ns(start, end) == len(moments)


def test_a_microbatch_takes_as_long_as_passes_between_sends_in_one_direction() -> None:
    forward, backward = np.arange(6) * 30 + 10, np.arange(6) * 30 + 25
    peer = np.repeat([8, 0], 6)
    assert microbatch_ns(np.concatenate((forward, backward)), peer) == 30
    assert microbatch_ns(np.array([5, 9]), np.array([8, 0])) is None
    assert microbatch_ns(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)) is None
