"""A NIC's clock against its host's: the true offset lies within the error, whatever the round trips."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.collectors.nic_clock import UNKNOWN_DRIFT, NicClock, Offset

S = 1_000_000_000
EPOCH = 1_700_000_000 * S


def readings(*rows: tuple[int, int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def test_the_quickest_round_trip_says_most() -> None:
    clock = NicClock()
    clock.take(readings((1000, 5, 9000), (2000, 1005, 2010), (3000, 2006, 9000)))
    found = clock.offset(1005, 1005)
    assert found == Offset(1000, 7)


def test_without_a_reading_nothing_is_known() -> None:
    clock = NicClock()
    assert clock.offset(0, S) is None
    clock.take(readings((10, 5, 9)))
    assert clock.offset(0, S) is None


@given(
    drift=st.floats(-5e-5, 5e-5),
    offset=st.integers(-EPOCH, EPOCH),
    trips=st.lists(st.lists(st.tuples(st.integers(0, 50_000), st.floats(0, 1)), min_size=1, max_size=4), min_size=1),
    poll=st.integers(-1, 40),
)
def test_the_true_offset_lies_within_the_error_all_over_a_poll(
    drift: float, offset: int, trips: list[list[tuple[int, float]]], poll: int
) -> None:
    clock = NicClock()
    for number, each in enumerate(trips):
        rows = []
        for ordinal, (trip, share) in enumerate(each):
            nic = EPOCH + number * S + ordinal * 100_000
            host = nic + offset + round(drift * (nic - EPOCH))
            rows.append((host - round(trip * share), nic, host - round(trip * share) + trip))
        clock.take(readings(*rows))
    begin = EPOCH + poll * S
    found = clock.offset(begin, begin + S)
    assert found is not None
    for at in (begin, begin + S // 2, begin + S):
        moved = drift * (at - EPOCH)  # floats would not hold the whole offset
        assert abs(found.host_minus_nic_ns - offset - moved) <= found.error_ns


def test_the_drift_is_told_and_narrows_the_error() -> None:
    clock = NicClock()
    errors = []
    for second in range(20):
        nic = EPOCH + second * S
        host = nic + 777 + second * 20_000
        clock.take(readings((host - 1000, nic, host + 1000)))
        found = clock.offset(nic, nic)
        assert found is not None
        errors.append(found.error_ns)
    assert clock.drift == pytest.approx(2e-5)
    ahead = clock.offset(EPOCH + 20 * S, EPOCH + 20 * S)
    assert ahead is not None
    assert ahead.host_minus_nic_ns == 777 + 20 * 20_000
    assert ahead.error_ns < UNKNOWN_DRIFT * S / 10


@pytest.mark.parametrize(("nic_moved", "host_moved"), [(0, 5 * S), (0, -5 * S), (3 * S, 0), (-60 * S, 0)])
def test_a_clock_that_was_set_begins_anew(nic_moved: int, host_moved: int) -> None:
    clock = NicClock()
    for second in range(5):
        clock.take(readings((EPOCH + second * S, second * S, EPOCH + second * S + 10)))
    nic = 5 * S + nic_moved
    host = EPOCH + 5 * S + host_moved
    clock.take(readings((host, nic, host + 10)))
    assert clock.offset(nic, nic) == Offset(host + 5 - nic, 7)
