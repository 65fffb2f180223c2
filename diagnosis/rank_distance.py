"""How near ranks are in time on one kind of communicator: what members of a group have in common.

Members of a collective leave it together, so that they call the next one at a steady distance, and no member goes on
before all have called. Ranks of other groups drift apart until something else brings them together. Logs of calls that
are queued (the host runs ahead of the GPU) break the second rule at times, but those of strangers do so far more often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints

_NEVER = 0.001
"""Added to the share of violations, so that steadiness still counts where there are none."""

_SEPARATE = 3.0
"""Ranks of two groups are so many times as far from each other as those of one."""

_TOLERATED = 0.05
"""Share of violations that lines which are wrong explain."""

_LEAST_SHARED = 8
"""Operators that two ranks must have in common to be compared."""

_MOST_COMPARED = 4096
"""Operators, the newest, that two ranks are compared at."""

_MOST_PAIRS = 64
"""Pairs of ranks that are looked at to choose between groupings."""


@dataclass(frozen=True, slots=True)
class Calls:
    """One rank's calls on one communicator: arrays of shape (n,), sorted by ``key``.

    ``key`` is the same for operators that would meet, ``following_ns`` when the rank called its next operator, on any
    communicator (-1: not known).
    """

    key: Ints
    call_ns: Ints
    following_ns: Ints

    def take(self, rows: Ints) -> Calls:
        """The chosen calls."""
        return Calls(self.key[rows], self.call_ns[rows], self.following_ns[rows])

    def newest(self, most: int) -> Calls:
        """The last ``most`` calls."""
        return Calls(self.key[-most:], self.call_ns[-most:], self.following_ns[-most:])


def distance(one: Calls, other: Calls) -> float:
    """How far two ranks are from each other; inf where they have too little in common.

    The median deviation of their calls' distance (which leaves out what their clocks are apart), weighted by how often
    one goes on before the other has called.
    """
    shared = _shared(one, other)
    if shared is None:
        return np.inf
    a, b = shared
    apart = a.call_ns - b.call_ns
    return (float(np.median(np.abs(apart - np.median(apart)))) + 1.0) * (_NEVER + violations(one, other))


def violations(one: Calls, other: Calls) -> float:
    """In which share of the operators one rank goes on before the other has called; 1: they have too little in common.

    What their clocks are apart is not known; the offset that leaves the fewest counts.
    """
    shared = _shared(one, other)
    if shared is None:
        return 1.0
    a, b = shared
    known = (a.following_ns >= 0) & (b.following_ns >= 0)
    if not known.any():
        return 0.0
    least = np.sort((a.call_ns - b.following_ns)[known])  # the offset is no smaller, or b went on too early
    most = np.sort((a.following_ns - b.call_ns)[known])  # nor greater, or a did
    offsets = np.concatenate([least, most])
    broken = len(least) - np.searchsorted(least, offsets, side="right") + np.searchsorted(most, offsets)
    return float(broken.min()) / len(least)


def _shared(one: Calls, other: Calls) -> tuple[Calls, Calls] | None:
    """The calls of operators that both ranks called; None where these are too few."""
    one, other = one.newest(_MOST_COMPARED), other.newest(_MOST_COMPARED)
    _, a, b = np.intersect1d(one.key, other.key, assume_unique=True, return_indices=True)
    if len(a) < _LEAST_SHARED or 2 * len(a) < min(len(one.key), len(other.key)):
        return None
    return one.take(a), other.take(b)


def block_size(calls: Mapping[int, Calls | None], sizes: Sequence[int]) -> int:
    """The size of the groups that neighbours form: the least of ``sizes`` that tells near from far.

    ``calls`` are those of each place in the order of ranks (None: the rank has no such communicator); of what is not
    there nothing is known. Where no size does, all are one group, of the largest size.
    """
    return next(iter(telling_sizes(calls, sizes)), max(sizes))


def telling_sizes(calls: Mapping[int, Calls | None], sizes: Sequence[int]) -> list[int]:
    """Which sizes of groups tell near from far, ascending."""
    neighbours = _Neighbours.of(calls)
    return [size for size in sorted(sizes) if neighbours.tells(size)]


def clear_block_size(calls: Mapping[int, Calls]) -> int | None:
    """The size of the groups that neighbours form where their number is not known; None where it is not clear.

    Two groups at least show several members, and ranks of two groups go on before the other has called far more often
    than members do.
    """
    neighbours, places = _Neighbours.of(calls), np.array(list(calls))
    broken = np.array([violations(calls[a], calls[b]) for a, b in pairwise(calls)])
    for size in range(2, len(calls)):
        if not neighbours.tells(size) or (np.bincount(places // size) > 1).sum() < 2:
            continue
        between = neighbours.between(size)
        most = max(_TOLERATED, float(np.quantile(broken[~between], 0.9)))
        if np.quantile(broken[between], 0.1, method="lower") > _SEPARATE * most:
            return size
    return None


def shows_strangers(calls: Mapping[int, Calls], size: int) -> bool:
    """Whether some neighbours in groups of a size go on before the other has called far more often than others do."""
    pairs = [(a, b) for a, b in pairwise(calls) if a // size == b // size]
    broken = [violations(calls[a], calls[b]) for a, b in pairs]
    return bool(broken) and max(broken) > _SEPARATE * max(_TOLERATED, min(broken))


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """Places, and how far what is at one is from what is at the next one that is known."""

    place: Ints
    to_next: Floats

    @classmethod
    def of(cls, calls: Mapping[int, Calls | None]) -> _Neighbours:
        known = pairwise(calls.values())
        to_next = [np.inf if one is None or other is None else distance(one, other) for one, other in known]
        return cls(np.array(list(calls)), np.array(to_next))

    def between(self, size: int) -> Bools:
        """Which neighbours are in different groups of a size."""
        return np.diff(self.place // size) > 0

    def tells(self, size: int) -> bool:
        """Whether groups of a size have members that are near, and are far from each other."""
        between = self.between(size)
        inside, outside = self.to_next[~between], self.to_next[between]
        if not len(inside) or not len(outside) or not np.isfinite(inside).all():
            return False
        return bool(np.quantile(outside, 0.1, method="lower") > _SEPARATE * np.quantile(inside, 0.9))


def first_in_step(groupings: Sequence[Sequence[tuple[int, ...]]], calls: Mapping[int, Calls]) -> int | None:
    """The first of several groupings of ranks whose members wait for each other, as far as the calls tell.

    Members without ``calls`` are left out. None where of one of the groupings no group has two that are not.
    """
    broken = []
    for groups in groupings:
        pairs = [pair for group in groups for pair in pairwise(rank for rank in group if rank in calls)]
        if not pairs:
            return None
        step = -(-len(pairs) // _MOST_PAIRS)
        broken.append(float(np.median([violations(calls[a], calls[b]) for a, b in pairs[::step]])))
    return next(i for i, share in enumerate(broken) if share <= max(_TOLERATED, 2 * min(broken)))
