"""What a search asks the log agents for, and what comes of it (Holmes 4.3.3)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.irregularity.window import WindowStatistics

What = Literal["rows", "statistics", "series"]


@dataclass(frozen=True, slots=True)
class Need:
    """Logs of ranks in iterations: all, or only one communicator's, a range of its numbers, some positions in it.

    ``positions`` are ordinals within iteration and communicator; empty: all. ``statistics`` are of each operator's
    durations in the iterations; a ``series``, of one operator (communicator and position), has each of them beside the
    iteration's.
    """

    ranks: tuple[int, ...]
    iterations: tuple[int, ...]
    communicator: str | None = None
    seq_from: int | None = None
    seq_to: int | None = None
    positions: tuple[int, ...] = ()
    what: What = "rows"


Needs = tuple[Need, ...]
"""What a search asks for at once."""


@dataclass
class Wanted:
    """Whose rows are wanted of each communicator; of those with ``positions`` only the operators there. Where there is
    no room for all that is wanted, those at ``stand_ins`` do.
    """

    ranks: dict[str | None, set[int]] = field(default_factory=dict)
    positions: dict[str | None, set[int]] = field(default_factory=dict)
    stand_ins: dict[str | None, set[int]] = field(default_factory=dict)
    _all: set[str] = field(default_factory=set)

    @property
    def names(self) -> frozenset[str]:
        """The communicators."""
        return frozenset(name for name in self.ranks if name is not None)

    def add(
        self, communicator: str, ranks: Iterable[int], positions: Ints | None, stand_ins: Ints | None = None
    ) -> None:
        """Want the ranks' operators at some positions, None: all of them, or those that stand for them."""
        self.ranks.setdefault(communicator, set()).update(ranks)
        if stand_ins is not None:
            self.stand_ins.setdefault(communicator, set()).update(stand_ins.tolist())
        if positions is None:
            self._all.add(communicator)
            self.positions.pop(communicator, None)
        elif communicator not in self._all:
            self.positions.setdefault(communicator, set()).update(positions.tolist())


@dataclass(frozen=True, slots=True)
class Series:
    """How long one operator took on a rank, and how long the rank's iterations took, in ns; both of shape (n,)."""

    rank: int
    communicator: str
    position: int
    operator_ns: tuple[int, ...]
    iteration_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it: rows of telemetry.comm_ops, statistics and series, and the ranks whose logs are unknown."""

    rows: pa.Table
    missing: frozenset[int] = frozenset()
    usual: WindowStatistics = field(default_factory=WindowStatistics.empty)
    series: tuple[Series, ...] = ()


Fetch = Generator[Needs, Answer, None]
"""A part of a search that yields what it needs, and is sent what came."""
