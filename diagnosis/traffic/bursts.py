"""Traffic without a pause: what Algorithm 1 looks at between two silences (Pulse 5.2).

Its condition on time holds only where nothing was sent for ``delta``, so all that matters of the epochs in between is
where they begin and end and what they add up to. One pass over the rows yields that, and what follows is short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.traffic.epochs import Bools, EpochSeries, Ints, Words
from diagnosis.traffic.queue_pairs import Lanes

_BLOCK = 1 << 17
"""Rows at a time, so that what is worked out of them stays in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Bursts:
    """What each pair of ranks sent between silences.

    A piece is what one lane sent: rows ``low`` to ``high`` of the series, shape (pieces,), sorted by burst. A burst is
    what all lanes between two ranks sent without a common silence: from ``start_ns`` to ``last_ns``, the beginning of
    its last epoch; ``size`` in bytes; ``first_piece`` to the next one's are its pieces, shape (bursts,), sorted by
    source, destination and time.
    """

    lane: Ints
    low: Ints
    high: Ints
    source: Ints
    destination: Ints
    start_ns: Ints
    last_ns: Ints
    size: Ints
    first_piece: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def pieces(self, burst: int) -> slice:
        """The pieces of one burst."""
        end = self.first_piece[burst + 1] if burst + 1 < len(self) else len(self.low)
        return slice(int(self.first_piece[burst]), int(end))


def find_bursts(series: EpochSeries, lanes: Lanes, quiet_ns: int) -> Bursts:
    """The bursts of each pair of ranks, between silences of at least ``quiet_ns`` (``delta``)."""
    lane, low, high = _pieces(series, lanes, quiet_ns)
    if not len(low):
        none = np.zeros(0, dtype=np.int64)
        return Bursts(none, none, none, none, none, none, none, none, none)
    size = sums(series.units, low, high) * series.unit_bytes
    start, last = series.start_ns[low], series.start_ns[high - 1]
    order = np.lexsort((start, lanes.destination[lane], lanes.source[lane]))
    lane, low, high, size, start, last = (column[order] for column in (lane, low, high, size, start, last))
    source, destination = lanes.source[lane], lanes.destination[lane]
    pair = np.cumsum(_changes(source, destination)) - 1
    # the latest end so far, of the same pair: a shift keeps the pairs before it below
    origin = int(start.min())
    shift = pair * (int(last.max()) - origin + 1)
    latest = np.maximum.accumulate(last - origin + shift) - shift + origin
    fresh = _changes(pair, np.zeros_like(pair))
    fresh[1:] |= start[1:] - latest[:-1] >= quiet_ns
    first = np.flatnonzero(fresh)
    return Bursts(
        lane=lane,
        low=low,
        high=high,
        source=source[first],
        destination=destination[first],
        start_ns=start[first],
        last_ns=np.maximum.reduceat(last, first),
        size=np.add.reduceat(size, first),
        first_piece=first,
    )


def _pieces(series: EpochSeries, lanes: Lanes, quiet_ns: int) -> tuple[Ints, Ints, Ints]:
    """Lane, first row and end of what each lane sent between silences."""
    by_row = np.argsort(lanes.low)
    low, high = lanes.low[by_row], lanes.high[by_row]
    if not len(low):
        return by_row, low, high
    pauses = _pauses(series.start_ns, quiet_ns)
    cuts = np.unique(np.concatenate((pauses, low, high)))
    at = np.searchsorted(low, cuts, side="right") - 1
    inside = (at >= 0) & (cuts < high[np.maximum(at, 0)])
    begins = np.flatnonzero(inside)
    return by_row[at[begins]], cuts[begins], cuts[begins + 1]


def _pauses(start_ns: Ints, quiet_ns: int) -> Ints:
    """Rows before which nothing was sent for as long; also where a queue pair's rows end, which is cut anyway."""
    found = []
    for block in range(0, len(start_ns) - 1, _BLOCK):
        times = start_ns[block : block + _BLOCK + 1]
        found.append(np.flatnonzero(times[1:] - times[:-1] >= quiet_ns) + (block + 1))
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def sums(values: Words, low: Ints, high: Ints) -> Ints:
    """What the values of each of these disjoint, ascending spans of rows add up to."""
    edges = np.stack((low, high), axis=1).ravel()
    edges = edges[:-1] if edges[-1] == len(values) else edges
    return np.add.reduceat(values, edges)[::2].astype(np.int64)


def _changes(*columns: Ints) -> Bools:
    fresh = np.ones(len(columns[0]), dtype=np.bool_)
    fresh[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return fresh
