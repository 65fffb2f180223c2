"""Small series of epochs, made from transfers: who sends how much from when on, at which rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.ports import Ports, Spans
from diagnosis.traffic.queue_pairs import FOREVER, QueuePairs
from diagnosis.traffic.series import EpochSeries

Ints = npt.NDArray[np.int64]

EPOCH_NS = 32_000
UNIT = 32
AGGREGATION = 4096
SECOND = 1_000_000_000
MS = 1_000_000
MB = 1 << 20


@dataclass(frozen=True)
class Sent:
    """Bytes that a queue pair sends from a time on, slice by slice with a gap after each."""

    qpn: int
    start_ns: int
    size: int
    rate_bytes_per_s: float = 25e9
    slice_bytes: int = MB
    gap_ns: int = 0


def events(sent: Sent) -> tuple[Ints, Ints]:
    """When each 4096 bytes are through, and bytes before a remainder that is too small to be told."""
    through = np.arange(1, sent.size // AGGREGATION + 1) * AGGREGATION
    slices = (through - 1) // sent.slice_bytes
    times = sent.start_ns + through / sent.rate_bytes_per_s * 1e9 + slices * sent.gap_ns
    return np.floor(times).astype(np.int64), np.full(len(through), AGGREGATION, dtype=np.int64)


def end_ns(sent: Sent) -> int:
    """When the last byte is through."""
    return int(
        sent.start_ns + sent.size / sent.rate_bytes_per_s * 1e9 + (sent.size - 1) // sent.slice_bytes * sent.gap_ns
    )


def poll(
    sent: Sequence[Sent],
    from_ns: int = 0,
    to_ns: int = SECOND,
    host_minus_nic_ns: int | None = 0,
    clock_error_ns: int | None = 0,
    epoch_ns: int = EPOCH_NS,
    dropped: int = 0,
) -> Poll:
    """What a NIC tells of a time of its own clock; all of ``sent`` that falls into it."""
    rows = [(one.qpn, *events(one)) for one in sent]
    qpn = np.concatenate([np.full(len(times), number) for number, times, _ in rows] or [np.zeros(0, dtype=np.int64)])
    times = np.concatenate([times for _, times, _ in rows] or [np.zeros(0, dtype=np.int64)])
    size = np.concatenate([size for *_, size in rows] or [np.zeros(0, dtype=np.int64)])
    inside = (times >= from_ns) & (times < to_ns)
    keys = qpn[inside] << 32 | (times[inside] - from_ns) // epoch_ns
    unique, which = np.unique(keys, return_inverse=True)
    units = np.bincount(which, weights=size[inside], minlength=len(unique)) / UNIT
    return Poll(
        from_ns=from_ns,
        to_ns=to_ns,
        epoch_ns=epoch_ns,
        unit_bytes=UNIT,
        aggregation_bytes=AGGREGATION,
        qpn=(unique >> 32).astype(np.uint32),
        epoch=(unique & 0xFFFFFFFF).astype(np.uint32),
        units=units.astype(np.uint32),
        host_minus_nic_ns=host_minus_nic_ns,
        clock_error_ns=clock_error_ns,
        events_dropped=dropped,
    )


def series(sent: Sequence[Sent], seconds: int = 1, lost: Sequence[int] = (), epoch_ns: int = EPOCH_NS) -> EpochSeries:
    """Polls of a second each, but for those that were lost, joined."""
    whole = SECOND // epoch_ns * epoch_ns
    return EpochSeries.join(
        [poll(sent, i * whole, (i + 1) * whole, epoch_ns=epoch_ns) for i in range(seconds) if i not in lost]
    )


def port(sent: Sequence[Sent], seconds: int = 1, lost: Sequence[int] = ()) -> Ports:
    """Such a series of a NIC that is looked at alone."""
    return Ports((series(sent, seconds, lost),))


def rows(own: EpochSeries, *qpns: int) -> list[tuple[int, int, int]]:
    """Queue pair, time and units of the epochs of some queue pairs, sorted."""
    lanes = queue_pairs(*((qpn, 0, 1) for qpn in qpns))
    spans = spans_of(Ports((own,)), lanes, own.epoch_ns)  # such that each epoch is a span of its own
    columns = lanes.distinct(np.zeros(1, dtype=np.int64)).flow[spans.lane], spans.start_ns, spans.size // own.unit_bytes
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def spans_of(own: Ports, records: QueuePairs, quiet_ns: int = MS) -> Spans:
    """What queue pairs sent between silences."""
    return own.spans(records.distinct(own.clock_error_ns), quiet_ns)


def queue_pairs(*records: tuple[int, int, int]) -> QueuePairs:
    """Records of (queue pair, source rank, destination rank), open all the time."""
    qpn, source, destination = np.array(records, dtype=np.int64).reshape(-1, 3).T
    return QueuePairs(
        qpn, source, destination, np.zeros(len(qpn), dtype=np.int64), np.full(len(qpn), FOREVER, dtype=np.int64)
    )
