"""Where operator logs are kept, and how far they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import integers
from diagnosis.job import Job
from producers.log_index import LogIndex
from producers.next_calls import COLUMNS, following_calls, lacks_ends, with_following
from producers.row_query import RowQuery
from schemas.log_answers import COMPLETE, OVERWRITTEN, PARTIAL

MAX_ROWS = 4_000_000
"""Rows that a store answers with at once at most."""


@dataclass(frozen=True)
class Spans:
    """One iteration as ranks saw it, an entry a rank that logged something in it; -1: not known."""

    rank: Ints
    start_ns: Ints
    end_ns: Ints
    lost: Ints


class Rows(NamedTuple):
    """Rows of telemetry.comm_ops, sorted by rank, iteration and call order, and how far each rank's are all:

    ``complete``, ``partial`` (some are missing, or may have been: before a live host's first iteration) or
    ``overwritten`` (older than what is kept).
    """

    table: pa.Table
    outcomes: Mapping[int, str]

    @classmethod
    def bounded(cls, table: pa.Table, outcomes: Mapping[int, str], most: int) -> Self:
        """As many ranks, in their order, as have at most so many rows together; the others are left out. The first rank
        never is: where it alone has more, they are cut off.
        """
        if table.num_rows <= most:
            return cls(table, outcomes)
        ranks = sorted(outcomes)
        ends = np.searchsorted(integers(table, "rank"), ranks, side="right")
        fit = int(np.searchsorted(ends, most, side="right"))
        kept = {rank: outcomes[rank] for rank in ranks[:fit]} or {ranks[0]: PARTIAL}
        return cls(table.take(pa.array(np.arange(ends[fit - 1] if fit else most))), kept)  # a slice would keep all


class LogSource(Protocol):
    """The logs of some ranks, as far as they are kept: what requests are answered from."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks whose logs are kept here."""
        ...

    def spans(self, iteration: int, ranks: Iterable[int] | None = None) -> Spans:
        """When the ranks began and ended a closed iteration; None: all that a summary is published of."""
        ...

    def rows(self, ranks: Iterable[int], query: RowQuery, *, next_calls: bool = False) -> Rows:
        """Rows of those of the ranks that are kept, in closed iterations. Of too many rows those of the last ranks are
        left out (``Rows.bounded``).

        With ``next_calls`` rows whose end is unknown tell when their rank went on, as far as the log of these
        iterations tells.
        """
        ...


class LogStore(LogSource, Protocol):
    """The logs of some ranks of a job, iteration by iteration."""

    @property
    def job(self) -> Job:
        """The job that the logs tell of."""
        ...

    @property
    def closed(self) -> int:
        """The newest iteration whose rows are all here; -1: none."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the log ends with the iteration ``closed``."""
        ...

    @property
    def watermark_ns(self) -> int:
        """The latest time that rows of closed iterations tell of; 0: none."""
        ...

    def advance(self) -> bool:
        """Close the next iteration; False where there is none (yet)."""
        ...


def all_rows(logs: LogSource, ranks: Iterable[int], query: RowQuery, *, next_calls: bool = False) -> Iterator[Rows]:
    """What ``LogSource.rows`` gives of all of the ranks that are kept, as many at a time as there is room for."""
    left = sorted(set(ranks) & set(logs.ranks))
    at_once = len(left)
    while left:
        found = logs.rows(left[:at_once], query, next_calls=next_calls)
        yield found
        at_once = len(found.outcomes)
        left = left[at_once:]


class RecordingStore:
    """A log that is known from beginning to end, told iteration by iteration.

    It serves recordings and simulated runs alike: both are tables of telemetry.comm_ops. (A simulation of
    thousands of ranks expands rows on demand and is a LogStore of its own.) Several stores, one a host, share
    one index; their iterations are numbered alike, so that they advance in step. ``keep_iterations`` makes it
    forget as a ring does; None: nothing is forgotten.
    """

    def __init__(
        self,
        job: Job,
        index: LogIndex,
        ranks: Sequence[int] | None = None,
        *,
        keep_iterations: int | None = None,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self.job = job
        self.ranks = tuple(sorted(job.ranks if ranks is None else ranks))
        self.watermark_ns = 0
        self._index = index
        self._keep, self._max_rows = keep_iterations, max_rows
        self._next = 0

    @property
    def closed(self) -> int:
        return int(self._index.iterations[self._next - 1]) if self._next else -1

    @property
    def ended(self) -> bool:
        return self._next == len(self._index.iterations)

    def advance(self) -> bool:
        if self.ended:
            return False
        self._next += 1
        blocks = self._blocks(self.ranks, self.closed, self.closed)
        self.watermark_ns = max([self.watermark_ns, *self._index.blocks.latest_ns[blocks].tolist()])
        return True

    def spans(self, iteration: int, ranks: Iterable[int] | None = None) -> Spans:
        own = self.ranks if ranks is None else sorted(set(ranks) & set(self.ranks))
        at = self._blocks(own, iteration, iteration)
        blocks = self._index.blocks
        return Spans(blocks.rank[at], blocks.start_ns[at], blocks.end_ns[at], blocks.lost[at])

    def rows(self, ranks: Iterable[int], query: RowQuery, *, next_calls: bool = False) -> Rows:
        asked = np.array(sorted(set(ranks) & set(self.ranks)), dtype=np.int64)
        oldest = self._oldest()
        blocks = self._blocks(asked, max(query.iteration_from, oldest), min(query.iteration_to, self.closed))
        all_at, index = self._rows_of(blocks), self._index
        chosen = query.matches(index.communicator[all_at], index.communicators, index.seq[all_at])
        enough = slice(self._max_rows + 1)  # one more shows that these are not all
        table = index.table.take(pa.array(all_at[chosen][enough]))
        if next_calls and lacks_ends(table):
            following = following_calls(index.table.select(COLUMNS).take(pa.array(all_at)))
            table = with_following(table, following[chosen][enough])
        if query.iteration_to < oldest:
            return Rows(table, dict.fromkeys(asked.tolist(), OVERWRITTEN))
        kept = np.arange(np.searchsorted(index.iterations, max(query.iteration_from, oldest)), self._next)
        expected = int((index.iterations[kept] <= query.iteration_to).sum())
        of_rank = index.blocks.rank[blocks]
        logged = np.searchsorted(of_rank, asked, side="right") - np.searchsorted(of_rank, asked)
        whole = logged == expected
        whole &= query.iteration_from >= oldest and query.iteration_to <= self.closed
        whole &= ~np.isin(asked, self._lacking(asked, query))
        outcomes = np.where(whole, COMPLETE, PARTIAL)
        return Rows.bounded(table, dict(zip(asked.tolist(), outcomes.tolist(), strict=True)), self._max_rows)

    def _oldest(self) -> int:
        """The oldest iteration that is kept."""
        if self._keep is None or self._next <= self._keep:
            return 0
        return int(self._index.iterations[self._next - self._keep])

    def _blocks(self, ranks: Iterable[int], iteration_from: int, iteration_to: int) -> Ints:
        spans = [self._index.of(int(rank), iteration_from, iteration_to) for rank in ranks]
        return _ranges(np.array(spans, dtype=np.int64).reshape(-1, 2))

    def _rows_of(self, blocks: Ints) -> Ints:
        return _ranges(np.stack([self._index.blocks.first[blocks], self._index.blocks.last[blocks]], axis=1))

    def _lacking(self, ranks: Ints, query: RowQuery) -> Ints:
        """The ranks of which rows are missing among those asked for."""
        holes, (lowest, highest) = self._index.holes, query.seqs
        hit = np.isin(holes.rank, ranks) & (holes.seq_to >= lowest) & (holes.seq_from <= highest)
        hit &= (holes.iteration_to >= query.iteration_from) & (holes.iteration_from <= query.iteration_to)
        if query.communicator is not None:
            hit &= holes.communicator == query.code(self._index.communicators)
        return np.unique(holes.rank[hit])


def _ranges(bounds: Ints) -> Ints:
    """All numbers of half-open ranges, one after the other; ``bounds`` has the shape (ranges, 2)."""
    lengths = bounds[:, 1] - bounds[:, 0]
    before = np.cumsum(lengths) - lengths
    return np.repeat(bounds[:, 0] - before, lengths) + np.arange(int(lengths.sum()))
