"""What queue pairs send beside an operator moves none of its boundaries."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.traffic.bursts import find_bursts
from diagnosis.traffic.segmentation import STATES, SegmentationRules, Segments, segment
from diagnosis.traffic.transfers import Transfers
from tests.diagnosis.traffic.made_epochs import AGGREGATION, EPOCH_NS, MB, MS, SECOND, Sent, end_ns, port, queue_pairs

DATA, MESSAGES = 1, 2
CALLED_NS = 20 * MS


def segmented(expected: int, *sent: Sent, seconds: int = 1, called_ns: int = CALLED_NS) -> Segments:
    """One operator between two ranks, which two queue pairs connect."""
    own = port(list(sent), seconds, ())
    lanes = queue_pairs((DATA, 0, 8), (MESSAGES, 0, 8)).distinct(own.clock_error_ns)
    one = np.zeros(1, dtype=np.int64)
    transfers = Transfers(one, one, one + 8, one + expected, one + called_ns)
    bursts = find_bursts(own, lanes, SegmentationRules().delta(EPOCH_NS))
    return segment(own, bursts, transfers, one + 2)


@settings(max_examples=60)
@given(
    size=st.integers(MB // 4, 64 * MB),
    messages=st.lists(st.tuples(st.booleans(), st.integers(3, 30), st.integers(1, 2)), min_size=1, max_size=2),
)
def test_messages_beside_an_operator_are_no_part_of_it(size: int, messages: list[tuple[bool, int, int]]) -> None:
    """On another queue pair than its data, at a distance below delta, before or behind it."""
    data = Sent(DATA, CALLED_NS + MS, size)
    beside = []
    for before, epochs, events in {one[0]: one for one in messages}.values():
        at_ns = data.start_ns - epochs * EPOCH_NS if before else end_ns(data) + epochs * EPOCH_NS
        beside.append(Sent(MESSAGES, at_ns, events * AGGREGATION))
    found = segmented(size, data, *beside)
    assert STATES[found.state[0]] == "complete"
    assert abs(int(found.start_ns[0]) - data.start_ns) <= 2 * EPOCH_NS
    assert abs(int(found.end_ns[0]) - end_ns(data)) <= 2 * EPOCH_NS
    assert found.sent[0] == size // AGGREGATION * AGGREGATION


def test_an_operator_that_is_no_more_than_that_is_told_whole() -> None:
    data = [Sent(lane, CALLED_NS + MS, 2 * AGGREGATION) for lane in (DATA, MESSAGES)]
    assert segmented(4 * AGGREGATION, *data).sent[0] == 4 * AGGREGATION


def test_what_is_sent_beside_the_rest_at_the_same_time_is_a_part_however_little() -> None:
    """Twice the bytes, as by the low-latency protocol, unevenly on two queue pairs."""
    data = [Sent(DATA, CALLED_NS + MS, 5 * AGGREGATION), Sent(MESSAGES, CALLED_NS + MS, 4 * AGGREGATION)]
    assert segmented(5 * AGGREGATION, *data).sent[0] == 9 * AGGREGATION


def test_what_goes_on_across_polls_is_a_part_however_little() -> None:
    """All but three events are sent before the second poll begins; headers alone make up for those."""
    before = 100 * AGGREGATION
    data = Sent(DATA, SECOND - round(before / 25e9 * 1e9), before + 3 * AGGREGATION)
    assert segmented(before, data, seconds=2, called_ns=SECOND - MS).sent[0] == data.size
