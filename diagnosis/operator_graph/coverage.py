"""How much of what a search asked for has come, as far as lost lines and silent ranks show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median_low
from typing import NamedTuple, Self

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.numbering import numbered
from diagnosis.operator_graph.needs import Need
from diagnosis.operators import UNKNOWN, Operators


class Came(NamedTuple):
    """Rows that came, and rows that were asked for and did not."""

    rows: int = 0
    lost: int = 0

    @property
    def share(self) -> float:
        """From 0 to 1; 1 where none were asked for."""
        return self.rows / (self.rows + self.lost) if self.rows + self.lost else 1.0

    def plus(self, other: Came) -> Came:
        """Both together."""
        return Came(self.rows + other.rows, self.lost + other.lost)


def of_positions(need: Need, rows: int) -> Came:
    """What came of a need for some positions: each rank has an operator at each of them in every iteration."""
    asked = len(set(need.ranks)) * len(set(need.iterations)) * len(need.positions)
    return Came(rows, max(asked - rows, 0))


def coverage(asked: Sequence[Need], at_hand: Operators) -> Came:
    """How many of the rows asked for came, but for needs for some positions.

    Rows that did not come are counted by the numbers missing between those that did, and where a rank has none of an
    iteration, by how many others have of theirs. That the first or the last one of a rank, communicator and iteration
    is missing does not show.
    """
    cells = _Cells.of(at_hand)
    whole = np.array([rank for need in asked if need.communicator is None for rank in need.ranks], dtype=np.int64)
    came = lost = 0
    for need in asked:
        if need.positions:
            continue
        alike = _alike(need, at_hand, cells)
        own = alike.take(np.isin(alike.rank, need.ranks))
        absent = len(set(need.ranks)) * len(set(need.iterations)) - len(own.per_iteration())
        if absent:
            others = alike.take(np.isin(alike.rank, whole)) if need.communicator is None else alike
            typical = others.per_iteration()
            lost += absent * (median_low(typical.tolist()) if len(typical) else 1)
        came += int(own.rows.sum())
        lost += int(own.between.sum())
    return Came(came, lost)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows counted by rank, iteration and communicator; every array has shape (cells,).

    ``between`` is how many numbers are missing between the first and the last.
    """

    rank: Ints
    iteration: Ints
    communicator: Ints
    rows: Ints
    between: Ints

    @classmethod
    def of(cls, at_hand: Operators) -> Self:
        """All rows, counted."""
        keys = numbered(at_hand.rank, at_hand.iteration + 1, at_hand.communicator + 1)
        order = np.argsort(keys, kind="stable")
        first = np.flatnonzero(np.diff(keys[order], prepend=-1))
        rows = np.diff(np.r_[first, len(order)])
        if not len(rows):
            return cls(rows, rows, rows, rows, rows)
        seq = at_hand.seq[order]
        least, most = np.minimum.reduceat(seq, first), np.maximum.reduceat(seq, first)
        one = order[first]
        return cls(
            at_hand.rank[one],
            at_hand.iteration[one],
            at_hand.communicator[one],
            rows,
            np.where(least == UNKNOWN, 0, np.maximum(most - least + 1 - rows, 0)),
        )

    def take(self, index: Bools) -> Self:
        """The chosen cells."""
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def per_iteration(self) -> Ints:
        """How many rows each rank has of each iteration of which it has any."""
        both = numbered(self.rank, self.iteration + 1)
        return np.bincount(both, weights=self.rows).astype(np.int64) if len(both) else np.zeros(0, dtype=np.int64)


def _alike(need: Need, at_hand: Operators, cells: _Cells) -> _Cells:
    """What is at hand of what was asked for, of whichever rank."""
    names = at_hand.communicators
    if need.communicator is not None and need.communicator not in names:
        return cells.take(np.zeros(len(cells.rows), dtype=np.bool_))
    if need.seq_from is not None or need.seq_to is not None:
        numbers = at_hand.seq >= (need.seq_from or 0)
        numbers &= at_hand.seq <= (np.iinfo(np.int64).max if need.seq_to is None else need.seq_to)
        cells = _Cells.of(at_hand.take(numbers))
    alike = np.isin(cells.iteration, need.iterations)
    if need.communicator is not None:
        alike &= cells.communicator == names.index(need.communicator)
    return cells.take(alike)
