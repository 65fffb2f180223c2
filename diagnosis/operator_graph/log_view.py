"""Fetched logs, or a part of them, as an analysis reads them: nothing more is fetched through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from diagnosis.clocks import Clocks, estimate
from diagnosis.job import Job
from diagnosis.operators import Operators


@dataclass(frozen=True)
class LogView:
    """The rows of some answers, each once, and the clocks that they were read from. ``asked`` are the ranks that were
    asked for any. ``paused`` is for how long, in ns, all ranks paused before an iteration.
    """

    job: Job
    answers: tuple[Operators, ...]
    asked: frozenset[int]
    paused: Mapping[int, int]

    @cached_property
    def operators(self) -> Operators:
        """All rows; in order of rank and call."""
        return Operators.joined(self.answers)

    @cached_property
    def clock_of_rank(self) -> Mapping[int, str]:
        """Which clock each rank that was asked reads."""
        return {rank: self.job.clock(rank) for rank in self.asked}

    @cached_property
    def clocks(self) -> Clocks:
        """Clock offsets, in ns, against the clock of the first rank whose rows came."""
        reference = int(self.operators.rank[0]) if len(self.operators) else min(self.asked)
        return estimate(self.operators, self.clock_of_rank, self.job.clock(reference))

    def clock_error_ns(self, ranks: Iterable[int]) -> int:
        """How far the clocks of ranks may be off, at worst."""
        return self.clocks.worst_error_ns({self.job.clock(rank) for rank in ranks})
