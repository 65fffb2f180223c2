"""Where operators begin and end in the traffic between two ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.traffic.bursts import find_bursts
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.segmentation import STATES, SegmentationRules, Segments, segment
from diagnosis.traffic.transfers import Transfers
from tests.diagnosis.traffic.made_epochs import EPOCH_NS, MB, MS, SECOND, UNIT, Sent, end_ns, port, queue_pairs, rows

DELTA = SegmentationRules().quiet_ns
LANES = (1, 2)


@dataclass(frozen=True)
class Run:
    """An operator as it truly ran: expected bytes, when it was called and began, and what it sent."""

    expected: int
    call_ns: int
    sent: tuple[Sent, ...]

    @property
    def start_ns(self) -> int:
        return min(one.start_ns for one in self.sent)

    @property
    def end_ns(self) -> int:
        return max(end_ns(one) for one in self.sent)


def run(start_ns: int, size: int, inflation: float = 1.02, lag_ns: int = 200_000, gap_ns: int = 0) -> Run:
    """An operator that both queue pairs share, larger than expected by headers."""
    each = math.ceil(size * inflation / len(LANES))
    return Run(size, start_ns - lag_ns, tuple(Sent(lane, start_ns, each, gap_ns=gap_ns) for lane in LANES))


def in_turn(sizes: Sequence[int], pauses: Sequence[int], first_ns: int = 5 * MS, inflation: float = 1.02) -> list[Run]:
    """Operators with a pause before each."""
    runs: list[Run] = []
    at = first_ns
    for size, pause in zip(sizes, pauses, strict=True):
        runs.append(run(at + pause, size, inflation))
        at = runs[-1].end_ns
    return runs


def segmented(own: Ports, runs: Sequence[Run], rules: SegmentationRules | None = None) -> Segments:
    count = len(runs)
    transfers = Transfers(
        np.arange(count),
        np.zeros(count, dtype=np.int64),
        np.full(count, 8),
        np.array([one.expected for one in runs]),
        np.array([one.call_ns for one in runs]),
    )
    lanes = queue_pairs(*((lane, 0, 8) for lane in LANES)).distinct(own.clock_error_ns)
    rules = rules or SegmentationRules()
    return segment(own, find_bursts(own, lanes, rules.delta(own.epoch_ns)), transfers, np.full(count, 2), rules)


def told(runs: Sequence[Run], seconds: int = 1, lost: Sequence[int] = (), more: Sequence[Sent] = ()) -> Ports:
    return port([*(one for own in runs for one in own.sent), *more], seconds, lost)


def assert_found(found: Segments, runs: Sequence[Run], chosen: Sequence[int] | None = None) -> None:
    """Start and end within two epochs."""
    for i in range(len(runs)) if chosen is None else chosen:
        assert STATES[found.state[i]] == "complete", i
        assert abs(found.start_ns[i] - runs[i].start_ns) <= 2 * EPOCH_NS, i
        assert abs(found.end_ns[i] - runs[i].end_ns) <= 2 * EPOCH_NS, i


@settings(max_examples=60)
@given(
    operators=st.lists(
        st.tuples(st.integers(256 << 10, 200 * MB), st.integers(2 * DELTA, 10 * DELTA)), min_size=1, max_size=12
    ),
    inflation=st.floats(1.0, 1.1),
)
def test_operators_with_silence_between_them(operators: list[tuple[int, int]], inflation: float) -> None:
    """Of any sizes, larger than expected by headers and what was sent again."""
    runs = in_turn([size for size, _ in operators], [pause for _, pause in operators], inflation=inflation)
    found = segmented(told(runs), runs)
    assert_found(found, runs)
    sent = [sum(one.size // 4096 * 4096 for one in own.sent) for own in runs]
    assert found.sent.tolist() == sent


def algorithm_1(own: Ports, size: int) -> tuple[list[int], list[int]]:
    """As published: one size, epoch by epoch; the last end is never found."""
    starts, ends, last, volume = [], [], 0, 0
    for at, sent in sorted((at, units * UNIT) for _, at, units in rows(own.series[0], *LANES)):
        if at - last >= DELTA and volume >= size:
            ends.append(last)
            volume = 0
        if volume == 0:
            starts.append(at)
        last, volume = at, volume + sent
    return starts, ends


@settings(max_examples=30)
@given(
    pauses=st.lists(st.integers(2 * DELTA, 5 * DELTA), min_size=1, max_size=8),
    size=st.integers(256 << 10, 50 * MB),
    gap=st.integers(0, DELTA - 3 * EPOCH_NS),
)
def test_operators_of_one_size_are_what_the_published_algorithm_finds(pauses: list[int], size: int, gap: int) -> None:
    """Also with silences within an operator. After one of delta the algorithm takes what exceeds the expected volume,
    headers and all, for the next operator, and so is no measure there.
    """
    runs, at = [], 5 * MS
    for pause in pauses:
        runs.append(run(at + pause, size, gap_ns=gap))
        at = runs[-1].end_ns
    own = told(runs, seconds=3)
    starts, ends = algorithm_1(own, size - 2 * 4095)
    found = segmented(own, runs)
    assert found.start_ns.tolist() == starts
    assert (found.end_ns[:-1] - EPOCH_NS).tolist() == ends


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(4 * MB, 200 * MB), min_size=2, max_size=10),
    inflation=st.sampled_from([1.0, 1.02, 128 / 120 * 1.02]),
    data=st.data(),
)
def test_operators_back_to_back_are_cut_within_a_hundredth_of_their_volume(
    sizes: list[int], inflation: float, data: st.DataObject
) -> None:
    pauses = data.draw(st.lists(st.integers(0, 60_000), min_size=len(sizes), max_size=len(sizes)))
    runs = in_turn(sizes, pauses, inflation=inflation)
    found = segmented(told(runs), runs)
    assert [STATES[state] for state in found.state] == ["complete"] * len(runs)
    rate = 50e9
    for i, own in enumerate(runs):
        allowed = 0.01 * max(one.expected for one in runs[max(i - 1, 0) : i + 2]) / rate * 1e9 + 2 * EPOCH_NS
        assert abs(found.start_ns[i] - own.start_ns) <= allowed
        assert abs(found.end_ns[i] - own.end_ns) <= allowed


def test_small_operators_under_the_low_latency_protocol_are_counted_right_back_to_back() -> None:
    """Twice the bytes: by volume alone, as many as were called would seem to be done half way."""
    runs = in_turn([300 << 10] * 40, [3 * MS if i % 10 == 0 else 20_000 for i in range(40)], inflation=2.02)
    found = segmented(told(runs), runs)
    assert [STATES[state] for state in found.state] == ["complete"] * 40
    for i in range(0, 40, 10):
        assert abs(found.start_ns[i] - runs[i].start_ns) <= 2 * EPOCH_NS
        assert abs(found.end_ns[i + 9] - runs[i + 9].end_ns) <= 2 * EPOCH_NS


def test_volume_alone_drifts() -> None:
    """What is left over of each operator adds up, so that the silences between them end up within operators."""
    runs = in_turn([20 * MB] * 30, [3 * DELTA] * 30, inflation=1.05)
    own = told(runs)
    start_ns, units = np.array(sorted((at, units) for _, at, units in rows(own.series[0], *LANES))).T
    sent = np.cumsum(units) * UNIT
    starts = start_ns[np.searchsorted(sent, np.arange(30) * 20 * MB, side="right")]
    drift = np.abs(starts - [one.start_ns for one in runs])
    assert drift[-1] > 100 * EPOCH_NS
    assert_found(segmented(own, runs), runs)


def test_messages_between_operators_are_nobodys() -> None:
    runs = in_turn([50 * MB] * 4, [20 * MS] * 4)
    control = [Sent(1, one.end_ns + 8 * MS, 8192) for one in runs]
    assert_found(segmented(told(runs, more=control), runs), runs)


def test_what_was_sent_again_after_a_silence_belongs_to_the_operator_before() -> None:
    runs = in_turn([50 * MB] * 3, [40 * MS] * 3)
    again = [Sent(1, one.end_ns + 2 * MS, 2 * MB) for one in runs]
    found = segmented(told(runs, more=again), runs)
    assert found.start_ns == pytest.approx([one.start_ns for one in runs], abs=2 * EPOCH_NS)
    assert found.end_ns == pytest.approx([end_ns(one) for one in again], abs=2 * EPOCH_NS)


def test_an_operator_that_stops_is_incomplete_and_says_for_how_long() -> None:
    runs = in_turn([100 * MB] * 3, [20 * MS] * 3)
    cut = run(runs[2].start_ns, 40 * MB)
    stopped = [*runs[:2], Run(runs[2].expected, runs[2].call_ns, cut.sent)]
    later = Run(100 * MB, runs[2].end_ns, ())
    found = segmented(told(stopped), [*stopped, later])
    assert [STATES[state] for state in found.state] == ["complete", "complete", "incomplete", "missing_start"]
    assert found.silent_ns[2] == pytest.approx(SECOND - cut.end_ns, abs=3 * EPOCH_NS)
    assert found.silent_ns[3] == pytest.approx(SECOND - later.call_ns, abs=3 * EPOCH_NS)
    assert found.coverage.tolist() == [1.0] * 4


def test_silence_that_is_not_covered_is_unknown() -> None:
    """The same stop, but the telemetry ends with it."""
    runs = in_turn([100 * MB] * 2, [20 * MS] * 2)
    later = Run(100 * MB, SECOND + 20 * MS, ())
    found = segmented(told(runs), [*runs, later])
    assert [STATES[state] for state in found.state] == ["complete", "complete", "unknown"]
    assert found.coverage[2] == 0.0
    assert found.start_ns[2] == -1


@pytest.mark.parametrize(("phase", "lost"), [(0.1, 1), (0.5, 2), (0.93, 1)])
def test_after_a_lost_second_the_same_operators_are_found(phase: float, lost: int) -> None:
    """Operators of one size every 31 ms: only the calls can tell which one goes on."""
    every = 31 * MS
    runs = [run(int((i + phase) * every), 40 * MB) for i in range(120)]
    found = segmented(told(runs, seconds=4, lost=(lost,)), runs)
    away = (lost * SECOND, (lost + 1) * SECOND)
    outside = [i for i, one in enumerate(runs) if one.end_ns < away[0] - EPOCH_NS or one.start_ns > away[1] + EPOCH_NS]
    outside = [i for i in outside if runs[i].end_ns < 4 * SECOND - 100 * EPOCH_NS]
    assert len(outside) > 80
    assert_found(found, runs, outside)
    inside = set(range(len(runs))) - set(outside)
    assert {STATES[found.state[i]] for i in inside if runs[i].end_ns < 3 * SECOND} == {"unknown"}
    assert all(found.coverage[i] < 1.0 for i in inside if runs[i].end_ns < 3 * SECOND)


def test_calls_before_telemetry_began_are_unknown() -> None:
    runs = [run(int((i + 0.4) * 40 * MS), 100 * MB) for i in range(60)]
    found = segmented(told(runs, seconds=3, lost=(0,)), runs)
    before = [i for i, one in enumerate(runs) if one.end_ns < SECOND]
    assert {STATES[found.state[i]] for i in before} == {"unknown"}
    assert_found(found, runs, [i for i, one in enumerate(runs) if one.start_ns > SECOND + EPOCH_NS])


@settings(max_examples=30)
@given(seed=st.integers(0, 999))
def test_every_row_belongs_to_one_operator_at_most(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 20))
    pauses = np.where(random.random(count) < 0.5, random.integers(0, MS // 2, count), 3 * MS)
    runs = in_turn(random.integers(MB, 60 * MB, count).tolist(), pauses.tolist())
    own = told(runs)
    found = segmented(own, runs)
    spans, [part] = found.pieces.spans, own.parts
    taken = np.zeros(len(part.poll.units), dtype=np.int64)
    for low, high in zip(spans.low, spans.high, strict=True):
        taken[low:high] += 1
    assert taken.max() == 1
    by_piece = [int(part.poll.units[a:b].sum()) * UNIT for a, b in zip(spans.low, spans.high, strict=True)]
    assert np.bincount(found.pieces.transfer, weights=by_piece, minlength=count).tolist() == found.sent.tolist()


def test_a_nic_whose_clock_is_not_known_says_so_but_finds_operators_by_volume() -> None:
    runs = in_turn([50 * MB] * 4, [20 * MS] * 4)
    moved = [Run(one.expected, one.call_ns + 10 * SECOND, one.sent) for one in runs]
    unaligned = replace(told(runs).series[0], aligned=False)
    assert_found(segmented(Ports((unaligned,)), moved), runs)


def test_back_to_back_operators_are_cut_where_they_end_though_others_are_not_sent_yet() -> None:
    """What has been called and not sent says nothing of by how much what was sent exceeds what was expected."""
    runs: list[Run] = []
    for group in range(3):
        first = run((10 + 40 * group) * MS, 128 * MB)
        runs += [first, replace(run(first.end_ns + 64_000, 77 * MB), call_ns=first.start_ns)]
    called = [*runs, *(Run(100 * MB, 500 * MS, ()) for _ in range(3))]
    found = segmented(told(runs), called)
    assert_found(found, runs, [0, 2, 4])
