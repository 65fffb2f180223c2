"""The log store of a host whose training processes run: iterations close as they end, and the newest are kept on disk.

An iteration is closed once every rank of the host is beyond it. Its rows then leave the rings for a segment file, in
the order and with the positions of ``LogIndex``; of what was closed before, that needs the two iterations before it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import integers
from diagnosis.job import Job
from producers import kept_iterations
from producers.kept_iterations import UNREADABLE
from producers.live.another_run import Kept, Stretch, begins_anew, logged_before, tell
from producers.live.losses import Losses
from producers.live.rank_log import RankLog
from producers.log_index import LogIndex
from producers.log_store import MAX_ROWS, Rows, Spans
from producers.next_calls import lacks_ends, with_next_calls
from producers.row_query import RowQuery
from producers.segments import Frame, Segments
from schemas.catalogue import COMM_OPS
from schemas.errors import StoreError
from schemas.log_answers import COMPLETE, OVERWRITTEN, PARTIAL

log = logging.getLogger(__name__)

WANTED_ITERATIONS = 100
"""Iterations that statistics and series of operators want (Holmes 4.3.3)."""

SILENT_AFTER = 3
"""A rank that logs nothing is awaited until another one is so many iterations ahead: ranks move in lockstep."""

_WINDOW = 2


@dataclass(frozen=True, slots=True)
class _Kept:
    """A closed iteration."""

    frame: Frame
    spans: Spans


class LiveStore:
    """The logs of a job's ranks on this host, a ``LogStore``. One thread at a time.

    ``ranks`` are those to be awaited; their logs are given by ``add`` as they appear. What ``segments`` hold of an
    earlier life of this agent is known again. An iteration that turns out to be damaged is told, and from then on
    answers that it belongs to are partial.
    Raises ``StoreError`` where an iteration cannot be put on disk.
    """

    def __init__(self, job: Job, ranks: Sequence[int], segments: Segments, *, max_rows: int = MAX_ROWS) -> None:
        self.job = job
        self.ranks = tuple(sorted(ranks))
        self.closed = -1
        self.watermark_ns = 0
        self._first: int | None = None
        self._segments = segments
        self._max_rows = max_rows
        self._logs: list[RankLog] = []
        self._starting: list[tuple[RankLog, Stretch]] = []
        self._told_again = False
        self._losses = Losses()
        self._kept: dict[int, _Kept] = {}
        self._damaged: set[int] = set()
        self._calls: dict[int, int] = {}
        self._recent: deque[tuple[int, pa.Table]] = deque(maxlen=_WINDOW)
        for frame in segments.frames:
            self._recall(frame)
        for iteration in sorted(self._kept)[-_WINDOW:]:
            rows = self._readable_rows(iteration, self._kept[iteration].spans.rank.tolist())
            if rows is not None:
                self._recent.append((iteration, rows))

    @property
    def logs(self) -> Sequence[RankLog]:
        """The processes that were added, but for those of another run."""
        return self._logs

    @property
    def ended(self) -> bool:
        """Whether all processes are gone and all that they logged is told."""
        return all(not log.alive and log.oldest_open is None for log in self._logs)

    @property
    def forgotten(self) -> bool:
        """Whether iterations that were closed are no longer kept."""
        return self._first is not None and self._first not in self._kept

    @property
    def kept(self) -> int:
        """Iterations that can be asked for."""
        return len(self._kept)

    def add(self, rank_log: RankLog) -> None:
        """Take the log of a process of this job; what it holds of closed iterations is passed over.

        Where a process that began after these logs them anew, that is told once. One that begins with the job's first
        is of another run under this one's name, and all of it is passed over.
        """
        rank_log.look()
        kept = None if self._first is None else Kept(self._first, self.closed, self.watermark_ns)
        before = logged_before(rank_log, self._logs, kept)
        if before is None:
            rank_log.release(self.closed)
        else:
            self._starting.append((rank_log, before))
        self._logs.append(rank_log)

    def advance(self) -> bool:
        """Look at the rings, and close the next iteration if it has ended.

        Until it is kept it stays in the rings, and survives this process.
        """
        for rank_log in self._logs:
            rank_log.look()
        self._see_how_processes_start()
        iteration = self._due()
        if iteration is None:
            for rank_log in self._logs:
                rank_log.relieve()
            return False
        self._close(iteration)
        for rank_log in self._logs:
            rank_log.release(iteration)
            rank_log.look()
        return True

    def spans(self, iteration: int, ranks: Iterable[int] | None = None) -> Spans:
        if iteration not in self._kept:
            nothing: Ints = np.zeros(0, dtype=np.int64)
            return Spans(nothing, nothing, nothing, nothing)
        spans = self._kept[iteration].spans
        if ranks is None:
            return spans
        own = np.isin(spans.rank, list(ranks))
        return Spans(spans.rank[own], spans.start_ns[own], spans.end_ns[own], spans.lost[own])

    def rows(self, ranks: Iterable[int], query: RowQuery, *, next_calls: bool = False) -> Rows:
        asked = sorted(set(ranks) & set(self.ranks))
        first, last = query.iteration_from, query.iteration_to
        iterations = [i for i in sorted(self._kept) if first <= i <= last]
        found = [rows for i in iterations if (rows := self._readable_rows(i, asked)) is not None]
        if next_calls and any(map(lacks_ends, found)):  # which only all of these rows tell
            found = [with_next_calls(_sorted(found))]
        table = _sorted([query.filter(rows) for rows in found])
        iterations = [i for i in iterations if i in self._kept]
        oldest = min(self._kept, default=self.closed + 1)
        if self.forgotten and last < oldest:
            return Rows(table.slice(0, 0), dict.fromkeys(asked, OVERWRITTEN))
        within = (
            first >= oldest  # of what was before the first one nothing is known
            and last <= self.closed
            and not any(first <= i <= last for i in self._damaged)
        )
        logged = [set(self._kept[i].spans.rank.tolist()) for i in iterations]
        lacking = self._losses.lacking(asked, query)
        whole = set(asked).intersection(*logged) - lacking if within else set()
        outcomes = {rank: COMPLETE if rank in whole else PARTIAL for rank in asked}
        return Rows.bounded(table, outcomes, self._max_rows)

    def _see_how_processes_start(self) -> None:
        """Pass over what processes log again that have begun meanwhile."""
        starting, self._starting = self._starting, []
        for rank_log, before in starting:
            begins, last = rank_log.oldest_here, max(before[1], self.closed)
            if begins is None:
                self._starting.append((rank_log, before))
                continue
            rank_log.another_run = begins_anew(rank_log, before)
            if begins <= last and not self._told_again:
                self._told_again = True
                tell(self.job.job, rank_log, last)
            if rank_log.another_run:
                self._logs.remove(rank_log)
            else:
                rank_log.release(last)

    def _due(self) -> int | None:
        """The iteration to be closed now."""
        oldest = min((o for o in (rank_log.oldest_open for rank_log in self._logs) if o is not None), default=None)
        if oldest is None:
            return None
        if max(rank_log.newest for rank_log in self._logs) >= oldest + SILENT_AFTER:
            return oldest
        all_here = {rank_log.rank for rank_log in self._logs} >= set(self.ranks)
        if not all_here and any(rank_log.alive for rank_log in self._logs):
            return None  # whoever is missing may still come
        return oldest if all(rank_log.is_done_with(oldest) for rank_log in self._logs) else None

    def _close(self, iteration: int) -> None:
        before = (table for _, table in self._recent)
        index = LogIndex(_joined([*before, *(rank_log.rows(iteration) for rank_log in self._logs)]))
        blocks, own = index.blocks, index.blocks.iteration == iteration
        spans = Spans(blocks.rank[own], blocks.start_ns[own], blocks.end_ns[own], blocks.lost[own])
        parts = [index.table.slice(a, b - a) for a, b in zip(blocks.first[own], blocks.last[own], strict=True)]
        table = self._numbered(_joined([index.table.slice(0, 0), *parts]))
        self.closed = iteration
        self._first = iteration if self._first is None else self._first
        self.watermark_ns = max([self.watermark_ns, *blocks.latest_ns[own].tolist()])
        about = {
            "watermark_ns": self.watermark_ns,
            "first": self._first,
            "calls": list(self._calls.items()),
            **self._losses.note(table, iteration),
        }
        payload = kept_iterations.encode(table, blocks.last[own] - blocks.first[own], spans, about)
        try:
            gone = self._segments.append(iteration, payload)
        except OSError as error:
            raise StoreError(
                f"iteration {iteration} of {self.job.job} cannot be kept: {error}: make room, or set a lower "
                "OFFBEAT_LIVE__KEEP_BYTES"
            ) from error
        self._kept[iteration] = _Kept(self._segments.frames[-1], spans)
        self._forget([frame.number for frame in gone])
        self._recent.append((iteration, table))

    def _forget(self, iterations: Sequence[int]) -> None:
        if not iterations:
            return
        first_time = not self.forgotten
        for iteration in iterations:
            self._kept.pop(iteration, None)
        self._losses.forget(min(self._kept, default=0))
        if first_time and len(self._kept) < WANTED_ITERATIONS:
            log.warning(
                "%s: %d iterations fit into the bytes that are kept; %d are wanted: raise OFFBEAT_LIVE__KEEP_BYTES",
                self.job.job,
                len(self._kept),
                WANTED_ITERATIONS,
            )

    def _numbered(self, table: pa.Table) -> pa.Table:
        """Rows, sorted by rank, with the ordinals of their calls."""
        rank = integers(table, "rank")
        ordinal = np.arange(len(rank))
        for each in np.unique(rank).tolist():
            low, high = np.searchsorted(rank, [each, each + 1])
            ordinal[low:high] += self._calls.get(each, 0) - low
            self._calls[each] = self._calls.get(each, 0) + int(high - low)
        at = table.schema.get_field_index("call_order")
        return table.set_column(at, table.schema.field(at), pa.array(ordinal))

    def _recall(self, frame: Frame) -> None:
        """Know an iteration of an earlier life again."""
        try:
            spans, about = kept_iterations.about(self._segments.read(frame))
            calls = {int(rank): int(count) for rank, count in about["calls"]}
            watermark_ns, first = int(about["watermark_ns"]), int(about["first"])
            self._losses.recall(about, frame.number)
        except UNREADABLE as error:
            self._lose(frame.number, error)
            return
        self._kept[frame.number] = _Kept(frame, spans)
        self._calls = calls
        self.closed, self.watermark_ns, self._first = frame.number, watermark_ns, first

    def _lose(self, iteration: int, error: Exception) -> None:
        log.warning("%s: what is kept of iteration %d cannot be read: %s", self.job.job, iteration, error)
        self._kept.pop(iteration, None)
        self._damaged.add(iteration)

    def _readable_rows(self, iteration: int, ranks: Sequence[int]) -> pa.Table | None:
        """``_rows_of`` a kept iteration; None where it turns out to be damaged, and is no longer kept."""
        try:
            return self._rows_of(iteration, ranks)
        except UNREADABLE as error:
            self._lose(iteration, error)
            return None

    def _rows_of(self, iteration: int, ranks: Sequence[int]) -> pa.Table:
        """The rows of some ranks in a kept iteration, by rank and call order; of others nothing is decoded."""
        kept = self._kept[iteration]
        places = np.flatnonzero(np.isin(kept.spans.rank, ranks))
        for recent, table in self._recent:
            if recent == iteration:
                low, high = np.searchsorted(integers(table, "rank"), kept.spans.rank[places] + [[0], [1]])
                return _joined([table.slice(a, b - a) for a, b in zip(low, high, strict=True)])
        return kept_iterations.rows_of(self._segments.read(kept.frame), places)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one after the other, with one dictionary a column."""
    return pa.concat_tables([COMM_OPS.schema.empty_table(), *tables]).unify_dictionaries().combine_chunks()


def _sorted(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several iterations by rank, iteration and call order."""
    joined = _joined(tables)
    order = np.argsort(integers(joined, "rank"), kind="stable")
    return joined.take(pa.array(order))
