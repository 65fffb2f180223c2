"""The operator graph as far as a search has fetched it, and what a search asks for next.

Holmes' graph (4.3.1) has an edge from an operator to its communicator instead of one to each member. Here the
communicators come from the job, the operators from the logs fetched so far; nothing else is built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.irregularity.window import WindowStatistics
from diagnosis.job import Job
from diagnosis.operator_graph.coverage import Came, coverage, of_positions
from diagnosis.operator_graph.log_view import LogView
from diagnosis.operator_graph.needs import Answer, Fetch, Need, Needs, Wanted
from diagnosis.operators import UNKNOWN, Operators

LEAST_ENDED = 0.5
"""Where fewer of a rank's operators carry an end, its log does not tell how long they took."""


MOST_ROWS = 4_000_000
"""Rows that a search holds: some 2.5 GB while it works on them."""


def _count(answer: Operators, ranks: Collection[int], communicator: str) -> int:
    """How many operators the ranks have on a communicator."""
    if communicator not in answer.communicators:
        return 0
    on = answer.communicator == answer.communicators.index(communicator)
    return int(np.isin(answer.rank[on], sorted(ranks)).sum())


def _part(answer: Operators, ranks: Collection[int], communicators: Collection[str]) -> Operators:
    """The ranks' own operators, and anybody's on the communicators."""
    codes = [code for code, name in enumerate(answer.communicators) if name in communicators]
    chosen = np.isin(answer.rank, sorted(ranks)) | np.isin(answer.communicator, codes)
    return answer if chosen.all() else answer.take(chosen)


@dataclass
class _Typical:
    """How many rows ranks have, in all and on each communicator, of those whose rows are all at hand."""

    _rows: Counter[str | None] = field(default_factory=Counter)
    _ranks: Counter[str | None] = field(default_factory=Counter)

    def add(self, answer: Operators, whole: Collection[int]) -> None:
        """Count the rows of the ranks, all of which are in the answer."""
        own = np.flatnonzero(np.isin(answer.rank, sorted(whole)) & (answer.communicator != UNKNOWN))
        cells = answer.rank[own] * len(answer.communicators) + answer.communicator[own]
        counted = pa.array(cells).value_counts()
        codes = counted.field("values").to_numpy() % max(len(answer.communicators), 1)
        for code, count in zip(codes.tolist(), counted.field("counts").to_pylist(), strict=True):
            self._rows[answer.communicators[code]] += count
            self._ranks[answer.communicators[code]] += 1
        self._rows[None] += len(own)
        self._ranks[None] += len(pc.unique(pa.array(answer.rank[own])))

    def rows(self, communicator: str | None) -> float:
        """Of a rank; 0: not known."""
        return self._rows[communicator] / self._ranks[communicator] if self._ranks[communicator] else 0.0


@dataclass
class Logs:
    """Rows fetched so far. ``missing`` ranks did not answer, or there was no room for more of their rows: unknown, and
    never blamed.

    Rows of ``iterations`` are asked for. What is usual is in the rows of some of these, or it comes as statistics of
    the iterations of ``window``. ``bounded``: ranks were not asked, since there would be more than ``most_rows``;
    ``stood_for``: communicators of which for that reason some operators were asked for that stand for all.
    ``narrow``: of a large job only parts are looked at; of others everything at hand, and where ends are not logged
    all that a rank's neighbours logged. ``paused`` is for how long, in ns, all ranks paused before an iteration.
    """

    job: Job
    iterations: tuple[int, ...]
    window: tuple[int, ...] = ()
    most_rows: int = MOST_ROWS
    narrow: bool = False
    paused: Mapping[int, int] = field(default_factory=dict)
    bounded: bool = False
    stood_for: set[str | None] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)
    _whole: set[int] = field(default_factory=set)
    _partly: set[tuple[int, str]] = field(default_factory=set)
    _positions: dict[tuple[int, str | None], set[int]] = field(default_factory=dict)
    _single: set[tuple[int, str, int]] = field(default_factory=set)
    _asked: list[Need] = field(default_factory=list)
    _answers: list[Operators] = field(default_factory=list)
    _usual: list[WindowStatistics] = field(default_factory=list)
    _typical: _Typical = field(default_factory=_Typical)
    _came: Came = field(default_factory=Came)
    _view: LogView | None = None
    _latest_part: tuple[frozenset[int], frozenset[str], LogView] | None = None

    def fetch(
        self, wanted: Mapping[str | None, Iterable[int]], positions: Mapping[str | None, Collection[int]] | None = None
    ) -> Fetch:
        """Ask for what is not at hand of the ranks wanted of each communicator; None: all of their rows.

        Of communicators with ``positions`` only the operators there are wanted. Who did not answer once is not
        asked again: every time it would cost the whole deadline.
        """
        yield from self._ask(self._lacking(wanted, positions))

    def fetch_as_room_allows(self, wanted: Wanted) -> Fetch:
        """Ask for what is wanted and not at hand; where there is no room for that, for what stands for it."""
        needs = self._lacking(wanted.ranks, wanted.positions)
        if wanted.stand_ins and sum(self._rows_of_a_rank(need) * len(need.ranks) for need in needs) > self._room:
            needs = self._lacking(wanted.ranks, {**wanted.stand_ins, **wanted.positions})
            self.stood_for.update(need.communicator for need in needs if need.communicator in wanted.stand_ins)
        yield from self._ask(needs)

    def _lacking(
        self, wanted: Mapping[str | None, Iterable[int]], positions: Mapping[str | None, Collection[int]] | None
    ) -> Needs:
        needs = []
        for communicator, ranks in wanted.items():
            at = frozenset((positions or {}).get(communicator, ()))
            lacking: dict[frozenset[int], list[int]] = {}
            for rank in sorted(set(ranks)):
                if not self._has(rank, communicator):
                    lacking.setdefault(at - self._positions.get((rank, communicator), set()), []).append(rank)
            for lacks, of in lacking.items():
                if lacks or not at:
                    needs.append(Need(tuple(of), self.iterations, communicator, positions=tuple(sorted(lacks))))
        return tuple(needs)

    def fetch_one_listing(self, ranks: Mapping[str, Iterable[int]], iteration: int) -> Fetch:
        """Of each communicator the operators of one iteration as one of the ranks has them: that tells positions."""
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
            need = Need(tuple(sorted(lacking)), self.iterations, communicator, seq, seq)
            yield from self._ask((need,), (position,))

    def fetch_whole(self, ranks: Collection[int]) -> Fetch:
        """All rows of the ranks; of small jobs those of all that they meet too, where most carry no end."""
        yield from self.fetch({None: ranks})
        if not self.narrow:
            names = {n for rank in ranks if not self.ended(rank) for n in self.job.communicators_of.get(rank, ())}
            yield from self.fetch({None: {member for name in names for member in self.job.members[name]}})

    def fetch_whole_with_peers(self, ranks: Collection[int]) -> Fetch:
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
        """Whether most of the rank's operators at hand carry an end; so it is said of a rank of which none is."""
        own = Operators.joined([answer.of_rank(rank) for answer in self._answers])
        return bool(own.ended.mean() >= LEAST_ENDED) if len(own) else True

    def _learn_from_rows(self) -> None:
        self.iterations, self.window = tuple(sorted({*self.iterations, *self.window})), ()
        self._typical = _Typical()  # it counts by the iterations that were asked for
        self._whole.clear()
        self._partly.clear()
        self._positions.clear()
        self._single.clear()
        self._latest_part = None

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
        room = self._room
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

    @property
    def _room(self) -> int:
        """How many rows more may come."""
        return self.most_rows - sum(map(len, self._answers))

    def _rows_of_a_rank(self, need: Need) -> float:
        """How many rows a need brings of each rank, told from those at hand; 0: not known."""
        if need.positions:
            return float(len(need.positions) * len(need.iterations))
        if need.seq_from is not None:
            return 0.0
        return self._typical.rows(need.communicator) * len(need.iterations) / max(len(self.iterations), 1)

    def _add(self, needs: Needs, answer: Answer) -> None:
        came = Operators.from_arrow(answer.rows)
        for need in needs:
            if need.communicator is None:
                self._whole.update(need.ranks)
            elif need.positions:
                self._came = self._came.plus(of_positions(need, _count(came, need.ranks, need.communicator)))
                for rank in need.ranks:
                    self._positions.setdefault((rank, need.communicator), set()).update(need.positions)
            elif need.seq_from is None and need.iterations == self.iterations:
                self._partly.update((rank, need.communicator) for rank in need.ranks)
            elif need.seq_from is not None:
                self._single.update((rank, need.communicator, need.seq_from) for rank in need.ranks)
        self.missing |= answer.missing
        self._asked += needs
        self._answers.append(came)
        self._typical.add(came, {rank for need in needs if need.communicator is None for rank in need.ranks})
        self._usual.append(answer.usual)
        self._view = self._latest_part = None

    @property
    def view(self) -> LogView:
        """Everything at hand."""
        if self._view is None:
            self._view = LogView(self.job, tuple(self._answers), self.asked, self.paused)
        return self._view

    def part(self, ranks: Collection[int], communicators: Collection[str]) -> LogView:
        """Of ``narrow`` logs the ranks' own rows, and anybody's on the communicators; of others everything.

        The same object as the last time, where neither the part nor what is at hand is another.
        """
        if not self.narrow:
            return self.view
        of = frozenset(ranks), frozenset(communicators)
        if self._latest_part is None or self._latest_part[:2] != of:
            answers = tuple(_part(answer, *of) for answer in self._answers)
            self._latest_part = *of, LogView(self.job, answers, self.asked, self.paused)
        return self._latest_part[2]

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
        if not self._asked:
            return 1.0
        # of narrow logs all rows together are needed for nothing else
        at_hand = Operators.joined(self._answers) if self.narrow else self.operators
        return coverage(self._asked, at_hand).plus(self._came).share

    @property
    def operators(self) -> Operators:
        """All rows fetched so far, each once."""
        return self.view.operators

    @property
    def last_record_ns(self) -> int:
        """The latest time in any row at hand; 0 where there is none."""
        times = (of.max(initial=0) for answer in self._answers for of in (answer.call_ns, answer.end_ns))
        return max(map(int, times), default=0)

    @property
    def usual(self) -> WindowStatistics:
        """What operators lasted in the iterations of ``window``, as far as that has come."""
        return WindowStatistics.joined(self._usual)
