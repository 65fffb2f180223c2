"""How far two clocks are apart, told by what their hosts took part in together.

A collective ends for all its members at once, so the ends that two hosts logged for it tell the offset. Causality
bounds it: nobody is done, nor calls its next operator, before the last member has entered this one. Both tell a line,
by when iterations began: meanwhile clocks drift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Floats, Ints
from diagnosis.operators import ONE_SIDED, UNKNOWN, Operators

_MEETINGS = 64
"""Meetings, the newest, that a pair of clocks is compared at: clocks drift, and more hardly sharpen a median."""

_LEAST_MEETINGS = 9
"""With fewer, ends that were logged late could pass for an offset: the least and the greatest of n bound their
median but for a chance of 2 in 2^n."""

_MOST_DRIFT = 1e-4
"""Quartz is off by some 10 to 50 ppm; what looks like more is something else."""

_STEADY = 3.0
"""Where causality alone tells, drift shows by the middles of the bounds if it moves them by more than this many times
as far as any is off its line."""

_WORTH = 0.5
"""Where they scatter more, drift must be told by bounds that are more than this share of the time apart."""

_LEAST_MIDDLES = 4
"""Fewer iterations with bounds on both sides do not show by how much their middles scatter."""

Moments = Mapping[int, int]
"""When each iteration began, in ns before the newest one (0 or less)."""


class Pair(NamedTuple):
    """How far the second clock of a pair is ahead of the first by the newest iteration, and how far that may be off, in
    ns; and by how much it gains on it.
    """

    ahead_ns: int
    error_ns: float
    drift: float = 0.0


Clock = TypeVar("Clock", int, str)
Pairs = dict[tuple[Clock, Clock], Pair]
"""The clocks that met."""


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
        return max(0, int(self.least.max() - self.most.min())) if len(self.most) and len(self.least) else 0

    def tightest(self, moments: Moments) -> tuple[Ints, Ints, Ints, Ints]:
        """The tightest of each iteration: (most, when, least, when), whens as ``moments``."""
        most_in, most_of = np.unique(self.most_in, return_inverse=True)
        most = np.full(len(most_in), np.iinfo(np.int64).max)
        np.minimum.at(most, most_of, self.most)
        least_in, least_of = np.unique(self.least_in, return_inverse=True)
        least = np.full(len(least_in), np.iinfo(np.int64).min)
        np.maximum.at(least, least_of, self.least)
        return most, at_moments(moments, most_in), least, at_moments(moments, least_in)

    def of(self, iteration: int) -> Self:
        """Those of one iteration."""
        high, low = self.most_in == iteration, self.least_in == iteration
        return type(self)(self.most[high], self.most_in[high], self.least[low], self.least_in[low])

    def joined(self, other: Self) -> Self:
        """Both together."""
        both = (np.r_[getattr(self, name), getattr(other, name)] for name in ("most", "most_in", "least", "least_in"))
        return type(self)(*both)


def by_communication(operators: Operators, clock: Ints) -> Ints:
    """The rows of a known communication and clock: those of one communication together, by clock; shape (k,)."""
    keys = operators.meeting_keys
    known = np.flatnonzero((keys != UNKNOWN) & (clock != UNKNOWN))
    width = int(clock[known].max(initial=0)) + 1
    return known[np.argsort(keys[known] * width + clock[known], kind="stable")]


def meetings(rows: Ints, operators: Operators, clock: Ints) -> tuple[Ints, Ints]:
    """Of rows ``by_communication`` the pairs on neighbouring clocks, lower clock first; shape (m,) each."""
    key, of = operators.meeting_keys[rows], clock[rows]
    at = np.flatnonzero((key[1:] == key[:-1]) & (of[1:] != of[:-1]))
    return rows[at], rows[at + 1]


def causal_bounds(operators: Operators, clock: Ints, rows: Ints) -> dict[tuple[int, int], Bounds]:
    """What causality says of each pair of clocks: nobody is done, nor goes on, before the last one has entered.

    ``rows`` as ``by_communication`` has them.
    """
    left, right = meetings(rows, operators, clock)
    following = np.where(operators.ended, operators.end_ns, operators.next_calls)
    proves = (following != UNKNOWN) & ~operators.is_op("send", *ONE_SIDED)
    found = {}
    for pair, at in _grouped(clock[left], clock[right]).items():
        a, b = left[at], right[at]
        a_before_b, b_before_a = proves[b], proves[a]
        found[pair] = Bounds(
            (following[b] - operators.call_ns[a])[a_before_b],
            operators.iteration[a][a_before_b],
            (operators.call_ns[b] - following[a])[b_before_a],
            operators.iteration[a][b_before_a],
        )
    return found


def by_ends(left: Ints, right: Ints, clock: Ints, operators: Operators, moments: Moments) -> Pairs[int]:
    """The median, and how far the median's 3-sigma interval reaches, whatever the distribution: order statistics.

    The drift is the median slope between the medians of two iterations (Theil-Sen).
    """
    found: Pairs[int] = {}
    end_ns, at = operators.end_ns, at_moments(moments, operators.iteration)
    for pair, rows in _grouped(clock[left], clock[right]).items():
        if len(rows) < _LEAST_MEETINGS:
            continue
        apart = end_ns[right[rows]] - end_ns[left[rows]]
        drift = _drift_by_ends(apart, at[left[rows]])
        newest = np.argsort(end_ns[left[rows]], kind="stable")[-_MEETINGS:]
        ahead = np.sort(apart[newest] - np.rint(drift * at[left[rows[newest]]]).astype(np.int64))
        outside = max(0, int(len(ahead) / 2 - 1.5 * np.sqrt(len(ahead))))
        middle = int(np.median(ahead))
        error = int(max(middle - ahead[outside], ahead[-1 - outside] - middle)) + 1
        found[pair] = Pair(middle, error, drift)
    return found


def _drift_by_ends(apart: Ints, at: Ints) -> float:
    """By how much two clocks part in time, told by meetings (shape (m,)) of enough iterations; 0 where these do not."""
    order = np.lexsort((apart, at))
    begins = np.flatnonzero(np.r_[True, np.diff(at[order]) != 0])
    count = np.diff(np.r_[begins, len(order)])
    enough = count >= _LEAST_MEETINGS
    middle = order[(begins + count // 2)[enough]]
    slopes = _slopes(at[middle], apart[middle])
    drift = float(np.median(slopes)) if len(slopes) else 0.0
    return drift if abs(drift) <= _MOST_DRIFT else 0.0


def _slopes(at: Ints, values: Ints | Floats) -> Floats:
    """Between each two of the values that are of different moments."""
    one, other = np.triu_indices(len(at), 1)
    run = at[other] - at[one]
    return np.asarray((values[other] - values[one])[run != 0] / run[run != 0], dtype=np.float64)


def by_causality(bounds: Mapping[tuple[int, int], Bounds], moments: Moments) -> Pairs[int]:
    """Offset between the two bounds that causality sets: the middle, with half the interval as its error.

    Where all messages go one way there is one bound, and no saying how far off it is: the quickest message's time.
    """
    found: Pairs[int] = {}
    for pair, of in bounds.items():
        if len(of.most) and len(of.least):
            found[pair] = _line_between(*of.tightest(moments))
        elif len(of.most) or len(of.least):
            found[pair] = Pair(int(of.most.min() if len(of.most) else of.least.max()), math.inf)
    return found


def _line_between(most: Ints, most_at: Ints, least: Ints, least_at: Ints) -> Pair:
    """A line no higher than ``most``, no lower than ``least``: that of the middles of the bounds, where these lie on
    one, else the one that leaves most room on either side.

    Both bounds are off by how long the quickest messages take; what slows these slows both ways alike, so that the
    middles lie on a line even where the fault comes amid the iterations. The line with most room is one through two of
    the bounds (as many slopes as there are pairs), or a level one.
    """

    def room(slope: npt.NDArray[np.float64]) -> tuple[Floats, Floats]:
        return (most - slope * most_at).min(axis=-1), (least - slope * least_at).max(axis=-1)

    told = np.r_[0.0, _slopes(most_at, most), _slopes(least_at, least)]
    slopes = told[np.abs(told) <= _MOST_DRIFT]
    high, low = room(slopes[:, None])
    span = np.ptp(np.r_[most_at, least_at])
    best = int(np.argmax(high - low - _WORTH * span * np.abs(slopes)))
    slope, ahead, highest, lowest = slopes[best], (high[best] + low[best]) / 2, high[best], low[best]
    if (line := _line_of_middles(most, most_at, least, least_at)) is not None:
        above, below = room(np.asarray(line[0]))
        if below <= line[1] <= above:
            (slope, ahead), highest, lowest = line, above, below
    return Pair(int(ahead // 1), int(max(abs(highest - ahead), abs(ahead - lowest))) + 1, float(slope))


def _line_of_middles(most: Ints, most_at: Ints, least: Ints, least_at: Ints) -> tuple[float, float] | None:
    """Slope and height (where ``at`` is 0) of the line through the middles of the bounds; None: they scatter too much
    to tell a drift, or are too few.
    """
    at, of_most, of_least = np.intersect1d(most_at, least_at, return_indices=True)
    if len(at) < _LEAST_MIDDLES:
        return None
    middle = (most[of_most] + least[of_least]) / 2
    slope = float(np.median(_slopes(at, middle)))
    height = float(np.median(middle - slope * at))
    scatter = float(np.abs(middle - slope * at - height).max())
    drifts = _STEADY * scatter < abs(slope) * np.ptp(at) and abs(slope) <= _MOST_DRIFT
    return (slope, height) if drifts else None


def _grouped(first: Ints, second: Ints) -> dict[tuple[int, int], Ints]:
    """Rows of each distinct pair."""
    width = int(second.max(initial=0)) + 1
    code = first * width + second
    order = np.argsort(code, kind="stable")
    begins = np.flatnonzero(np.diff(code[order], prepend=-1))
    rows = np.split(order, begins[1:])
    return {divmod(int(code[of[0]]), width): of for of in rows if len(of)}


def at_moments(moments: Moments, iterations: Ints) -> Ints:
    """The moment of each row's iteration; 0 where it is not known."""
    known = np.array(sorted(moments), dtype=np.int64)
    if not len(known):
        return np.zeros(len(iterations), dtype=np.int64)
    place = np.minimum(np.searchsorted(known, iterations), len(known) - 1)
    return np.where(known[place] == iterations, np.array([moments[of] for of in known.tolist()])[place], 0)
