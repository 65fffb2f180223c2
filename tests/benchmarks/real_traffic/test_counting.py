"""Packets are counted as a NIC counts: an event a flow and 4 KB, events in epochs."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.real_traffic.capture import Packets
from benchmarks.real_traffic.counting import AGGREGATION_BYTES, UNIT_BYTES, Counts, count

EPOCH_NS = 1_000
SEEN = st.lists(
    st.tuples(
        st.integers(0, 20 * EPOCH_NS),  # when
        st.integers(0, 1),  # which NIC
        st.sampled_from((7, 8, 2**63)),  # which flow
        st.integers(1, 70_000),  # bytes
    ),
    unique_by=lambda packet: packet[0],
    max_size=60,
)


def packets_of(seen: list[tuple[int, int, int, int]]) -> Packets:
    columns = [[packet[at] for packet in seen] for at in range(4)]
    return Packets(
        time_ns=np.array(columns[0], dtype=np.int64),
        nic=np.array(columns[1], dtype=np.int64),
        flow=np.array(columns[2], dtype=np.uint64),
        size=np.array(columns[3], dtype=np.int64),
    )


def one_by_one(seen: list[tuple[int, int, int, int]], nic: int, begins_ns: int) -> dict[tuple[int, int], int]:
    """What ``count`` has to find, packet after packet."""
    sent: dict[int, int] = defaultdict(int)
    events: dict[tuple[int, int], int] = defaultdict(int)
    for at, own, flow, size in sorted(seen):
        if own == nic and at >= begins_ns:
            before = sent[flow] // AGGREGATION_BYTES
            sent[flow] += size
            events[flow, (at - begins_ns) // EPOCH_NS] += sent[flow] // AGGREGATION_BYTES - before
    return {key: found for key, found in events.items() if found}


def rows(counts: Counts) -> dict[tuple[int, int], int]:
    per_event = AGGREGATION_BYTES // UNIT_BYTES
    units = (counts.units // per_event).tolist()
    assert (counts.units % per_event == 0).all()
    return dict(zip(zip(counts.flow.tolist(), counts.epoch.tolist(), strict=True), units, strict=True))


@given(SEEN, st.integers(0, 3 * EPOCH_NS))
def test_each_flow_is_counted_in_whole_events_when_they_are_reached(
    seen: list[tuple[int, int, int, int]], begins_ns: int
) -> None:
    for nic in (0, 1):
        counts = count(packets_of(seen), nic, begins_ns, EPOCH_NS)
        assert rows(counts) == one_by_one(seen, nic, begins_ns)
        places = list(zip(counts.flow.tolist(), counts.epoch.tolist(), strict=True))
        assert places == sorted(places)


@given(SEEN)
def test_the_order_in_which_packets_were_read_does_not_matter(seen: list[tuple[int, int, int, int]]) -> None:
    counts, turned = (count(packets_of(some), 0, 0, EPOCH_NS) for some in (seen, seen[::-1]))
    assert rows(counts) == rows(turned)


@given(SEEN, st.integers(1, 19))
def test_polls_share_the_epochs_among_them(seen: list[tuple[int, int, int, int]], cut: int) -> None:
    counts = count(packets_of(seen), 0, 0, EPOCH_NS)
    before, after = rows(counts.between(0, cut)), rows(counts.between(cut, 21))
    assert not before.keys() & after.keys()
    assert before | after == rows(counts)
