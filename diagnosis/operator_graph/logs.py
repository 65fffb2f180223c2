"""The operator graph as far as a search has fetched it, and what a search asks for next.

Holmes' graph (4.3.1) has an edge from an operator to its communicator instead of one to each member. Here the
communicators come from the job, the operators from the logs fetched so far; nothing else is built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from diagnosis.clocks import Clocks, estimate
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.job import Job
from diagnosis.operator_graph.coverage import Came, Rows, coverage, of_places
from diagnosis.operator_graph.needs import Answer, Fetch, Need, Needs
from diagnosis.operators import COLUMNS, UNKNOWN, Operators, coded

LEAST_ENDED = 0.5
"""Where fewer of a rank's operators carry an end, its log does not tell how long they took."""


MOST_ROWS = 4_000_000
"""Rows that a search holds: some 2 GB while it works on them."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """The rows of one answer, with what tells which of them a part of the search looks at; arrays of shape (rows,)."""

    rows: pa.Table
    rank: Ints
    communicator: Ints
    communicators: tuple[str, ...]

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        communicator, communicators = coded(rows, "communicator")
        return cls(rows, rows.column("rank").to_numpy().astype(np.int64), communicator, communicators)

    def count(self, ranks: Collection[int], communicator: str) -> int:
        """How many rows the ranks have on a communicator."""
        if communicator not in self.communicators:
            return 0
        on = self.communicator == self.communicators.index(communicator)
        return int(np.isin(self.rank[on], sorted(ranks)).sum())

    def part(self, ranks: Collection[int], communicators: Collection[str]) -> _Taken:
        """The ranks' own rows, and anybody's on the communicators."""
        codes = [code for code, name in enumerate(self.communicators) if name in communicators]
        chosen = np.isin(self.rank, sorted(ranks)) | np.isin(self.communicator, codes)
        if chosen.all():
            return self
        rows = self.rows.filter(pa.array(chosen))
        return _Taken(rows, self.rank[chosen], self.communicator[chosen], self.communicators)


@dataclass
class _Typical:
    """How many rows ranks have, in all and on each communicator, of those whose rows are all at hand."""

    _rows: Counter[str | None] = field(default_factory=Counter)
    _ranks: Counter[str | None] = field(default_factory=Counter)

    def add(self, taken: _Taken, whole: Collection[int]) -> None:
        """Count the rows of the ranks, all of which are among those taken."""
        own = np.flatnonzero(np.isin(taken.rank, sorted(whole)) & (taken.communicator != UNKNOWN))
        cells = taken.rank[own] * len(taken.communicators) + taken.communicator[own]
        counted = pa.array(cells).value_counts()
        codes = counted.field("values").to_numpy() % max(len(taken.communicators), 1)
        for code, count in zip(codes.tolist(), counted.field("counts").to_pylist(), strict=True):
            self._rows[taken.communicators[code]] += count
            self._ranks[taken.communicators[code]] += 1
        self._rows[None] += len(own)
        self._ranks[None] += len(pc.unique(pa.array(taken.rank[own])))

    def rows(self, communicator: str | None) -> float:
        """Of a rank; 0: not known."""
        return self._rows[communicator] / self._ranks[communicator] if self._ranks[communicator] else 0.0


@dataclass
class Logs:
    """Rows fetched so far. ``missing`` ranks did not answer, or there was no room for more of their rows: unknown, and
    never blamed.

    Rows of ``iterations`` are asked for. What is usual is in the rows of some of these, or it comes as statistics of
    the iterations of ``window``. ``bounded``: ranks were not asked, since there would be more than ``most_rows``.
    ``narrow``: of a large job only parts are looked at; of others everything at hand, and where ends are not logged
    all that a rank's neighbours logged.
    """

    job: Job
    iterations: tuple[int, ...]
    window: tuple[int, ...] = ()
    most_rows: int = MOST_ROWS
    narrow: bool = False
    bounded: bool = False
    missing: set[int] = field(default_factory=set)
    _whole: set[int] = field(default_factory=set)
    _partly: set[tuple[int, str]] = field(default_factory=set)
    _places: dict[tuple[int, str | None], set[int]] = field(default_factory=dict)
    _single: set[tuple[int, str, int]] = field(default_factory=set)
    _asked: list[Need] = field(default_factory=list)
    _tables: list[_Taken] = field(default_factory=list)
    _usual: list[WindowStatistics] = field(default_factory=list)
    _typical: _Typical = field(default_factory=_Typical)
    _came: Came = field(default_factory=Came)
    _operators: Operators | None = None
    _clocks: Clocks | None = None

    def fetch(
        self, wanted: Mapping[str | None, Iterable[int]], places: Mapping[str | None, Collection[int]] | None = None
    ) -> Fetch:
        """Ask for what is not at hand of the ranks wanted of each communicator; None: all of their rows.

        Of communicators with ``places`` only the operators there (positions) are wanted. Who did not answer once is not
        asked again: every time it would cost the whole deadline.
        """
        needs = []
        for communicator, ranks in wanted.items():
            at = frozenset((places or {}).get(communicator, ()))
            lacking: dict[frozenset[int], list[int]] = {}
            for rank in sorted(set(ranks)):
                if not self._has(rank, communicator):
                    lacking.setdefault(at - self._places.get((rank, communicator), set()), []).append(rank)
            for lacks, of in lacking.items():
                if lacks or not at:
                    needs.append(Need(tuple(of), self.iterations, communicator, positions=tuple(sorted(lacks))))
        yield from self._ask(tuple(needs))

    def fetch_listed(self, ranks: Mapping[str, Iterable[int]], iteration: int) -> Fetch:
        """Of each communicator the operators of one iteration as one of the ranks has them: that tells its places."""
        needs = []
        for communicator, members in ranks.items():
            able = sorted({*members} - self.missing)
            if able and not any(self._has(rank, communicator) for rank in able):
                needs.append(Need((able[0],), (iteration,), communicator))
        yield from self._ask(tuple(needs))

    def fetch_operator(self, ranks: Iterable[int], communicator: str, seq: int, position: int) -> Fetch:
        """Ask for one collective's part of each rank, beside what that one usually lasts (``window``)."""
        lacking = {r for r in ranks if not self._has(r, communicator) and (r, communicator, seq) not in self._single}
        if lacking:
            place = Need(tuple(sorted(lacking)), self.iterations, communicator, seq, seq)
            yield from self._ask((place,), (position,))

    def fetch_walked(self, ranks: Collection[int]) -> Fetch:
        """All rows of the ranks."""
        yield from self.fetch({None: ranks})
        if not self.narrow:
            names = {n for rank in ranks if not self.ended(rank) for n in self.job.communicators_of.get(rank, ())}
            yield from self.fetch({None: {member for name in names for member in self.job.members[name]}})

    def fetch_ended(self, ranks: Collection[int]) -> Fetch:
        """All rows of the ranks; where most carry no end, what others share with them too: only that tells of it.

        Statistics tell nothing there, so that the rows of their iterations are asked for instead.
        """
        yield from self.fetch({None: ranks})
        without = [rank for rank in ranks if not self.ended(rank)]
        if without and self.window:
            self._learn_from_rows()
            yield from self.fetch({None: ranks})
        names = sorted({name for rank in without for name in self.job.communicators_of.get(rank, ())})
        yield from self.fetch({name: self.job.members[name] for name in names})

    def ended(self, rank: int) -> bool:
        """Whether most of the rank's operators at hand carry an end."""
        own = self.part([rank], ()).operators.of_rank(rank)
        return bool(own.ended.mean() >= LEAST_ENDED) if len(own) else True

    def _learn_from_rows(self) -> None:
        self.iterations, self.window = tuple(sorted({*self.iterations, *self.window})), ()
        self._whole.clear()
        self._partly.clear()
        self._places.clear()
        self._single.clear()

    def _has(self, rank: int, communicator: str | None) -> bool:
        """Whether all that the rank can tell of the communicator (None: at all) is at hand."""
        if rank in self._whole or rank in self.missing:
            return True
        return communicator is not None and (rank, communicator) in self._partly

    def _ask(self, needs: Needs, positions: tuple[int, ...] = ()) -> Fetch:
        """Ask for rows, with the statistics of the same operators where those are wanted."""
        needs = self._with_room(needs)
        if not needs:
            return
        usual = [
            Need(need.ranks, self.window, need.communicator, positions=positions, what="statistics")
            for need in needs
            if self.window
        ]
        self._add(needs, (yield (*needs, *usual)))

    def _with_room(self, needs: Needs) -> Needs:
        """The needs without the ranks for whose rows, going by what others sent, there is no room."""
        room = self.most_rows - sum(len(taken.rank) for taken in self._tables)
        kept = []
        for need in needs:
            of_a_rank = self._rows_of_a_rank(need)
            wanted = tuple(rank for rank in need.ranks if rank not in self.missing)
            ranks = wanted[: max(int(room / of_a_rank), 0)] if of_a_rank else wanted
            unasked = wanted[len(ranks) :]
            self.bounded |= bool(unasked)
            self.missing.update(unasked)
            room -= int(of_a_rank * len(ranks))
            if ranks:
                kept.append(replace(need, ranks=ranks))
        return tuple(kept)

    def _rows_of_a_rank(self, need: Need) -> float:
        """How many rows a need brings of each rank, told from those at hand; 0: not known."""
        if need.positions:
            return float(len(need.positions) * len(need.iterations))
        if need.seq_from is not None:
            return 0.0
        return self._typical.rows(need.communicator) * len(need.iterations) / max(len(self.iterations), 1)

    def _add(self, needs: Needs, answer: Answer) -> None:
        taken = _Taken.of(answer.rows.select([name for name in COLUMNS if name in answer.rows.schema.names]))
        for need in needs:
            if need.communicator is None:
                self._whole.update(need.ranks)
            elif need.positions:
                self._came = self._came.plus(of_places(need, taken.count(need.ranks, need.communicator)))
                for rank in need.ranks:
                    self._places.setdefault((rank, need.communicator), set()).update(need.positions)
            elif need.seq_from is None and need.iterations == self.iterations:
                self._partly.update((rank, need.communicator) for rank in need.ranks)
            elif need.seq_from is not None:
                self._single.update((rank, need.communicator, need.seq_from) for rank in need.ranks)
        self.missing |= answer.missing
        self._asked += needs
        self._tables.append(taken)
        self._typical.add(taken, {rank for need in needs if need.communicator is None for rank in need.ranks})
        self._usual.append(answer.usual)
        self._operators = self._clocks = None

    def part(self, ranks: Collection[int], communicators: Collection[str]) -> Logs:
        """Of ``narrow`` logs the ranks' own rows, and anybody's on the communicators; of others everything."""
        if not self.narrow:
            return self
        tables = [taken.part(ranks, communicators) for taken in self._tables]
        return replace(self, _tables=tables, _operators=None, _clocks=None)

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
        return coverage(self._asked, Rows.of(self._rows)).plus(self._came).share if self._asked else 1.0

    @property
    def operators(self) -> Operators:
        """All rows fetched so far, each once."""
        if self._operators is None:
            self._operators = Operators.from_arrow(self._rows, distinct=True)
        return self._operators

    @property
    def last_record_ns(self) -> int:
        """The latest time in any row at hand; 0 where there is none."""
        columns = [self._rows.column(name) for name in ("call_ns", "end_ns") if name in self._rows.column_names]
        return max((pc.max(column).as_py() or 0 for column in columns), default=0)

    @property
    def _rows(self) -> pa.Table:
        """All rows fetched so far, some of them twice."""
        return pa.concat_tables([taken.rows for taken in self._tables], promote_options="default")

    @property
    def usual(self) -> WindowStatistics:
        """What operators lasted in the iterations of ``window``, as far as that has come."""
        return WindowStatistics.joined(self._usual)

    def clocks(self) -> Clocks:
        """Clock offsets of the fetched ranks against the clock of the first whose rows came."""
        if self._clocks is None:
            reference = int(self.operators.rank[0]) if len(self.operators) else min(self.asked)
            self._clocks = estimate(self.operators, self.clock_of_rank, self.job.clock(reference))
        return self._clocks

    @property
    def clock_of_rank(self) -> Mapping[int, str]:
        """Which clock each fetched rank reads."""
        return {rank: self.job.clock(rank) for rank in self.asked}
