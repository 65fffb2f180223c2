"""How far two clocks are apart, told by what their hosts took part in together.

A collective ends for all its members at once, so the ends that two hosts logged for it tell the offset: a line, by
when iterations began, as clocks drift meanwhile. What causality says of it is in ``clock_bounds.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.numbering import order_of
from diagnosis.operators import UNKNOWN, Operators

_MEETINGS = 64
"""Meetings, the newest, that a pair of clocks is compared at: clocks drift, and more hardly sharpen a median."""

_LEAST_MEETINGS = 9
"""With fewer, ends that were logged late could pass for an offset: the least and the greatest of n bound their
median but for a chance of 2 in 2^n."""

MOST_DRIFT = 1e-4
"""Quartz is off by some 10 to 50 ppm; what looks like more is something else."""

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


def by_communication(operators: Operators, clock: Ints) -> Ints:
    """The rows of a known communication and clock: those of one communication together, by clock; shape (k,)."""
    keys = operators.meeting_keys
    known = np.flatnonzero((keys != UNKNOWN) & (clock != UNKNOWN))
    width = int(clock[known].max(initial=0)) + 1
    return known[order_of(keys[known] * width + clock[known])]


def meetings(rows: Ints, operators: Operators, clock: Ints) -> tuple[Ints, Ints]:
    """Of rows ``by_communication`` the pairs on neighbouring clocks, lower clock first; shape (m,) each."""
    key, of = operators.meeting_keys[rows], clock[rows]
    at = np.flatnonzero((key[1:] == key[:-1]) & (of[1:] != of[:-1]))
    return rows[at], rows[at + 1]


def by_ends(left: Ints, right: Ints, clock: Ints, operators: Operators, moments: Moments) -> Pairs[int]:
    """The median, and how far the median's 3-sigma interval reaches, whatever the distribution: order statistics.

    The drift is the median slope between the medians of two iterations (Theil-Sen).
    """
    found: Pairs[int] = {}
    end_ns, at = operators.end_ns, at_moments(moments, operators.iteration)
    for pair, rows in grouped(clock[left], clock[right]).items():
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
    between = slopes(at[middle], apart[middle])
    drift = float(np.median(between)) if len(between) else 0.0
    return drift if abs(drift) <= MOST_DRIFT else 0.0


def slopes(at: Ints, values: Ints | Floats) -> Floats:
    """Between each two of the values, shape (..., n), that are of different moments, shape (n,)."""
    one, other = np.triu_indices(len(at), 1)
    apart = at[one] != at[other]
    one, other = one[apart], other[apart]
    return np.asarray((values[..., other] - values[..., one]) / (at[other] - at[one]), dtype=np.float64)


def grouped(first: Ints, second: Ints) -> dict[tuple[int, int], Ints]:
    """Rows of each distinct pair."""
    width = int(second.max(initial=0)) + 1
    code = first * width + second
    order = order_of(code)
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
