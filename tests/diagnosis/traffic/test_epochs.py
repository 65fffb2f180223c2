"""Polls of a NIC joined into one series."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.series import EpochSeries
from schemas.nic_epochs import TOPIC
from tests.diagnosis.traffic.made_epochs import EPOCH_NS, MB, MS, SECOND, UNIT, Sent, poll, rows, series

ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 299), st.integers(1, 9)), max_size=60)
QPNS = range(1, 5)


def as_poll(rows: list[tuple[int, int, int]], low: int, high: int) -> Poll:
    own = sorted(
        {(qpn, epoch): (qpn, epoch - low, units) for qpn, epoch, units in rows if low <= epoch < high}.values()
    )
    qpn, epoch, units = np.array(own, dtype=np.uint32).reshape(-1, 3).T
    return Poll(low * EPOCH_NS, high * EPOCH_NS, EPOCH_NS, UNIT, 4096, qpn, epoch, units, 0, 0)


@given(sent=ROWS, cuts=st.sets(st.integers(1, 299), max_size=4), seed=st.integers(0, 99))
def test_a_series_does_not_depend_on_how_it_was_polled(
    sent: list[tuple[int, int, int]], cuts: set[int], seed: int
) -> None:
    bounds = [0, *sorted(cuts), 300]
    polls = [as_poll(sent, low, high) for low, high in itertools.pairwise(bounds)]
    once = EpochSeries.join([as_poll(sent, 0, 300)])
    order = np.random.default_rng(seed).permutation(len(polls))
    joined = EpochSeries.join([*(polls[i] for i in order), polls[0]])
    assert rows(joined, *QPNS) == rows(once, *QPNS)
    assert np.array_equal(joined.covered, once.covered)
    cells = {(qpn, epoch): units for qpn, epoch, units in sent}
    assert rows(once, *QPNS) == sorted((qpn, epoch * EPOCH_NS, units) for (qpn, epoch), units in cells.items())


@given(sent=ROWS, cut=st.integers(1, 299), ends=st.tuples(st.integers(-9, 309), st.integers(-9, 309)))
def test_only_epochs_that_lie_between_two_times_are_joined(
    sent: list[tuple[int, int, int]], cut: int, ends: tuple[int, int]
) -> None:
    low, high = (EPOCH_NS * at + 5 for at in sorted(ends))
    polls = [as_poll(sent, 0, cut), as_poll(sent, cut, 300)]
    whole, part = EpochSeries.join(polls), EpochSeries.join(polls, (low, high))
    inside = [row for row in rows(whole, *QPNS) if low <= row[1] and row[1] + EPOCH_NS <= high]
    assert rows(part, *QPNS) == inside
    span = max(0, min(high, 300 * EPOCH_NS) - max(low, 0))
    assert int((part.covered[:, 1] - part.covered[:, 0]).sum()) == span


def test_bytes_are_counted_when_the_aggregation_is_full() -> None:
    one = series([Sent(7, 10 * MS, MB + 5000)])
    told = rows(one, 7)
    assert sum(units for *_, units in told) * UNIT == MB + 4096
    assert told[0][1] == 10 * MS // EPOCH_NS * EPOCH_NS


def test_times_are_of_the_hosts_clock_where_that_is_known() -> None:
    sent = [Sent(1, 5 * MS, MB), Sent(1, SECOND + 5 * MS, MB)]
    first = poll(sent, 0, SECOND, host_minus_nic_ns=1000, clock_error_ns=40)
    second = poll(sent, SECOND, 2 * SECOND, host_minus_nic_ns=None, clock_error_ns=None)
    joined = EpochSeries.join([second, first])
    assert joined.aligned
    assert joined.clock_error_ns == 40
    assert joined.covered.tolist() == [[1000, 2 * SECOND + 1000]]  # the nearest offset stands in
    alone = EpochSeries.join([second])
    assert not alone.aligned
    assert alone.covered.tolist() == [[SECOND, 2 * SECOND]]


def test_a_lost_poll_covers_nothing() -> None:
    one = series([], seconds=4, lost=(2,))
    start, end = (
        np.array([0, SECOND // 2, 2 * SECOND, 3 * SECOND]),
        np.array([SECOND, 3 * SECOND, 3 * SECOND, 5 * SECOND]),
    )
    assert one.coverage(start, end) == pytest.approx([1.0, 0.6, 0.0, 0.5])


@pytest.mark.parametrize(("dropped", "parts"), [(3, 1), (0, 2)])
def test_a_poll_that_is_not_whole_covers_nothing_but_its_rows_count(dropped: int, parts: int) -> None:
    whole = poll([Sent(1, 5 * MS, MB)])
    broken = EpochSeries.join([dataclasses.replace(whole, events_dropped=dropped, parts=parts)])
    assert rows(broken, 1) == rows(EpochSeries.join([whole]), 1)
    assert not len(broken.covered)
    assert broken.coverage(np.array([0]), np.array([SECOND])).tolist() == [0.0]


def test_parts_of_a_poll_cover_it_together() -> None:
    parts = [dataclasses.replace(poll([Sent(qpn, MS, MB)]), part=qpn, parts=2) for qpn in (0, 1)]
    both = EpochSeries.join(parts)
    assert {qpn for qpn, *_ in rows(both, 0, 1)} == {0, 1}
    assert both.covered.tolist() == [[0, SECOND]]


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(ValueError, match="no poll"):
        EpochSeries.join([])
    with pytest.raises(ValueError, match="differ in epoch"):
        EpochSeries.join([poll([]), poll([], SECOND, 2 * SECOND, epoch_ns=2 * EPOCH_NS)])


def test_polls_are_read_from_their_topic() -> None:
    whole = poll([Sent(3, MS, MB), Sent(9, 2 * MS, MB)])
    published: list[dict[str, Any]] = [
        {
            "nic": nic,
            "poll_from_ns": 0,
            "poll_to_ns": SECOND,
            "epoch_ns": EPOCH_NS,
            "unit_bytes": UNIT,
            "aggregation_bytes": 4096,
            "source": source,
            "host_minus_nic_ns": 12,
            "clock_error_ns": 3,
            "events_dropped": 0,
            "aged_qpns": [],
            "part": 0,
            "parts": 1,
            "qpn": None if source == "port_counter" else whole.qpn,
            "epoch": whole.epoch if source == "dpa" else np.array([4, 9], dtype=np.uint32),
            "units": whole.units if source == "dpa" else np.array([1, 2], dtype=np.uint32),
        }
        for nic, source in (("mlx5_0", "dpa"), ("eth0", "port_counter"))
    ]
    polls = Poll.by_nic(TOPIC.from_rows(published))
    own = EpochSeries.join(polls["mlx5_0"])
    told = rows(own, 3, 9)
    assert {qpn for qpn, *_ in told} == {3, 9}
    assert [units for *_, units in told] == whole.units.tolist()
    assert told[0][1] % EPOCH_NS == 12
    port = EpochSeries.join(polls["eth0"])
    assert port.parts[0].rows(0, 2)[0].tolist() == [4 * EPOCH_NS + 12, 9 * EPOCH_NS + 12]
