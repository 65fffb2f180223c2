"""By how much more is sent than is expected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.traffic.bursts import Bursts, find_bursts
from diagnosis.traffic.inflation import large_inflation
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.transfers import Transfers
from tests.diagnosis.traffic.made_epochs import MB, MS, Sent, port, queue_pairs

PEER = 8
APART = 40 * MS


def told(sent: list[Sent], transfers: list[tuple[int, int]]) -> float:
    """Of ``transfers`` (when they were called, bytes) to one peer."""
    own: Ports = port(sent)
    bursts: Bursts = find_bursts(own, queue_pairs((1, 0, PEER)).distinct(own.clock_error_ns), MS)
    called, expected = np.array(transfers, dtype=np.int64).reshape(-1, 2).T
    count = len(called)
    of = Transfers(
        np.arange(count), np.zeros(count, dtype=np.int64), np.full(count, PEER, dtype=np.int64), expected, called
    )
    return float(large_inflation(bursts, of, 2)[0])


@settings(max_examples=40)
@given(
    inflation=st.floats(1.0, 1.2),
    groups=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=3), min_size=2, max_size=6),
    unsent=st.integers(0, 5),
)
def test_operators_back_to_back_tell_whatever_is_not_sent_yet(
    inflation: float, groups: list[list[int]], unsent: int
) -> None:
    sent, called = [], []
    at = APART
    for sizes in groups:
        called += [(at - 100_000, size * MB) for size in sizes]
        sent.append(Sent(1, at, math.ceil(sum(sizes) * MB * inflation)))
        at += APART
    called += [(at, 20 * MB)] * unsent
    assert told(sent, called) == pytest.approx(inflation, rel=0.005)


def test_what_a_late_receiver_holds_up_goes_on_in_the_next_burst() -> None:
    sent, called = [], []
    for i in range(4):
        at = (1 + i) * APART
        sent += [Sent(1, at, round(4 * 1.02 * MB)), Sent(1, at + 5 * MS, round(46 * 1.02 * MB))]
        called += [(at - 100_000, 30 * MB), (at + 4 * MS, 20 * MB)]
    assert told(sent, called) == pytest.approx(1.02, rel=0.002)


def test_nothing_tells_where_all_is_small_or_not_what_was_called() -> None:
    assert math.isnan(told([Sent(1, APART, 100_000)], [(APART - 100_000, 90_000)]))
    assert math.isnan(told([Sent(1, APART, 30 * MB)], [(APART - 100_000, 10 * MB)])), "calls were lost"
    assert math.isnan(told([Sent(1, APART, MB)], [(APART - 100_000, 10 * MB)])), "it goes on"
    assert math.isnan(told([], [(APART, 10 * MB)]))


def test_what_the_aggregation_withholds_is_no_reason_to_expect_less() -> None:
    assert told([Sent(1, APART, 10 * MB - 2 * 4096)], [(APART - 100_000, 10 * MB)]) == 1.0
