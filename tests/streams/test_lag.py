"""How far behind, told without reading what waits: an upper bound once anything was processed or nothing waited."""

from streams.health import Position
from streams.lag import Lag, Lags
from streams.share import Reached

ONE, TWO = ("numbers", 0), ("numbers", 1)


def reached(following: int, at_s: float) -> Reached:
    return Reached(first=0, following=following, at_ns=round(at_s * 1e9))


def test_nothing_waits() -> None:
    assert Lags().looked({ONE: Position(5, 5, 5)}, {ONE: reached(5, 900.0)}, 1000.0) == {"numbers": Lag(0, 0.0, 0)}


def test_a_backlog_is_as_old_as_the_last_processed_message() -> None:
    lags = Lags()
    assert lags.looked({ONE: Position(500, 5, 3)}, {ONE: reached(5, 400.0)}, 1000.0)["numbers"] == Lag(495, 600.0, 2)
    assert lags.looked({ONE: Position(500, 80, 80)}, {ONE: reached(80, 700.0)}, 1005.0)["numbers"].seconds == 305.0


def test_a_message_after_a_long_silence_has_not_waited_all_the_time() -> None:
    lags = Lags()
    lags.looked({ONE: Position(5, 5, 5)}, {ONE: reached(5, 100.0)}, 3000.0)
    assert lags.looked({ONE: Position(6, 5, 5)}, {ONE: reached(5, 100.0)}, 3005.0)["numbers"].seconds == 5.0
    assert lags.looked({ONE: Position(6, 5, 5)}, {ONE: reached(5, 100.0)}, 3010.0)["numbers"].seconds == 10.0


def test_before_anything_was_processed_it_waits_since_the_first_look() -> None:
    lags = Lags()
    assert lags.looked({ONE: Position(9, 2, 2)}, {}, 1000.0)["numbers"] == Lag(7, 0.0, 0)
    assert lags.looked({ONE: Position(9, 2, 2)}, {}, 1060.0)["numbers"].seconds == 60.0


def test_the_partition_that_is_furthest_behind_counts() -> None:
    lags = Lags()
    at = {ONE: Position(9, 2, 2), TWO: Position(9, 8, 6)}
    how_far = {ONE: reached(2, 990.0), TWO: reached(8, 999.0)}
    assert lags.looked(at, how_far, 1000.0) == {"numbers": Lag(8, 10.0, 2)}


def test_an_assignment_that_comes_back_is_looked_at_anew() -> None:
    lags = Lags()
    lags.looked({ONE: Position(5, 5, 5)}, {}, 1000.0)
    lags.looked({}, {}, 1010.0)
    assert lags.looked({ONE: Position(9, 5, 5)}, {}, 2000.0)["numbers"].seconds == 0.0


def test_a_clock_behind_the_broker_s_gives_no_negative_lag() -> None:
    assert Lags().looked({ONE: Position(9, 5, 5)}, {ONE: reached(5, 1001.0)}, 1000.0)["numbers"].seconds == 0.0
