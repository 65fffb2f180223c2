"""Time goes on steadily, whatever becomes of the wall clock."""

import time

from streams.steady_clock import SteadyClock


def test_it_begins_with_the_wall_clock_and_goes_on_without_it() -> None:
    wall, passed = [1_000], [7]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    assert clock() == 1_000
    wall[0], passed[0] = 9_000_000, 17
    assert clock() == 1_010
    wall[0] = 0
    assert clock() == 1_010


def test_it_tells_the_time_of_day() -> None:
    before = time.time_ns()
    assert before - 10**9 < SteadyClock()() < time.time_ns() + 10**9
