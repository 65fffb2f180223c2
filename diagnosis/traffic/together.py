"""What operators sent in each epoch, all queue pairs together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.traffic.epochs import Words
from diagnosis.traffic.ports import Ports, Spans

_AT_ONCE = 1 << 22
"""Epochs that are added up at a time."""

_BLOCK = 1 << 15
"""Rows at a time, or a span more, so that what is worked out of them stays in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """The active epochs of some ``operators`` (numbers): which of them each belongs to (its place), the operator's
    epoch that it is, and the units sent in it; shape (active,), sorted by operator and time."""

    operators: Ints
    place: Ints
    epoch: Ints
    units: Floats

    @property
    def active(self) -> Ints:
        """How many active epochs each operator has; shape (operators,)."""
        return np.bincount(self.place, minlength=len(self.operators))

    def silences(self) -> tuple[Ints, Ints]:
        """The operator's place, and length in epochs, of each silence inside of one."""
        silent = np.diff(self.epoch) - 1
        inside = (np.diff(self.place) == 0) & (silent > 0)
        return self.place[1:][inside], silent[inside]

    def quantile(self, share: float) -> Floats:
        """A quantile of the units in each operator's active epochs, with linear interpolation; shape (operators,)."""
        count, ordered = self.active, self.units.copy()
        first = np.cumsum(count) - count
        for low, high in zip(first.tolist(), (first + count).tolist(), strict=True):
            ordered[low:high].sort()  # one by one: a sort of all by two keys takes ten times as long
        at = (count - 1) * share
        below = np.floor(at)
        lower = ordered[first + below.astype(np.int64)]
        upper = ordered[first + np.minimum(below.astype(np.int64) + 1, count - 1)]
        part = at - below
        return np.asarray(np.where(part < 0.5, lower + (upper - lower) * part, upper - (upper - lower) * (1 - part)))


def together(ports: Ports, spans: Spans, operator: Ints, start_ns: Ints, end_ns: Ints) -> Iterator[Together]:
    """What operators sent in their ``spans``, of each of which ``operator`` is told: some operators at a time.

    ``start_ns`` and ``end_ns``: of the first and the last traffic of each operator; shape (operators,).
    """
    order = np.argsort(operator, kind="stable")
    spans, operator = spans.take(order), operator[order]
    begins = np.flatnonzero(np.diff(operator, prepend=-1))
    names = operator[begins]
    # clocks are aligned anew at each poll, so epochs lie on one grid only up to their half
    first_ns = start_ns[names] - ports.epoch_ns // 2
    lengths = (end_ns[names] - first_ns) // ports.epoch_ns + 1
    ends = np.append(begins, len(operator))[1:]
    low = 0
    while low < len(names):
        high = max(low + 1, int(np.searchsorted(np.cumsum(lengths[low:]), _AT_ONCE, side="right")) + low)
        rows = slice(int(begins[low]), int(ends[high - 1]))
        place = np.repeat(np.arange(high - low), (ends - begins)[low:high])
        some = spans.take(rows)
        offset = np.cumsum(lengths[low:high]) - lengths[low:high]
        sent = _sent(ports, some, offset[place], first_ns[low:high][place])
        active, units = _added_up(sent, int(lengths[low:high].sum()))
        own = np.searchsorted(offset, active, side="right") - 1
        yield Together(names[low:high], own, active - offset[own], units)
        low = high


def _added_up(sent: Iterable[tuple[Ints, Floats]], length: int) -> tuple[Ints, Floats]:
    """The places, of ``length``, that anything was sent in, ascending, and how much."""
    if length <= _AT_ONCE:
        units = np.zeros(length)
        for place, own in sent:
            np.add.at(units, place, own)
        active = np.flatnonzero(units)
        return active, units[active]
    # one operator that lasts so long: what it takes is bounded by what was told, not by how long that is said to be
    places, parts = (np.concatenate(column) for column in zip(*sent, strict=True))
    active, which = np.unique(places, return_inverse=True)
    added = np.asarray(np.bincount(which, weights=parts), dtype=np.float64)
    return active[added > 0], added[added > 0]


def _sent(ports: Ports, spans: Spans, offset: Ints, first_ns: Ints) -> Iterator[tuple[Ints, Floats]]:
    """Place and units of the rows of spans; ``offset`` is the place of the epoch that begins at ``first_ns``."""
    order = np.lexsort((spans.low, spans.part))
    spans = spans.take(order)
    shift = offset[order] + (ports.began_ns[spans.part] - first_ns[order]) // ports.epoch_ns
    rows = spans.high - spans.low
    fresh = np.diff(spans.part, prepend=-1) | np.diff(np.cumsum(rows) // _BLOCK, prepend=-1)
    for low, high in pairwise([*np.flatnonzero(fresh).tolist(), len(spans)]):
        own = slice(low, high)
        epoch, units = _rows(ports, int(spans.part[low]), spans.low[own], spans.high[own])
        place = np.repeat(shift[own], rows[own])
        place += epoch
        yield place, units.astype(np.float64)


def _rows(ports: Ports, part: int, low: Ints, high: Ints) -> tuple[Words, Words]:
    """Epoch and units of ascending, disjoint rows of a part."""
    poll = ports.parts[part].poll
    # what a queue pair sent for one operator after the other lies together
    apart = np.flatnonzero(low[1:] != high[:-1])
    runs = zip(low[np.append(0, apart + 1)].tolist(), high[np.append(apart, len(high) - 1)].tolist(), strict=True)
    epochs, units = zip(*((poll.epoch[begin:end], poll.units[begin:end]) for begin, end in runs), strict=True)
    return np.concatenate(epochs), np.concatenate(units)
