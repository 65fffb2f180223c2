"""What pairs of ranks sent between silences."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic.bursts import Bursts, find_bursts
from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.series import EpochSeries
from tests.diagnosis.traffic.made_epochs import EPOCH_NS, MB, MS, UNIT, Sent, port, queue_pairs

PAIRS = ((1, 0, 8), (2, 0, 8), (3, 0, 9), (4, 1, 8))
"""Two queue pairs between the same ranks, and two more pairs of ranks; a fifth queue pair is not known."""

ROWS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 500), st.integers(1, 9)), max_size=60)


def found_in(own: Ports, *records: tuple[int, int, int], quiet_ns: int = MS) -> Bursts:
    return find_bursts(own, queue_pairs(*records).distinct(own.clock_error_ns), quiet_ns)


@given(rows=ROWS, quiet=st.integers(1, 60))
def test_bursts_are_what_a_walk_over_the_epochs_finds(rows: list[tuple[int, int, int]], quiet: int) -> None:
    """As Algorithm 1 goes: epoch by epoch, with a look back at the one before."""
    cells = {(qpn, epoch): units for qpn, epoch, units in rows}
    qpn, epoch, units = np.array([(*at, cells[at]) for at in sorted(cells)], dtype=np.uint32).reshape(-1, 3).T
    own = Ports((EpochSeries.join([Poll(0, 501 * EPOCH_NS, EPOCH_NS, UNIT, 4096, qpn, epoch, units)]),))
    found = found_in(own, *PAIRS, quiet_ns=quiet * EPOCH_NS)

    walked = []
    for source, destination in ((0, 8), (0, 9), (1, 8)):
        lanes = [number for number, *ranks in PAIRS if ranks == [source, destination]]
        burst: list[int] = []
        for at in sorted({epoch for number, epoch in cells if number in lanes}):
            size = sum(cells.get((number, at), 0) for number in lanes) * UNIT
            if burst and at - burst[3] < quiet:
                burst[3:] = [at, burst[4] + size]
            else:
                burst = [source, destination, at, at, size]
                walked.append(burst)
    columns = (found.source, found.destination, found.start_ns // EPOCH_NS, found.last_ns // EPOCH_NS, found.size)
    assert np.stack(columns, axis=1).tolist() == walked


def test_the_spans_of_a_burst_are_its_rows() -> None:
    own = port([Sent(1, 5 * MS, MB), Sent(2, 5 * MS, 2 * MB), Sent(1, 50 * MS, 3 * MB), Sent(9, 5 * MS, 5 * MB)])
    found = found_in(own, (1, 0, 8), (2, 0, 8))
    assert found.size.tolist() == [3 * MB, 3 * MB]
    spans = found.spans
    sent = [int(own.parts[0].rows(low, high)[1].sum()) * UNIT for low, high in zip(spans.low, spans.high, strict=True)]
    assert sent == spans.size.tolist()
    assert (sorted(sent[:2]), sent[2:]) == ([MB, 2 * MB], [3 * MB])
    assert found.first.tolist() == [0, 2, 3]


def test_without_traffic_there_are_no_bursts() -> None:
    assert not len(found_in(port([]), (1, 0, 8)))
    assert not len(found_in(port([Sent(9, MS, MB)]), (1, 0, 8)))
