"""Which ranks a queue pair connects, at which time (Pulse 5.1): numbers are reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import integers
from diagnosis.traffic.endpoints import flow_of, nic_of, sender_of

FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class QueuePairs:
    """Records of telemetry.queue_pairs; arrays of shape (n,).

    ``flow`` and ``source`` are numbers of the queue pair and the sending rank as in ``endpoints``, ``destination`` is
    a rank. ``valid_to_ns`` is ``FOREVER`` where the queue pair is open. Times are of the host's clock.
    """

    flow: Ints
    source: Ints
    destination: Ints
    valid_from_ns: Ints
    valid_to_ns: Ints

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> QueuePairs:
        """Build from rows of telemetry.queue_pairs of one NIC."""
        valid_to = integers(table, "valid_to_ns")
        return cls(
            flow=integers(table, "qpn"),
            source=integers(table, "source_rank"),
            destination=integers(table, "destination_rank"),
            valid_from_ns=integers(table, "valid_from_ns"),
            valid_to_ns=np.where(valid_to < 0, FOREVER, valid_to),
        )

    @classmethod
    def none(cls) -> QueuePairs:
        """No records."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, empty, empty)

    @classmethod
    def beside(cls, of_nics: Sequence[QueuePairs]) -> QueuePairs:
        """Those of several NICs, each built alone, numbered in this order."""
        return cls(
            flow=np.concatenate([flow_of(nic, own.flow) for nic, own in enumerate(of_nics)]),
            source=np.concatenate([sender_of(nic, own.source) for nic, own in enumerate(of_nics)]),
            destination=np.concatenate([own.destination for own in of_nics]),
            valid_from_ns=np.concatenate([own.valid_from_ns for own in of_nics]),
            valid_to_ns=np.concatenate([own.valid_to_ns for own in of_nics]),
        )

    def distinct(self, clock_error_ns: Ints) -> QueuePairs:
        """The records, sorted by number and time, each once, and no two of one number at a time.

        All open queue pairs are told again when an agent starts, and one that closes is told a second time, with its
        end. Times are widened by what clocks may be off, ``clock_error_ns`` of each NIC, up to where the number was
        given anew.
        """
        order = np.lexsort((self.valid_to_ns, self.valid_from_ns, self.flow))
        again = np.zeros(len(order), dtype=np.bool_)
        again[1:] = (np.diff(self.flow[order]) == 0) & (np.diff(self.valid_from_ns[order]) == 0)
        order = order[~again]  # of two that differ in their end the one that closed is kept
        error = clock_error_ns[nic_of(self.source[order])]
        flow, since = self.flow[order], self.valid_from_ns[order] - error
        until = self.valid_to_ns[order]
        until = np.where(until == FOREVER, until, until + error)
        until[:-1] = np.where(flow[1:] == flow[:-1], np.minimum(until[:-1], since[1:]), until[:-1])
        return QueuePairs(flow, self.source[order], self.destination[order], since, until)
