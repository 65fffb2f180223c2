"""The operator graph as far as a search has fetched it, and what a search asks for next.

Holmes' graph (4.3.1) has an edge from an operator to its communicator instead of one to each member. Here the
communicators come from the job, the operators from the logs fetched so far; nothing else is built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from diagnosis.clocks import Clocks, estimate
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.job import Job
from diagnosis.operator_graph.coverage import coverage
from diagnosis.operator_graph.needs import Answer, Fetch, Need, Needs
from diagnosis.operators import COLUMNS, Operators

LEAST_ENDED = 0.5
"""Where fewer of a rank's operators carry an end, its log does not tell how long they took."""


MOST_ROWS = 4_000_000
"""Rows that a search holds: some 2 GB while it works on them."""


@dataclass
class Logs:
    """Rows fetched so far. ``missing`` ranks did not answer: unknown, and never blamed.

    Rows of ``iterations`` are asked for. What is usual is in the rows of some of these, or it comes as statistics of
    the iterations of ``window``. ``bounded``: ranks were not asked, since there would be more than ``most_rows``; they
    are as unknown as those that did not answer.
    """

    job: Job
    iterations: tuple[int, ...]
    window: tuple[int, ...] = ()
    most_rows: int = MOST_ROWS
    bounded: bool = False
    missing: set[int] = field(default_factory=set)
    _whole: set[int] = field(default_factory=set)
    _partly: set[tuple[int, str]] = field(default_factory=set)
    _single: set[tuple[int, str, int]] = field(default_factory=set)
    _asked: list[Need] = field(default_factory=list)
    _tables: list[pa.Table] = field(default_factory=list)
    _usual: list[WindowStatistics] = field(default_factory=list)
    _operators: Operators | None = None
    _clocks: dict[str, Clocks] = field(default_factory=dict)

    def fetch(self, wanted: Mapping[str | None, Iterable[int]]) -> Fetch:
        """Ask for what is not at hand of the ranks wanted of each communicator; None: all of their rows.

        Who did not answer once is not asked again: every time it would cost the whole deadline.
        """
        needs = tuple(
            Need(lacking, self.iterations, communicator)
            for communicator, ranks in wanted.items()
            if (lacking := tuple(sorted(rank for rank in set(ranks) if not self._has(rank, communicator))))
        )
        yield from self._ask(needs)

    def fetch_operator(self, ranks: Iterable[int], communicator: str, seq: int, position: int) -> Fetch:
        """Ask for one collective's part of each rank, beside what that one usually lasts (``window``)."""
        lacking = {r for r in ranks if not self._has(r, communicator) and (r, communicator, seq) not in self._single}
        if lacking:
            place = Need(tuple(sorted(lacking)), self.iterations, communicator, seq, seq)
            yield from self._ask((place,), position)

    def fetch_whole(self, ranks: Collection[int]) -> Fetch:
        """All rows of the ranks; where most carry no end, their neighbours' too: only those tell when one ended.

        Statistics tell nothing there, so that the rows of their iterations are asked for instead.
        """
        yield from self.fetch({None: ranks})
        without = [rank for rank in ranks if self._without_ends(rank)]
        if without and self.window:
            self._learn_from_rows()
            yield from self.fetch({None: ranks})
        names = {name for rank in without for name in self.job.communicators_of.get(rank, ())}
        yield from self.fetch({None: {member for name in names for member in self.job.members[name]}})

    def _without_ends(self, rank: int) -> bool:
        own = self.operators.of_rank(rank)
        return len(own) > 0 and bool(own.ended.mean() < LEAST_ENDED)

    def _learn_from_rows(self) -> None:
        self.iterations, self.window = tuple(sorted({*self.iterations, *self.window})), ()
        self._whole.clear()
        self._partly.clear()
        self._single.clear()

    def _has(self, rank: int, communicator: str | None) -> bool:
        known = self._whole | self.missing
        return rank in known or (communicator is not None and (rank, communicator) in self._partly)

    def _ask(self, needs: Needs, position: int | None = None) -> Fetch:
        """Ask for rows, with the statistics of the same operators where those are wanted."""
        needs = self._with_room(needs)
        if not needs:
            return
        usual = [
            Need(need.ranks, self.window, need.communicator, position=position, what="statistics")
            for need in needs
            if self.window
        ]
        self._add(needs, (yield (*needs, *usual)))

    def _with_room(self, needs: Needs) -> Needs:
        """The needs without the ranks for whose rows, going by what others sent, there is no room."""
        room = self.most_rows - (len(self.operators) if self._tables else 0)
        kept = []
        for need in needs:
            of_a_rank = self._rows_of_a_rank(need)
            ranks = need.ranks[: max(int(room / of_a_rank), 0)] if of_a_rank else need.ranks
            self.bounded |= len(ranks) < len(need.ranks)
            room -= int(of_a_rank * len(ranks))
            if ranks:
                kept.append(replace(need, ranks=ranks))
        return tuple(kept)

    def _rows_of_a_rank(self, need: Need) -> float:
        """How many rows a need brings of each rank, told from those at hand; 0: not known."""
        if not self._tables or not self.whole or need.seq_from is not None:
            return 0.0
        operators = self.operators
        own = np.isin(operators.rank, sorted(self.whole))
        if need.communicator is not None:
            if need.communicator not in operators.communicators:
                return 0.0
            own &= operators.communicator == operators.communicators.index(need.communicator)
        ranks = np.unique(operators.rank[own])
        return float(own.sum() / len(ranks)) if len(ranks) else 0.0

    def _add(self, needs: Needs, answer: Answer) -> None:
        for need in needs:
            if need.communicator is None:
                self._whole.update(need.ranks)
            elif need.seq_from is None:
                self._partly.update((rank, need.communicator) for rank in need.ranks)
            else:
                self._single.update((rank, need.communicator, need.seq_from) for rank in need.ranks)
        self.missing |= answer.missing
        self._asked += needs
        self._tables.append(answer.rows.select([name for name in COLUMNS if name in answer.rows.schema.names]))
        self._usual.append(answer.usual)
        self._operators = None
        self._clocks.clear()

    @property
    def whole(self) -> frozenset[int]:
        """Ranks of which all rows are at hand."""
        return frozenset(self._whole) - self.missing

    @property
    def asked(self) -> frozenset[int]:
        """Ranks that were asked for rows."""
        return frozenset(rank for need in self._asked for rank in need.ranks)

    @property
    def coverage(self) -> float:
        """Share of the rows asked for that came."""
        return coverage(self._asked, self.operators) if self._asked else 1.0

    @property
    def operators(self) -> Operators:
        """All rows fetched so far, each once."""
        if self._operators is None:
            table = pa.concat_tables(self._tables, promote_options="default")
            self._operators = Operators.from_arrow(table).distinct()
        return self._operators

    @property
    def usual(self) -> WindowStatistics:
        """What operators lasted in the iterations of ``window``, as far as that has come."""
        return WindowStatistics.joined(self._usual)

    def clocks(self, reference: int | None = None) -> Clocks:
        """Clock offsets of the fetched ranks against the clock of one of them; the first whose rows came."""
        if reference is None:
            reference = int(self.operators.rank[0]) if len(self.operators) else min(self.asked)
        name = self.job.clock(reference)
        if name not in self._clocks:
            self._clocks[name] = estimate(self.operators, self.clock_of_rank, name)
        return self._clocks[name]

    @property
    def clock_of_rank(self) -> Mapping[int, str]:
        """Which clock each fetched rank reads."""
        return {rank: self.job.clock(rank) for rank in self.asked}
