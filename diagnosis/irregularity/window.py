"""What an operator usually lasts: statistics of its durations over the log agent's window (Holmes 4.2.2).

A row is one operator of the iteration's cycle: a rank, a communicator and the position within iteration and
communicator. The agent computes them next to its log, so that a search fetches six numbers an operator instead of
a window of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Self

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.numbering import numbered
from diagnosis.operators import UNKNOWN, Operators

QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class WindowStatistics:
    """A row an operator; every array has shape (n,), durations are in ns.

    ``communicator`` indexes ``communicators``. ``count`` is how many durations are known; ``std`` is the sample
    standard deviation (0 of a single duration); the quartiles are interpolated linearly, as NumPy's are by default.
    """

    rank: Ints
    communicator: Ints
    position: Ints
    count: Ints
    mean: Floats
    std: Floats
    q1: Floats
    q2: Floats
    q3: Floats
    communicators: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rank)

    @classmethod
    def of(
        cls, rank: Ints, communicator: Ints, position: Ints, duration_ns: Floats, communicators: Sequence[str]
    ) -> Self:
        """Of the durations of shape (n,) of a window, in any order.

        NaN: not known, and left out; so is what has no rank, communicator or position (``UNKNOWN``).
        """
        lowest = min(int(column.min(initial=0)) for column in (rank, communicator, position))
        if lowest < 0 or np.isnan(duration_ns.min(initial=0.0)):
            known = (rank >= 0) & (communicator >= 0) & (position >= 0) & ~np.isnan(duration_ns)
            rank, communicator, position = rank[known], communicator[known], position[known]
            duration_ns = duration_ns[known]
        if not len(rank):
            return replace(cls.empty(), communicators=tuple(communicators))
        sizes = tuple(int(column.max()) + 1 for column in (rank, communicator, position))
        operator, ordered = _sorted_within(_coded((rank, communicator, position), sizes), duration_ns)
        first = np.flatnonzero(np.r_[True, operator[1:] != operator[:-1]])
        count = np.diff(np.r_[first, len(operator)])
        mean = np.add.reduceat(ordered, first) / count
        squares = (ordered - np.repeat(mean, count)) ** 2
        spread = np.add.reduceat(squares, first) / np.maximum(count - 1, 1)
        q1, q2, q3 = (_interpolated(ordered, first, count, share) for share in QUARTILES)
        ranks, names, places = np.unravel_index(operator[first], sizes)
        return cls(ranks, names, places, count, mean, np.sqrt(spread), q1, q2, q3, tuple(communicators))

    @classmethod
    def of_operators(cls, operators: Operators, duration_ns: Floats) -> Self:
        """Of a window's operators and their durations, of shape (n,); as ``of``."""
        place = (operators.rank, operators.communicator, operators.position)
        return cls.of(*place, duration_ns, operators.communicators)

    def rows(self, rank: Ints, communicator: Ints, position: Ints, communicators: Sequence[str]) -> Ints:
        """Which row speaks of each operator asked about; ``UNKNOWN`` where none does. All of shape (m,).

        ``communicator`` indexes the ``communicators`` given, which need not be those of the statistics.
        """
        place = {name: code for code, name in enumerate(self.communicators)}
        codes = np.array([*(place.get(name, UNKNOWN) for name in communicators), UNKNOWN], dtype=np.int64)
        joined = (np.r_[self.rank, rank], np.r_[self.communicator, codes[communicator]], np.r_[self.position, position])
        keys = numbered(*joined)
        row_of = np.full(int(keys.max(initial=UNKNOWN)) + 2, UNKNOWN, dtype=np.int64)  # the last one is of UNKNOWN
        row_of[keys[: len(self)]] = np.arange(len(self))
        row_of[UNKNOWN] = UNKNOWN
        return row_of[keys[len(self) :]]

    def take(self, index: Ints | Bools) -> Self:
        """The chosen rows, in the chosen order."""
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "communicators"}
        return replace(self, **columns)

    @classmethod
    def joined(cls, parts: Sequence[WindowStatistics]) -> Self:
        """The rows of several agents, one after the other."""
        if not parts:
            return cls.empty()
        names = tuple(sorted({name for part in parts for name in part.communicators}))
        place = {name: code for code, name in enumerate(names)}
        renamed = []
        for part in parts:
            codes = np.array([*(place[name] for name in part.communicators), UNKNOWN], dtype=np.int64)
            renamed.append(replace(part, communicator=codes[part.communicator]))
        columns = [f.name for f in fields(cls) if f.name != "communicators"]
        joined = {name: np.concatenate([getattr(part, name) for part in renamed]) for name in columns}
        return cls(**joined, communicators=names)

    @classmethod
    def empty(cls) -> Self:
        """No rows."""
        ints, floats = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(ints, ints, ints, ints, floats, floats, floats, floats, floats, ())


def _coded(columns: tuple[Ints, ...], sizes: tuple[int, ...]) -> Ints:
    """One number for each combination; ``np.unravel_index`` takes it apart."""
    if prod(sizes) > np.iinfo(np.int64).max:
        raise ValueError(f"{' x '.join(map(str, sizes))} ranks, communicators and positions are no log's")
    code = columns[0].astype(np.int64)
    for column, size in zip(columns[1:], sizes[1:], strict=True):  # in place: a tenth of ravel_multi_index's time
        code *= size
        code += column
    return code


def _sorted_within(operator: Ints, duration_ns: Floats) -> tuple[Ints, Floats]:
    """Operators and their durations, sorted by both.

    A window holds a million durations. Whole ones are sorted together with their operator as one number, which takes
    a tenth of the time.
    """
    longest = float(duration_ns.max())
    bits = int(longest).bit_length()
    whole = duration_ns.astype(np.int64) if duration_ns.min() >= 0 and longest < 1 << 52 else None
    if whole is None or int(operator.max()).bit_length() + bits > 63 or (whole != duration_ns).any():
        order = np.lexsort((duration_ns, operator))
        return operator[order], duration_ns[order]
    both = operator << bits
    both |= whole
    both.sort()
    ordered = both >> bits
    both &= (1 << bits) - 1
    return ordered, both.astype(np.float64)


def _interpolated(ordered: Floats, first: Ints, count: Ints, share: float) -> Floats:
    """The quantile of each group of sorted values, which begins at ``first`` and has ``count`` members."""
    place = (count - 1) * share
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, count - 1)
    low, high = ordered[first + below], ordered[first + above]
    return np.asarray(low + (high - low) * (place - below), dtype=np.float64)
