"""Traffic without a pause: what Algorithm 1 looks at between two silences (Pulse 5.2).

Its condition on time holds only where nothing was sent for ``delta``, so all that matters of the epochs in between is
where they begin and end and what they add up to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.traffic.endpoints import pair_of
from diagnosis.traffic.ports import Ports, Spans
from diagnosis.traffic.queue_pairs import QueuePairs


@dataclass(frozen=True, slots=True, eq=False)
class Bursts:
    """What each pair of ranks sent between silences.

    ``spans`` are what single queue pairs sent, shape (spans,), sorted by burst. A burst is what all queue pairs between
    two ranks sent without a common silence: from ``start_ns`` to ``last_ns``, the beginning of its last epoch; ``size``
    in bytes; its spans are those from ``first`` to the next one's. Shape (bursts,), of ``first`` (bursts + 1,); sorted
    by source, destination and time.
    """

    spans: Spans
    source: Ints
    destination: Ints
    start_ns: Ints
    last_ns: Ints
    size: Ints
    first: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


def find_bursts(ports: Ports, lanes: QueuePairs, quiet_ns: int) -> Bursts:
    """The bursts of each pair of ranks, between silences of at least ``quiet_ns`` (``delta``).

    ``lanes``: the distinct records of queue pairs.
    """
    spans = ports.spans(lanes, quiet_ns)
    if not len(spans):
        none = np.zeros(0, dtype=np.int64)
        return Bursts(spans, none, none, none, none, none, np.zeros(1, dtype=np.int64))
    order = np.argsort(spans.lane, kind="stable")
    lane, start, last = spans.lane[order], spans.start_ns[order], spans.last_ns[order]
    # what a queue pair goes on to send in the next poll keeps its place behind what it sent before
    fresh = _changes(lane)
    fresh[1:] |= start[1:] - last[:-1] >= quiet_ns
    began = start[fresh][np.cumsum(fresh) - 1]
    pair = pair_of(lanes.source[lane], lanes.destination[lane])
    spans = spans.take(order[np.lexsort((began, pair))])
    source, destination = lanes.source[spans.lane], lanes.destination[spans.lane]
    first = np.flatnonzero(_begins(spans, source, destination, quiet_ns))
    return Bursts(
        spans=spans,
        source=source[first],
        destination=destination[first],
        start_ns=spans.start_ns[first],
        last_ns=np.maximum.reduceat(spans.last_ns, first),
        size=np.add.reduceat(spans.size, first),
        first=np.append(first, len(spans)),
    )


def _begins(spans: Spans, source: Ints, destination: Ints, quiet_ns: int) -> Bools:
    """Which spans begin a burst."""
    fresh = _changes(source, destination)
    pair = np.cumsum(fresh) - 1
    # the latest end so far, of the same pair: a shift keeps the pairs before it below
    origin = int(spans.start_ns.min())
    shift = pair * (int(spans.last_ns.max()) - origin + 1)
    latest = np.maximum.accumulate(spans.last_ns - origin + shift) - shift + origin
    fresh[1:] |= spans.start_ns[1:] - latest[:-1] >= quiet_ns
    return fresh


def _changes(*columns: Ints) -> Bools:
    fresh = np.ones(len(columns[0]), dtype=np.bool_)
    fresh[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return fresh
