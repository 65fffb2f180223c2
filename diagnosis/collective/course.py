"""The course of a job by what its NICs send: iterations, and which operators keep it from going on (Pulse 7.2.1).

Rows of all hosts come in by and by, each up to a time that its host has been told of. An iteration is complete once all
ranks have passed its mark, or one is two ahead and the others' hosts tell of later without it, or of nothing for long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Bools
from diagnosis.collective.marks import Mark, find_marks, numbered
from diagnosis.collective.participation import (
    CUSTOM,
    INCOMPLETE,
    MISSING_START,
    UNKNOWN,
    Participation,
    lost_before,
)
from diagnosis.collective.progress import Passed, Progress, lasted_ns
from diagnosis.columns import codes, integers, joint_codes, nullable
from diagnosis.job import Communicator, Job

Look = tuple[str, int, str, int]
"""Communicator, rank, operator and its bytes, ``UNKNOWN`` of custom collectives."""

OPEN = ("incomplete", "missing_start")
"""States of an operator that has not ended."""


@dataclass(frozen=True, slots=True)
class CourseRules:
    """How the iterations of a job are told by what its NICs send, and what hangs (Pulse 7.2.1).

    A mark is the operator that ends a rank's iterations.
    """

    learn_ns: int = 60_000_000_000
    """Telemetry, in nanoseconds, after which marks are chosen among what was seen, even if communicators have been
    silent; where none shows, it begins anew."""
    recurrences: int = field(default=3, metadata={"least": 2})
    """How often all ranks must be seen to call at least half of what they call on each communicator between hosts for
    marks to be chosen before that."""
    hang_ns: int = 30_000_000_000
    """Silence, in nanoseconds, from which on an open operator hangs; it must be longer than ranks ever wait for each
    other, as for a checkpoint."""
    recent: int = field(default=10, metadata={"least": 1})
    """Number of iterations that are compared together where marks are custom collectives; else each is compared
    alone."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """A complete iteration, with the rows that are compared: from the end of the one before it on, for jobs of few
    custom collectives from further back: ``span`` iterations. ``duration_ns`` is None where it is not known."""

    number: int
    duration_ns: int | None
    table: Participation
    span: int = 1


@dataclass
class Course:
    """One job. ``told_ns``: up to when each host is told of; ``given_up``: nobody will tell any more; ``judged``: the
    last complete iteration; ``lost``: calls of each rank on each communicator that telemetry had lost before the rows
    that are kept, where it had."""

    rules: CourseRules
    ranks: dict[int, Progress] = field(default_factory=dict)
    rows: list[pa.Table] = field(default_factory=list)
    told_ns: dict[str, int] = field(default_factory=dict)
    given_up: bool = False
    seen: Counter[Look] = field(default_factory=Counter)
    unlearned: int = 0
    began_ns: int | None = None
    judged: int = UNKNOWN
    open: dict[tuple[int, str, int], int] = field(default_factory=dict)
    lost: dict[tuple[int, str], int] = field(default_factory=dict)
    _joined: bool = field(default=False, init=False, repr=False)

    def take(self, table: pa.Table, host: str, told_ns: int) -> None:
        """Take rows of analysis.traffic_metrics of a host, of which all up to a time are told now."""
        self.told_ns[host] = max(told_ns, self.told_ns.get(host, 0))
        if not table.num_rows:
            return
        self.rows.append(table)
        self._joined = False
        if self.began_ns is None:
            self.began_ns = told_ns
        rows = table.select(_OF_A_ROW).to_pylist()
        self._follow(rows)
        if not self.ranks:
            self.seen.update(_looks(row) for row in rows if row["state"] not in OPEN)
            self.unlearned += len(rows)

    def refill(self, table: pa.Table) -> None:
        """Take rows again that the state has counted in."""
        if table.num_rows:
            self.rows.append(table)
            self._joined = False

    def ended(self, job: Job) -> bool:
        """Whether all is told of a job that has ended."""
        return job.ended_ns is not None and not self.untold(job)

    def untold(self, job: Job) -> list[str]:
        """The hosts of a job that has ended which have not told of all of it, and may yet."""
        if job.ended_ns is None or self.given_up:
            return []
        return [host for host in job.ranks_of_host or self.told_ns if self.told_ns.get(host, 0) < job.ended_ns]

    def complete(self, job: Job) -> Iterator[Iteration]:
        """The iterations that are complete by now, in order."""
        if not self.ranks and self._learned(job):
            self._learn(self._waited or self.ended(job))
        while self.ranks:
            following = self.judged + 1
            if not self._over(following, job):
                return
            self.judged = following
            if any(rank.at(following) is not None for rank in self.ranks.values()):
                table = self._between(following - self._kept, following)
                span = following - max(following - self._kept, self._earliest - 1)
                yield Iteration(following, lasted_ns(self.ranks.values(), following), table, span)
            self._forget()

    def hanging(self) -> Participation | None:
        """What has been seen since the last complete iteration, if an operator hangs and all hosts still tell."""
        live = min(self.told_ns.values(), default=0)
        if not self.rows or not any(live - since >= self.rules.hang_ns for since in self.open.values()):
            return None
        return self._between(self.judged, None)

    def to_state(self) -> dict[str, Any]:
        """All but the rows of calls since ``needed_from_ns``, in a form that JSON can carry."""
        return {
            "ranks": [[number, *rank.to_state()] for number, rank in self.ranks.items()],
            "told_ns": self.told_ns,
            "given_up": self.given_up,
            "seen": [[*look, times] for look, times in self.seen.items()],
            "unlearned": self.unlearned,
            "began_ns": self.began_ns,
            "judged": self.judged,
            "open": [[*operator, since] for operator, since in self.open.items()],
            "lost": [[*of, calls] for of, calls in self.lost.items()],
        }

    @classmethod
    def from_state(cls, rules: CourseRules, state: Mapping[str, Any]) -> Course:
        """The course that ``to_state`` described; rows come again."""
        return cls(
            rules,
            ranks={number: Progress.from_state(mark, passed) for number, mark, passed in state["ranks"]},
            told_ns=dict(state["told_ns"]),
            given_up=state["given_up"],
            seen=Counter({(row[0], row[1], row[2], row[3]): row[4] for row in state["seen"]}),
            unlearned=state["unlearned"],
            began_ns=state["began_ns"],
            judged=state["judged"],
            open={(rank, name, seq): since for rank, name, seq, since in state["open"]},
            lost={(rank, name): calls for rank, name, calls in state["lost"]},
        )

    def going_on(self, ranks: Collection[int]) -> int:
        """The iteration that some ranks are in, or the first of all where nothing tells of these.

        What hangs may do so before marks are chosen: then by those that show so far, if all that was called has come
        again, as what comes often within an iteration may look like its end. Else the first: 0.
        """
        marked = self.ranks or (self._marked() if all(self._came(_TWICE).values()) else {})
        newest = {rank: known.newest for rank, known in marked.items()}
        first = max(newest.values(), default=UNKNOWN)
        return max((at for rank, at in newest.items() if rank in ranks), default=first) + 1

    @property
    def needed_from_ns(self) -> int:
        """No row of an earlier call is needed."""
        if not self.ranks:
            return _EARLIEST if self.rows else _LATEST
        first = self.judged - self._kept + 1
        return (
            min((at.call_ns for rank in self.ranks.values() if (at := rank.at(first)) is not None), default=_SLACK_NS)
            - _SLACK_NS
        )

    @property
    def _earliest(self) -> int:
        """The first iteration whose end is remembered."""
        return min(rank.earliest for rank in self.ranks.values())

    @property
    def _kept(self) -> int:
        """Iterations that are compared together."""
        custom = any(rank.mark.op == CUSTOM for rank in self.ranks.values())
        return self.rules.recent if custom else 1

    def _over(self, iteration: int, job: Job) -> bool:
        """Whether an iteration is over: all ranks have passed its mark, or most have at the end of the job, or one is
        two iterations ahead and the hosts of the others are told of further than that, or have not been for long. Hosts
        are polled at different times: one that comes later is not behind."""
        newest = {number: rank.newest for number, rank in self.ranks.items()}
        if min(newest.values()) >= iteration:
            return True
        if self.ended(job):
            return median_low(newest.values()) >= iteration
        if max(newest.values()) < iteration + 2:
            return False
        beyond = max(at.call_ns for rank in self.ranks.values() if (at := rank.after(iteration)) is not None)
        behind = {job.clock(rank) for rank in job.ranks or newest if newest.get(rank, UNKNOWN) < iteration}
        told = [self.told_ns.get(host, self.began_ns or 0) for host in behind & job.ranks_of_host.keys()]
        if behind - job.ranks_of_host.keys():  # it is not known who tells of these
            told += self.told_ns.values()
        last = max(self.told_ns.values())
        return all(at >= beyond + _SLACK_NS or at < last - _PATIENCE_NS for at in told)

    def _follow(self, rows: list[dict[str, Any]]) -> None:
        """Note marks that are passed, and operators that have not ended."""
        for row in rows:
            rank, communicator, seq = row["rank"], row["communicator"], row["seq"]
            if row["state"] in OPEN:
                self.open[rank, communicator, seq] = max(row["call_ns"], row["end_ns"] or 0)
                continue
            for key in [key for key in self.open if key[:2] == (rank, communicator) and key[2] <= seq]:
                del self.open[key]
            known = self.ranks.get(rank)
            if known is not None and _bears(row, known.mark):
                end = UNKNOWN if row["end_ns"] is None else row["end_ns"]
                known.advance(Passed(seq, row["call_ns"], end), self.ranks.values())

    def _learned(self, job: Job) -> bool:
        """Whether marks can be chosen: every communicator between hosts has come again to all of its ranks, or there
        is nothing to wait for."""
        if self.began_ns is None:
            return False
        if self._waited or self.ended(job):
            return True
        between = {c.communicator: c for c in job.communicators if not job.on_one_host(c.ranks)}
        return bool(between) and self.unlearned >= self.rows[0].num_rows // 4 and self._recur(between)

    @property
    def _waited(self) -> bool:
        """Whether marks are to be chosen among what has been seen."""
        return self.began_ns is not None and max(self.told_ns.values()) - self.began_ns >= self.rules.learn_ns

    def _recur(self, between: Mapping[str, Communicator]) -> bool:
        """Whether all communicators have come again to all of their ranks."""
        known = Counter(name for (name, _), again in self._came(self.rules.recurrences).items() if again)
        return all(known[name] == len(group.ranks) for name, group in between.items())

    def _came(self, times: int) -> dict[tuple[str, int], bool]:
        """By communicator and rank, whether half of what the rank was seen to call on it has come so often."""
        looks: dict[tuple[str, int], list[bool]] = {}
        for (communicator, rank, *_), seen in self.seen.items():
            looks.setdefault((communicator, rank), []).append(seen >= times)
        return {of: 2 * sum(often) >= len(often) for of, often in looks.items()}

    def _learn(self, anyhow: bool) -> None:
        """Choose marks; where none shows, wait for more rows or, ``anyhow``, begin anew."""
        self.unlearned = 0
        self.ranks = self._marked()
        if self.ranks or anyhow:
            self.seen.clear()
        if self.ranks:
            self.judged = self._earliest - 1
        elif anyhow:
            self.began_ns, self.rows = None, []

    def _marked(self) -> dict[int, Progress]:
        """The marks that show in what has been seen, and where each rank has passed its own."""
        table = Participation.from_arrow(self._latest())
        table = table.take(~np.isin(table.state, (INCOMPLETE, MISSING_START)))
        marked, found = find_marks(table), {}
        for rank, numbers in numbered(table, marked).items():
            rows = marked[rank].rows
            columns = (column[rows].tolist() for column in (table.instance, table.call_ns, table.end_ns))
            passed = dict(zip(numbers.tolist(), map(Passed, *columns), strict=True))
            found[rank] = Progress(marked[rank].mark, passed)
        return found

    def _between(self, first: int, last: int | None) -> Participation:
        """Rows from the mark of an iteration to that of another, both included; None: all that follows."""
        table = self._latest()
        rank, call = integers(table, "rank"), integers(table, "call_ns")
        low, high = self._bounds(first, _EARLIEST), self._bounds(last, _LATEST)
        ranks = int(rank.max(initial=0)) + 1
        lows, highs = (np.full(ranks, bounds[UNKNOWN], dtype=np.int64) for bounds in (low, high))
        for bounds, column in ((low, lows), (high, highs)):
            for number, at in bounds.items():
                if 0 <= number < ranks:
                    column[number] = at
        chosen = _whole(table, (call >= lows[rank]) & (call <= highs[rank]))
        lost = lost_before(table, self.lost)[chosen]
        return Participation.from_arrow(self._numbered(table.filter(pa.array(chosen))), lost).unknown_after_losses()

    def _numbered(self, table: pa.Table) -> pa.Table:
        """Rows with the iterations that they belong to, each up to its rank's mark or, where that is lost, to the usual
        one."""
        rank, call = integers(table, "rank"), integers(table, "call_ns")
        usual = self._usual_marks()
        iteration = np.full(len(rank), UNKNOWN, dtype=np.int64)
        order = np.argsort(rank, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(rank[order])) + 1) if usual and len(order) else ():
            known = self.ranks.get(int(rank[own[0]]))
            marks = usual if known is None else _completed(known.calls, usual)
            numbers = np.array(sorted(marks))
            calls = np.maximum.accumulate([marks[number] for number in numbers.tolist()])
            iteration[own] = np.append(numbers, numbers[-1] + 1)[np.searchsorted(calls, call[own])]
        column = nullable(iteration, iteration != UNKNOWN, pa.int32())
        return table.set_column(table.schema.get_field_index("iteration"), "iteration", column)

    def _usual_marks(self) -> dict[int, int]:
        """When ranks usually called the marks that are remembered, by iteration."""
        numbers = sorted({number for rank in self.ranks.values() for number in rank.passed})
        bounds = {number: self._bounds(number, UNKNOWN)[UNKNOWN] for number in numbers}
        return {number: at for number, at in bounds.items() if at != UNKNOWN}

    def _bounds(self, iteration: int | None, otherwise: int) -> dict[int, int]:
        """Calls of an iteration's marks by rank, under ``UNKNOWN`` that of those that have none."""
        found = {} if iteration is None else {number: rank.at(iteration) for number, rank in self.ranks.items()}
        calls = {number: at.call_ns for number, at in found.items() if at is not None}
        return {**calls, UNKNOWN: median_low(calls.values()) if calls else otherwise}

    def _latest(self) -> pa.Table:
        """All rows that are kept, of those of one operator and rank the last."""
        if self._joined and self.rows:
            return self.rows[0]
        table = pa.concat_tables(self.rows).unify_dictionaries().combine_chunks()
        code, _ = codes(table, "communicator")
        key = joint_codes(code, integers(table, "rank"), integers(table, "seq"))
        _, last = np.unique(key[::-1], return_index=True)
        self.rows, self._joined = [table.take(pa.array(np.sort(len(key) - 1 - last)))], True
        return self.rows[0]

    def _forget(self) -> None:
        for rank in self.ranks.values():
            rank.forget(self.judged - self._kept)
        before = self._bounds(self.judged - self._kept + 1, _EARLIEST)[UNKNOWN] - _SLACK_NS
        for table in self.rows:
            lost = pc.greater(table.column("calls_lost"), 0)
            gone = table.filter(pc.and_(lost, pc.less(table.column("call_ns"), before)))
            for row in gone.group_by(["rank", "communicator"]).aggregate([("calls_lost", "max")]).to_pylist():
                of = row["rank"], row["communicator"]
                self.lost[of] = max(self.lost.get(of, 0), row["calls_lost_max"])
        self.rows = [table.filter(pc.greater_equal(table.column("call_ns"), before)) for table in self.rows]


def _completed(marks: dict[int, int], usual: Mapping[int, int]) -> dict[int, int]:
    """A rank's marks, with the usual ones where it has none, by its own clock."""
    ahead = median_low([at - usual[number] for number, at in marks.items() if number in usual] or [0])
    return {number: at + ahead for number, at in usual.items()} | marks


_OF_A_ROW = ["rank", "communicator", "seq", "op", "expected_bytes", "state", "call_ns", "end_ns"]
_EARLIEST, _LATEST = 0, np.iinfo(np.int64).max
_SLACK_NS = 1_000_000_000
"""By how much ranks may be ahead of each other."""

_MOST = 0.5
"""Part of an operator's rows from which on it belongs to an iteration as a whole."""

_TWICE = 2
"""How often something must be seen to have come again."""

_PATIENCE_NS = 60_000_000_000
"""How long hosts are waited for that tell nothing."""


def _whole(table: pa.Table, chosen: Bools) -> Bools:
    """Of a choice of rows either all of an operator or none, as most of its ranks have it: who is compared with whom
    must not hang on where each one's iteration ends. Custom collectives stay: nothing numbers them alike on all ranks.
    """
    (communicator, _), (op, ops) = codes(table, "communicator"), codes(table, "op")
    _, operator = np.unique(joint_codes(communicator, integers(table, "seq")), return_inverse=True)
    part = np.bincount(operator, chosen) / np.bincount(operator)
    return np.where(op == (ops.index(CUSTOM) if CUSTOM in ops else UNKNOWN), chosen, part[operator] >= _MOST)


def _looks(row: Mapping[str, Any]) -> Look:
    size = UNKNOWN if row["op"] == CUSTOM else row["expected_bytes"] or 0
    return row["communicator"], row["rank"], row["op"], size


def _bears(row: Mapping[str, Any], mark: Mark) -> bool:
    return (
        row["communicator"] == mark.communicator
        and row["op"] == mark.op
        and mark.expected in {UNKNOWN, row["expected_bytes"]}
    )
