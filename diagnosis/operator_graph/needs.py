"""What a search asks the log agents for, and what comes of it (Holmes 4.3.3)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from diagnosis.irregularity.window import WindowStatistics

What = Literal["rows", "statistics", "series"]


@dataclass(frozen=True, slots=True)
class Need:
    """Logs of ranks in iterations: all, or only one communicator's, a range of its numbers, one place in it.

    ``statistics`` are of each operator's durations in the iterations; a ``series``, of one operator (communicator and
    position), has each of them beside the iteration's.
    """

    ranks: tuple[int, ...]
    iterations: tuple[int, ...]
    communicator: str | None = None
    seq_from: int | None = None
    seq_to: int | None = None
    position: int | None = None
    what: What = "rows"


Needs = tuple[Need, ...]
"""What a search asks for at once."""


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
