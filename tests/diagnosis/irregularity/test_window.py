"""The statistics of an operator's durations over a window."""

from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operators import UNKNOWN

NAMES = ("dp", "tp")


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def floats(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)


def three_operators() -> WindowStatistics:
    """Rank 4: dp 0 (1, 2, 4 ns), tp 0 (7 ns); rank 2: tp 1 (3, 3 ns)."""
    return WindowStatistics.of(
        rank=ints(4, 2, 4, 4, 2, 4),
        communicator=ints(0, 1, 1, 0, 1, 0),
        position=ints(0, 1, 0, 0, 1, 0),
        duration_ns=floats(4, 3, 7, 1, 3, 2),
        communicators=NAMES,
    )


def test_statistics_are_of_an_operators_own_durations() -> None:
    found = three_operators()
    assert found.rank.tolist() == [2, 4, 4]
    assert [found.communicators[code] for code in found.communicator] == ["tp", "dp", "tp"]
    assert found.position.tolist() == [1, 0, 0]
    assert found.count.tolist() == [2, 3, 1]
    assert np.allclose(found.mean, [3, 7 / 3, 7])
    assert np.allclose(found.std, floats(0, np.sqrt(7 / 3), 0))


@given(npst.arrays(np.float64, st.integers(1, 30), elements=st.integers(0, 10**12).map(float)))
def test_mean_deviation_and_quartiles_are_numpys(durations: np.ndarray) -> None:
    ones = np.ones(len(durations), dtype=np.int64)
    found = WindowStatistics.of(ones, ones, ones, durations, NAMES)
    quartiles = np.quantile(durations, [0.25, 0.5, 0.75])
    assert np.allclose([found.q1[0], found.q2[0], found.q3[0]], quartiles, rtol=1e-12)
    assert np.isclose(found.mean[0], durations.mean(), rtol=1e-12)
    if len(durations) > 1:
        assert np.isclose(found.std[0], durations.std(ddof=1), rtol=1e-9, atol=1e-3)


@given(npst.arrays(np.float64, st.integers(1, 60), elements=st.integers(0, 10**12).map(float)), st.integers(1, 5))
def test_whole_durations_and_others_are_sorted_alike(durations: np.ndarray, operators: int) -> None:
    position = np.arange(len(durations)) % operators
    zeros = np.zeros_like(position)
    whole = WindowStatistics.of(zeros, zeros, position, durations, NAMES)
    halves = WindowStatistics.of(zeros, zeros, position, durations + 0.5, NAMES)
    assert halves.position.tolist() == whole.position.tolist()
    assert np.allclose(halves.q1, whole.q1 + 0.5)
    assert np.allclose(halves.mean, whole.mean + 0.5)
    assert halves.count.tolist() == whole.count.tolist()


def test_what_is_not_known_is_left_out() -> None:
    found = WindowStatistics.of(
        rank=ints(1, 1, 1, 1),
        communicator=ints(0, 0, UNKNOWN, 0),
        position=ints(0, 0, 0, UNKNOWN),
        duration_ns=floats(5, np.nan, 6, 7),
        communicators=NAMES,
    )
    assert (found.count.tolist(), found.mean.tolist()) == ([1], [5.0])


def test_an_empty_window_has_no_rows() -> None:
    none = WindowStatistics.of(ints(), ints(), ints(), floats(), NAMES)
    assert len(none) == len(WindowStatistics.empty()) == 0
    assert none.rows(ints(4), ints(0), ints(0), NAMES).tolist() == [UNKNOWN]


def test_rows_are_found_by_name_rank_and_position() -> None:
    found = three_operators()
    rows = found.rows(
        rank=ints(4, 4, 2, 2, 9, 4, 4),
        communicator=ints(1, 0, 0, 0, 0, 2, UNKNOWN),
        position=ints(0, 0, 1, 0, 1, 0, UNKNOWN),
        communicators=("tp", "dp", "never seen"),
    )
    assert rows.tolist() == [1, 2, 0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN]


def test_the_rows_of_several_agents_join_whatever_names_each_knows() -> None:
    one = WindowStatistics.of(ints(0), ints(0), ints(3), floats(5), ("pp",))
    joined = WindowStatistics.joined([one, three_operators(), WindowStatistics.empty()])
    assert joined.communicators == ("dp", "pp", "tp")
    assert [joined.communicators[code] for code in joined.communicator] == ["pp", "tp", "dp", "tp"]
    assert joined.rank.tolist() == [0, 2, 4, 4]
    assert len(WindowStatistics.joined([])) == 0


def test_chosen_rows_stay_whole() -> None:
    last = three_operators().take(ints(2))
    assert [getattr(last, f.name).tolist() for f in fields(last) if f.name != "communicators"] == [
        [4], [1], [0], [1], [7.0], [0.0], [7.0], [7.0], [7.0],
    ]  # fmt: skip
