"""The log store of a simulated job of thousands of ranks: what nobody asks for is never worked out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from diagnosis.job import Job
from producers.log_agent import LogAgent
from producers.log_store import MAX_ROWS, Rows, Spans
from producers.row_query import RowQuery
from producers.simulation import LazyLog
from producers.simulation.lazy_log import Wanted
from schemas.log_answers import COMPLETE, OVERWRITTEN, PARTIAL


class SimulatedStore:
    """The logs of some ranks of a lazily expanded job, a ``LogStore``.

    ``told`` are the ranks whose spans are known unasked, so that summaries are published of them; all of ``ranks``
    where it is not given. ``keep_iterations`` makes it forget as a ring does; None: nothing is forgotten.
    """

    def __init__(
        self,
        log: LazyLog,
        ranks: Sequence[int] | None = None,
        *,
        told: Collection[int] | None = None,
        keep_iterations: int | None = None,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self.job: Job = log.run.job
        self.ranks = tuple(sorted(self.job.ranks if ranks is None else ranks))
        self.closed = -1
        self.watermark_ns = 0
        self._log = log
        self._told = [rank for rank in self.ranks if told is None or rank in told]
        self._keep, self._max_rows = keep_iterations, max_rows

    @property
    def ended(self) -> bool:
        return self.closed == self._log.run.scenario.iterations - 1

    def advance(self) -> bool:
        if self.ended:
            return False
        self.closed += 1
        self.watermark_ns = max(self.watermark_ns, self._log.latest_ns(self.ranks, self.closed))
        return True

    def spans(self, iteration: int, ranks: Iterable[int] | None = None) -> Spans:
        told = self._told if ranks is None else sorted(set(ranks) & set(self.ranks))
        spans = {rank: self._log.span(rank, iteration) for rank in told}
        logged = {rank: span for rank, span in spans.items() if span.start_ns >= 0}
        columns = [[getattr(span, name) for span in logged.values()] for name in ("start_ns", "end_ns", "lost")]
        return Spans(np.array(list(logged), dtype=np.int64), *(np.array(c, dtype=np.int64) for c in columns))

    def rows(self, ranks: Iterable[int], query: RowQuery, *, next_calls: bool = False) -> Rows:
        asked = sorted(set(ranks) & set(self.ranks))
        oldest = 0 if self._keep is None else max(self.closed + 1 - self._keep, 0)
        iterations = range(max(query.iteration_from, oldest), min(query.iteration_to, self.closed) + 1)
        wanted = Wanted(query.communicator, query.seq_from, query.seq_to, next_calls)
        table, lacking = self._log.rows(asked, iterations, wanted, most=self._max_rows)
        if query.iteration_to < oldest:
            return Rows(table, dict.fromkeys(asked, OVERWRITTEN))
        within = query.iteration_from >= oldest and query.iteration_to <= self.closed
        outcomes = {rank: COMPLETE if within and rank not in lacking else PARTIAL for rank in asked}
        return Rows.bounded(table, outcomes, self._max_rows)


def simulated_agents(
    log: LazyLog, published: Collection[int], *, hosts_an_agent: int = 64, keep_iterations: int | None = None
) -> list[LogAgent]:
    """Agents of a lazily expanded job; the rows and summaries of the ``published`` ranks travel unasked.

    Each speaks for several hosts under the name of the first: of thousands of agents in one process every one would
    read every request.
    """
    hosts = list(log.run.job.ranks_of_host.items())
    made = []
    for first in range(0, len(hosts), hosts_an_agent):
        some = hosts[first : first + hosts_an_agent]
        ranks = [rank for _, of_host in some for rank in of_host]
        store = SimulatedStore(log, ranks, told=published, keep_iterations=keep_iterations)
        made.append(LogAgent(store, some[0][0], published))
    return made
