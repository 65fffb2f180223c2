"""The operator graph as far as a search has fetched it, and what a search asks for next.

Holmes' graph (4.3.1) has an edge from an operator to its communicator instead of one to each member. Here the
communicators come from the job, the operators from the logs fetched so far; nothing else is built.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from diagnosis.clocks import Clocks, estimate
from diagnosis.job import Job
from diagnosis.operators import COLUMNS, Operators


@dataclass(frozen=True, slots=True)
class Need:
    """Logs that a search asks for: all rows of the ranks in the iterations, or only one communicator's."""

    ranks: tuple[int, ...]
    iterations: tuple[int, ...]
    communicator: str | None = None


Needs = tuple[Need, ...]
"""What a search asks for at once."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it: rows of telemetry.comm_ops, and the ranks whose logs are unknown."""

    rows: pa.Table
    missing: frozenset[int] = frozenset()


Fetch = Generator[Needs, Answer, None]


@dataclass
class Logs:
    """Rows fetched so far. ``missing`` ranks did not answer: unknown, and never blamed."""

    job: Job
    iterations: tuple[int, ...]
    missing: set[int] = field(default_factory=set)
    _whole: set[int] = field(default_factory=set)
    _partly: set[tuple[int, str]] = field(default_factory=set)
    _tables: list[pa.Table] = field(default_factory=list)
    _operators: Operators | None = None

    def fetch(self, wanted: Mapping[str | None, Iterable[int]]) -> Fetch:
        """Ask for what is not at hand of the ranks wanted of each communicator; None: all of their rows.

        Who did not answer once is not asked again: every time it would cost the whole deadline.
        """
        needs = tuple(
            Need(lacking, self.iterations, communicator)
            for communicator, ranks in wanted.items()
            if (lacking := tuple(sorted(rank for rank in set(ranks) if not self._has(rank, communicator))))
        )
        if needs:
            self._add(needs, (yield needs))

    def fetch_whole(self, ranks: Collection[int]) -> Fetch:
        """All rows of the ranks; where most carry no end, their neighbours' too: only those tell when one ended."""
        yield from self.fetch({None: ranks})
        neighbours: set[int] = set()
        for rank in ranks:
            own = self.operators.of_rank(rank)
            if len(own) and own.ended.mean() < 0.5:
                neighbours |= {m for name in self.job.communicators_of.get(rank, ()) for m in self.job.members[name]}
        yield from self.fetch({None: neighbours})

    def _has(self, rank: int, communicator: str | None) -> bool:
        known = self._whole | self.missing
        return rank in known or (communicator is not None and (rank, communicator) in self._partly)

    def _add(self, needs: Needs, answer: Answer) -> None:
        for need in needs:
            if need.communicator is None:
                self._whole.update(need.ranks)
            else:
                self._partly.update((rank, need.communicator) for rank in need.ranks)
        self.missing |= answer.missing
        self._tables.append(answer.rows.select([name for name in COLUMNS if name in answer.rows.schema.names]))
        self._operators = None

    @property
    def whole(self) -> frozenset[int]:
        """Ranks of which all rows are at hand."""
        return frozenset(self._whole) - self.missing

    @property
    def asked(self) -> frozenset[int]:
        """Ranks that were asked for rows."""
        return frozenset(self._whole | {rank for rank, _ in self._partly})

    @property
    def coverage(self) -> float:
        """Share of the asked ranks that answered."""
        return 1.0 - len(self.missing & self.asked) / len(self.asked) if self.asked else 1.0

    @property
    def operators(self) -> Operators:
        """All rows fetched so far, each once."""
        if self._operators is None:
            table = pa.concat_tables(self._tables, promote_options="default")
            self._operators = Operators.from_arrow(table).distinct()
        return self._operators

    def clocks(self, reference: int | None = None) -> Clocks:
        """Clock offsets of the fetched ranks against the clock of one of them; the first whose rows came."""
        if reference is None:
            reference = int(self.operators.rank[0]) if len(self.operators) else min(self.asked)
        return estimate(self.operators, self.clock_of_rank, self.job.clock(reference))

    @property
    def clock_of_rank(self) -> Mapping[int, str]:
        """Which clock each fetched rank reads."""
        return {rank: self.job.clock(rank) for rank in self.asked}
