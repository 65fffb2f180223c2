"""The logs of a host's job while another thread closes its iterations."""

from __future__ import annotations

from collections.abc import Iterable

from producers.live.turns import Turns
from producers.log_store import LogSource, Rows, Spans
from producers.row_query import RowQuery


class SharedLogs:
    """Looks up a rank at a time, so that whoever drains the rings waits no longer than that for its turn.

    Between two ranks an iteration may be closed, and the oldest go for it. Nothing is inconsistent then: all of a
    rank's rows are looked up at once, each rank has an outcome of its own, and what is asked for is closed already.
    """

    def __init__(self, logs: LogSource, turns: Turns) -> None:
        self.ranks = logs.ranks
        self._logs, self._turns = logs, turns

    def spans(self, iteration: int, ranks: Iterable[int] | None = None) -> Spans:
        with self._turns:
            return self._logs.spans(iteration, ranks)

    def rows(self, ranks: Iterable[int], query: RowQuery, *, next_calls: bool = False) -> Rows:
        """Rows of the first of the ranks; the others are left out, as where there is no room for them."""
        with self._turns:
            return self._logs.rows(sorted(set(ranks) & set(self.ranks))[:1], query, next_calls=next_calls)
