"""Which ranks a queue pair connects, at which time."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic.queue_pairs import FOREVER, QueuePairs
from schemas.queue_pairs import TOPIC
from tests.diagnosis.traffic.made_epochs import MB, MS, SECOND, Sent, queue_pairs, series


def test_what_no_record_explains_is_in_no_lane() -> None:
    """Storage, checkpoints and other tenants have queue pairs as well."""
    own = series([Sent(5, MS, MB), Sent(6, MS, MB), Sent(99, MS, 40 * MB)])
    lanes = queue_pairs((5, 0, 8), (6, 0, 4), (7, 0, 12)).lanes(own)
    assert (lanes.source.tolist(), lanes.destination.tolist(), lanes.qpn.tolist()) == ([0, 0], [4, 8], [6, 5])
    assert own.units[lanes.low[1] : lanes.high[1]].sum() * 32 == MB


def test_a_number_that_is_given_anew_connects_others() -> None:
    own = series([Sent(5, 10 * MS, MB), Sent(5, 500 * MS, 2 * MB)])
    records = QueuePairs(*(np.array(c) for c in ([5, 5], [0, 0], [1, 2], [0, 300 * MS], [FOREVER, FOREVER])))
    lanes = records.lanes(own)
    volume = [int(own.units[low:high].sum()) * 32 for low, high in zip(lanes.low, lanes.high, strict=True)]
    assert dict(zip(lanes.destination.tolist(), volume, strict=True)) == {1: MB, 2: 2 * MB}


BUSY = series([Sent(5, i * 5 * MS, MB) for i in range(200)])


@given(
    bounds=st.lists(st.integers(0, 1000), min_size=1, max_size=6, unique=True),
    closed=st.booleans(),
    repeats=st.integers(1, 3),
)
def test_no_row_is_in_two_lanes_however_often_a_record_is_told(bounds: list[int], closed: bool, repeats: int) -> None:
    since = np.array(sorted(bounds) * repeats) * MS
    until = np.where(closed, since + 3 * MS, FOREVER)
    lanes = QueuePairs(np.full(len(since), 5), np.zeros_like(since), since // MS, since, until).lanes(BUSY)
    spans = sorted(zip(lanes.low.tolist(), lanes.high.tolist(), strict=True))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


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
    assert records.distinct(10).valid_to_ns.tolist() == [2 * SECOND + 10]
    assert not len(records.lanes(series([])))
