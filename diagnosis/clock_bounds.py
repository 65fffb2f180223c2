"""How far two clocks may be apart, by causality: nobody is done, nor calls its next operator, before the last member
has entered this one. That bounds the offset in each iteration, and bounds of several tell a line, as clocks drift.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.clock_pairs import MOST_DRIFT, Moments, Pair, Pairs, at_moments, grouped, meetings, slopes
from diagnosis.operators import ONE_SIDED, UNKNOWN, Operators

_STEADY = 3.0
"""Drift shows by the middles of the bounds if it moves them by more than this many times as far as any is off its
line."""

_WORTH = 0.5
"""Where they scatter more, drift must be told by bounds that are more than this share of the time apart."""

_LEAST_MIDDLES = 4
"""Fewer iterations with bounds on both sides do not show by how much their middles scatter."""

_AT_ONCE = 1_000_000
"""Numbers that are worked out together, of as many pairs of clocks as that are."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the second clock of a pair may be ahead of the first, at each operator that tells: no further than
    ``most``, no less than ``least``, shape (m,) each, with the iterations that they are of.
    """

    most: Ints
    most_in: Ints
    least: Ints
    least_in: Ints

    @property
    def crossed_ns(self) -> int:
        """By how much the bounds contradict each other; 0: not at all."""
        return max(0, int(self.least.max() - self.most.min())) if self.both_ways else 0

    @property
    def both_ways(self) -> bool:
        """Whether the offset is bounded on either side."""
        return bool(len(self.most) and len(self.least))

    def of(self, iteration: int) -> Self:
        """Those of one iteration."""
        high, low = self.most_in == iteration, self.least_in == iteration
        return type(self)(self.most[high], self.most_in[high], self.least[low], self.least_in[low])

    def joined(self, other: Self) -> Self:
        """Both together."""
        both = (np.r_[getattr(self, name), getattr(other, name)] for name in ("most", "most_in", "least", "least_in"))
        return type(self)(*both)


def causal_bounds(operators: Operators, clock: Ints, rows: Ints) -> dict[tuple[int, int], Bounds]:
    """What causality says of each pair of clocks: nobody is done, nor goes on, before the last one has entered.

    ``rows`` as ``by_communication`` has them.
    """
    left, right = meetings(rows, operators, clock)
    following = np.where(operators.ended, operators.end_ns, operators.next_calls)
    proves = (following != UNKNOWN) & ~operators.is_op("send", *ONE_SIDED)
    found = {}
    for pair, at in grouped(clock[left], clock[right]).items():
        a, b = left[at], right[at]
        a_before_b, b_before_a = proves[b], proves[a]
        found[pair] = Bounds(
            (following[b] - operators.call_ns[a])[a_before_b],
            operators.iteration[a][a_before_b],
            (operators.call_ns[b] - following[a])[b_before_a],
            operators.iteration[a][b_before_a],
        )
    return found


def by_causality(bounds: Mapping[tuple[int, int], Bounds], moments: Moments) -> Pairs[int]:
    """Offset between the two bounds that causality sets: the middle, with half the interval as its error.

    Where all messages go one way there is one bound, and no saying how far off it is: the quickest message's time.
    """
    lines = iter(_lines([of for of in bounds.values() if of.both_ways], moments))
    found: Pairs[int] = {}
    for pair, of in bounds.items():
        if of.both_ways:
            found[pair] = next(lines)
        elif len(of.most) or len(of.least):
            found[pair] = Pair(int(of.most.min() if len(of.most) else of.least.max()), math.inf)
    return found


def _lines(bounded: Sequence[Bounds], moments: Moments) -> list[Pair]:
    """A line for each pair of clocks, between its tightest bounds; pairs that met in the same iterations are worked out
    together.
    """
    if not bounded:
        return []
    iterations = np.unique(np.concatenate([part for of in bounded for part in (of.most_in, of.least_in)]))
    at = at_moments(moments, iterations)
    most, has_most = _tightest(((of.most, of.most_in) for of in bounded), iterations, np.minimum)
    least, has_least = _tightest(((of.least, of.least_in) for of in bounded), iterations, np.maximum)
    alike, of_pair = np.unique(np.hstack([has_most, has_least]), axis=0, return_inverse=True)
    found: dict[int, Pair] = {}
    for group, known in enumerate(alike):
        highs, lows = np.flatnonzero(known[: len(at)]), np.flatnonzero(known[len(at) :])
        own = np.flatnonzero(of_pair.ravel() == group)
        at_once = max(1, _AT_ONCE // max(len(highs), len(lows)) ** 3)
        for rows in np.split(own, range(at_once, len(own), at_once)):
            told = _Bounded(most[np.ix_(rows, highs)], at[highs], least[np.ix_(rows, lows)], at[lows]).lines()
            found.update(zip(rows.tolist(), told, strict=True))
    return [found[pair] for pair in range(len(bounded))]


def _tightest(bounds: Iterable[tuple[Ints, Ints]], iterations: Ints, tighter: np.ufunc) -> tuple[Ints, Bools]:
    """The tightest bound of each pair of clocks in each iteration, and whether there is any; shape (pairs, iterations).

    ``bounds`` of each pair come with the iterations that they are of.
    """
    values, of = zip(*bounds, strict=True)
    pair = np.repeat(np.arange(len(values)), [len(each) for each in values])
    cell = pair * len(iterations) + np.searchsorted(iterations, np.concatenate(of))
    widest = np.iinfo(np.int64).max if tighter is np.minimum else np.iinfo(np.int64).min
    found = np.full(len(values) * len(iterations), widest)
    tighter.at(found, cell, np.concatenate(values))
    known = np.zeros(len(found), dtype=np.bool_)
    known[cell] = True
    shape = len(values), len(iterations)
    return found.reshape(shape), known.reshape(shape)


@dataclass(frozen=True, slots=True)
class _Bounded:
    """The tightest bounds of some pairs of clocks that met in the same iterations, and when these began (``Moments``).

    ``most`` has shape (pairs, k), ``most_at`` (k,), ``least`` (pairs, m), ``least_at`` (m,).
    """

    most: Ints
    most_at: Ints
    least: Ints
    least_at: Ints

    def lines(self) -> Iterator[Pair]:
        """Of each pair a line no higher than ``most``, no lower than ``least``: that of the middles of the bounds,
        where these lie on one, else the one that leaves most room on either side.

        Both bounds are off by how long the quickest messages take; what slows these slows both ways alike, so that the
        middles lie on a line even where the fault comes amid the iterations. The line with most room is one through two
        of the bounds (as many slopes as there are pairs), or a level one.
        """
        level = np.zeros((len(self.most), 1))
        told = np.hstack([level, slopes(self.most_at, self.most), slopes(self.least_at, self.least)])
        high, low = self._room(told)
        steep = np.abs(told)
        worth = high - low - _WORTH * np.ptp(np.r_[self.most_at, self.least_at]) * steep
        best = np.where(steep <= MOST_DRIFT, worth, -np.inf).argmax(axis=1)[:, None]
        slope, highest, lowest = (np.take_along_axis(of, best, axis=1)[:, 0] for of in (told, high, low))
        ahead = (highest + lowest) / 2
        if (middles := self._lines_of_middles()) is not None:
            drift, height, drifts = middles
            above, below = (of[:, 0] for of in self._room(drift[:, None]))
            taken = drifts & (below <= height) & (height <= above)
            slope, ahead = np.where(taken, drift, slope), np.where(taken, height, ahead)
            highest, lowest = np.where(taken, above, highest), np.where(taken, below, lowest)
        error = np.maximum(np.abs(highest - ahead), np.abs(ahead - lowest))
        for of_pair in zip((ahead // 1).tolist(), error.tolist(), slope.tolist(), strict=True):
            yield Pair(int(of_pair[0]), int(of_pair[1]) + 1, of_pair[2])

    def _room(self, slope: Floats) -> tuple[Floats, Floats]:
        """How high and how low lines of some slopes, shape (pairs, n), may be where ``at`` is 0."""
        high = self.most[:, None, :] - slope[:, :, None] * self.most_at
        low = self.least[:, None, :] - slope[:, :, None] * self.least_at
        return high.min(axis=2), low.max(axis=2)

    def _lines_of_middles(self) -> tuple[Floats, Floats, Bools] | None:
        """Slope and height (where ``at`` is 0) of the lines through the middles of the bounds, and which of them tell a
        drift, as their middles scatter less; None: these are too few.
        """
        at, of_most, of_least = np.intersect1d(self.most_at, self.least_at, return_indices=True)
        if len(at) < _LEAST_MIDDLES:
            return None
        middle = (self.most[:, of_most] + self.least[:, of_least]) / 2
        slope = np.median(slopes(at, middle), axis=1)
        level = middle - slope[:, None] * at
        height = np.median(level, axis=1)
        scatter = np.abs(level - height[:, None]).max(axis=1)
        return slope, height, (_STEADY * scatter < np.abs(slope) * np.ptp(at)) & (np.abs(slope) <= MOST_DRIFT)
