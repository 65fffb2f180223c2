"""What a detector judges: the operators of irregular iterations, each beside what it usually lasts (Holmes 4.2.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operators import UNKNOWN, Operators

PATTERNS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "barrier",
    "send",
    "recv",
)
"""Communication patterns; a pattern's number is its place. The order is part of every trained model."""

PHASES = ("forward", "backward", "gradient", "other")
"""Phases of an iteration; a phase's number is its place. The order is part of every trained model."""


class Length(NamedTuple):
    """How long an iteration took, and how long it usually takes: means of the window, ns."""

    iteration_ns: float
    usual_ns: float


@dataclass(frozen=True, slots=True)
class Samples:
    """A row an operator; every array has shape (n,).

    Durations are in ns, NaN where not known; so are the statistics of an operator whose window is empty (``count``
    0). ``place`` is where its ``rank`` stands in its communicator, from 0 to 1; NaN: the communicator is not known.
    ``pattern`` and ``phase`` are places in ``PATTERNS`` and ``PHASES``; they and ``size`` (bytes) are ``UNKNOWN``
    where the log does not say.
    """

    duration_ns: Floats
    count: Ints
    mean: Floats
    std: Floats
    q1: Floats
    q2: Floats
    q3: Floats
    iteration_ns: Floats
    usual_iteration_ns: Floats
    rank: Ints
    size: Ints
    pattern: Ints
    phase: Ints
    place: Floats

    def __len__(self) -> int:
        return len(self.duration_ns)

    @classmethod
    def of(
        cls,
        operators: Operators,
        duration_ns: Floats,
        usual: WindowStatistics,
        length: Length,
        members: Mapping[str, Sequence[int]],
    ) -> Self:
        """The operators of one iteration, of shape (n,), beside their windows.

        ``members`` are the ranks of each communicator, in its own order.
        """
        rows = usual.rows(operators.rank, operators.communicator, operators.position, operators.communicators)
        seen = rows != UNKNOWN
        at = np.where(seen, rows, 0)

        def beside(column: Floats) -> Floats:
            return np.where(seen, column[at], np.nan) if len(usual) else np.full(len(rows), np.nan)

        return cls(
            duration_ns=duration_ns,
            count=np.where(seen, usual.count[at], 0) if len(usual) else np.zeros(len(rows), dtype=np.int64),
            mean=beside(usual.mean),
            std=beside(usual.std),
            q1=beside(usual.q1),
            q2=beside(usual.q2),
            q3=beside(usual.q3),
            iteration_ns=np.full(len(rows), float(length.iteration_ns)),
            usual_iteration_ns=np.full(len(rows), float(length.usual_ns)),
            rank=operators.rank,
            size=operators.size,
            pattern=_places(operators.op, operators.ops, PATTERNS),
            phase=_places(operators.phase, operators.phases, PHASES),
            place=_place_in_communicator(operators, members),
        )

    def take(self, index: Ints | Bools) -> Self:
        """The chosen operators, in the chosen order."""
        return replace(self, **{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Self:
        """The operators of several iterations, one after the other; raises ``ValueError`` for none."""
        if not parts:
            raise ValueError("there are no samples to join")
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


def _places(codes: Ints, names: Sequence[str], known: Sequence[str]) -> Ints:
    place = {name: at for at, name in enumerate(known)}
    return np.array([*(place.get(name, UNKNOWN) for name in names), UNKNOWN], dtype=np.int64)[codes]


def _place_in_communicator(operators: Operators, members: Mapping[str, Sequence[int]]) -> Floats:
    """From 0 for the first member to 1 for the last: unlike its number it means the same in every job."""
    place = np.full(len(operators), np.nan)
    for code in np.unique(operators.communicator[operators.communicator != UNKNOWN]):
        ranks = np.array(members.get(operators.communicators[code], ()), dtype=np.int64)
        if not len(ranks):
            continue
        own = np.flatnonzero(operators.communicator == code)
        order = np.argsort(ranks)
        found = np.minimum(np.searchsorted(ranks, operators.rank[own], sorter=order), len(ranks) - 1)
        where = order[found] / max(len(ranks) - 1, 1)
        place[own] = np.where(ranks[order[found]] == operators.rank[own], where, np.nan)
    return place
