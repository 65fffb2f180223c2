"""Which ranks a queue pair connects, at which time (Pulse 5.1): numbers are reused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnosis.columns import integers
from diagnosis.traffic.epochs import EpochSeries, Ints

FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """The rows of a series that one queue pair sent between two ranks; arrays of shape (lanes,).

    Rows ``low`` to ``high`` of the series; sorted by source, destination, then rows. What no record explains
    (storage, checkpoints, other tenants) is in no lane.
    """

    source: Ints
    destination: Ints
    qpn: Ints
    low: Ints
    high: Ints

    def __len__(self) -> int:
        return len(self.low)


@dataclass(frozen=True, slots=True, eq=False)
class QueuePairs:
    """Records of telemetry.queue_pairs of one NIC; arrays of shape (n,).

    ``valid_to_ns`` is ``FOREVER`` where the queue pair is open. Times are of the host's clock.
    """

    qpn: Ints
    source: Ints
    destination: Ints
    valid_from_ns: Ints
    valid_to_ns: Ints

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> QueuePairs:
        """Build from rows of telemetry.queue_pairs."""
        valid_to = integers(table, "valid_to_ns")
        return cls(
            qpn=integers(table, "qpn"),
            source=integers(table, "source_rank"),
            destination=integers(table, "destination_rank"),
            valid_from_ns=integers(table, "valid_from_ns"),
            valid_to_ns=np.where(valid_to < 0, FOREVER, valid_to),
        )

    def distinct(self, clock_error_ns: int = 0) -> QueuePairs:
        """The records, each once, and no two of one number at a time.

        All open queue pairs are told again when an agent starts, and one that closes is told a second time, with its
        end. Times are widened by what clocks may be off, up to where the number was given anew.
        """
        order = np.lexsort((self.valid_to_ns, self.valid_from_ns, self.qpn))
        again = np.zeros(len(order), dtype=np.bool_)
        again[1:] = (np.diff(self.qpn[order]) == 0) & (np.diff(self.valid_from_ns[order]) == 0)
        order = order[~again]  # of two that differ in their end the one that closed is kept
        qpn, since = self.qpn[order], self.valid_from_ns[order] - clock_error_ns
        until = self.valid_to_ns[order]
        until = np.where(until == FOREVER, until, until + clock_error_ns)
        until[:-1] = np.where(qpn[1:] == qpn[:-1], np.minimum(until[:-1], since[1:]), until[:-1])
        return QueuePairs(qpn, self.source[order], self.destination[order], since, until)

    def lanes(self, series: EpochSeries) -> Lanes:
        """The rows of the series by the ranks they connect."""
        if not len(series.qpns):
            none = np.zeros(0, dtype=np.int64)
            return Lanes(none, none, none, none, none)
        records = self.distinct(series.clock_error_ns)
        flow = np.minimum(np.searchsorted(series.qpns, records.qpn), len(series.qpns) - 1)
        seen = np.flatnonzero(series.qpns[flow] == records.qpn)
        flow = flow[seen]
        low, high = series.offsets[flow].copy(), series.offsets[flow + 1].copy()
        since, until = records.valid_from_ns[seen], records.valid_to_ns[seen]
        partial = (series.start_ns[low] < since) | (series.start_ns[high - 1] >= until)
        for i in np.flatnonzero(partial):  # few: numbers that were given anew, or while telemetry was looked at
            own = series.start_ns[low[i] : high[i]]
            high[i] = low[i] + np.searchsorted(own, until[i])
            low[i] += np.searchsorted(own, since[i])
        source, destination, qpn = records.source[seen], records.destination[seen], records.qpn[seen]
        order = np.lexsort((low, destination, source))
        order = order[high[order] > low[order]]
        return Lanes(source[order], destination[order], qpn[order], low[order], high[order])
