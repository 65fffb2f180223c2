"""Packets as a NIC counts them: an event for each ``aggregation`` bytes of a flow, events in epochs (Pulse 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.real_traffic.capture import Ints, Keys, Packets

AGGREGATION_BYTES, UNIT_BYTES = 4096, 32


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """What one NIC counted: ``units`` of each ``flow`` in each ``epoch``, sorted so; arrays of shape (n,)."""

    flow: Keys
    epoch: Ints
    units: Ints

    def between(self, first: int, last: int) -> Counts:
        """The epochs from ``first`` on and before ``last``."""
        kept = (self.epoch >= first) & (self.epoch < last)
        return Counts(self.flow[kept], self.epoch[kept], self.units[kept])


def count(packets: Packets, nic: int, begins_ns: int, epoch_ns: int) -> Counts:
    """Count what a NIC sent from ``begins_ns`` on; epochs are numbered from there.

    What is left of a flow below the aggregation is counted with what it sends next.
    """
    own = np.flatnonzero((packets.nic == nic) & (packets.time_ns >= begins_ns))
    own = own[np.lexsort((packets.time_ns[own], packets.flow[own]))]
    flow, epoch = packets.flow[own], (packets.time_ns[own] - begins_ns) // epoch_ns
    fresh = np.ones(len(own), dtype=np.bool_)
    fresh[1:] = flow[1:] != flow[:-1]
    first = np.flatnonzero(fresh)
    of_flow = np.cumsum(fresh) - 1
    sent = np.cumsum(packets.size[own])
    sent -= (sent[first] - packets.size[own][first])[of_flow]
    events = sent // AGGREGATION_BYTES
    fired = np.diff(events, prepend=0)
    fired[first] = events[first]
    fresh[1:] |= epoch[1:] != epoch[:-1]
    begins = np.flatnonzero(fresh)
    units = np.add.reduceat(fired, begins) * (AGGREGATION_BYTES // UNIT_BYTES) if len(begins) else fired
    kept = begins[units > 0]
    return Counts(flow[kept], epoch[kept], units[units > 0])
