"""Which ranks a queue pair connects, at which time."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic.queue_pairs import FOREVER, QueuePairs
from schemas.queue_pairs import TOPIC
from tests.diagnosis.traffic.made_epochs import MB, MS, SECOND, Sent, port, queue_pairs, spans_of


def test_what_no_record_explains_is_nobodys() -> None:
    """Storage, checkpoints and other tenants have queue pairs as well."""
    own = port([Sent(5, MS, MB), Sent(6, MS, MB), Sent(99, MS, 40 * MB)])
    records = queue_pairs((5, 0, 8), (6, 0, 4), (7, 0, 12)).distinct(own.clock_error_ns)
    spans = own.spans(records, MS)
    assert (records.destination[spans.lane].tolist(), records.flow[spans.lane].tolist()) == ([8, 4], [5, 6])
    assert spans.size.tolist() == [MB, MB]


def test_a_number_that_is_given_anew_connects_others() -> None:
    own = port([Sent(5, 10 * MS, MB), Sent(5, 500 * MS, 2 * MB)])
    records = QueuePairs(*(np.array(c) for c in ([5, 5], [0, 0], [1, 2], [0, 300 * MS], [FOREVER, FOREVER])))
    spans = spans_of(own, records, SECOND)
    assert dict(zip([1, 2], spans.size.tolist(), strict=True)) == {1: MB, 2: 2 * MB}
    assert spans.lane.tolist() == [0, 1]


BUSY = port([Sent(5, i * 5 * MS, MB) for i in range(200)])


@given(
    bounds=st.lists(st.integers(0, 1000), min_size=1, max_size=6, unique=True),
    closed=st.booleans(),
    repeats=st.integers(1, 3),
)
def test_no_row_is_in_two_spans_however_often_a_record_is_told(bounds: list[int], closed: bool, repeats: int) -> None:
    since = np.array(sorted(bounds) * repeats) * MS
    until = np.where(closed, since + 3 * MS, FOREVER)
    records = QueuePairs(np.full(len(since), 5), np.zeros_like(since), since // MS, since, until)
    spans = spans_of(BUSY, records)
    rows = sorted(zip(spans.low.tolist(), spans.high.tolist(), strict=True))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(rows))
    distinct = records.distinct(BUSY.clock_error_ns)
    for lane, low, high in zip(spans.lane, spans.low, spans.high, strict=True):
        start_ns = BUSY.parts[0].rows(int(low), int(high))[0]
        assert distinct.valid_from_ns[lane] <= start_ns[0] <= start_ns[-1] < distinct.valid_to_ns[lane]


def test_records_are_read_from_their_topic() -> None:
    rows = [
        {
            "nic": "mlx5_0",
            "gid": "a",
            "qpn": 5,
            "source_rank": 1,
            "destination_rank": 9,
            "destination_gid": "b",
            "destination_qpn": 6,
            "valid_from_ns": SECOND,
            "valid_to_ns": until,
        }
        for until in (None, 2 * SECOND)
    ]
    records = QueuePairs.from_arrow(TOPIC.from_rows(rows))
    assert records.valid_to_ns.tolist() == [FOREVER, 2 * SECOND]
    assert records.distinct(np.array([0])).valid_to_ns.tolist() == [2 * SECOND]
    assert not len(spans_of(port([]), records))
