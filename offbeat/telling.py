"""What a role logs while all goes well, told of what passes through it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import structlog
from prometheus_client import Counter as Counts

from offbeat.answer import incident_json
from offbeat.report import headline
from schemas.catalogue import INCIDENTS
from schemas.message import Message, decode
from sinks.clickhouse.store import Parameters, Settings, Store
from streams.bus import Outbox

_log = structlog.get_logger(__name__)

EVERY_S = 60.0
"""Rows come all the time: they are told of together."""


class TellingOutbox:
    """An outbox that logs each news of an incident that is sent through it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._open: dict[tuple[str, str], int] = {}

    def send(self, message: Message) -> None:
        self._outbox.send(message)
        if message.topic == INCIDENTS.name:
            for row in decode(message, INCIDENTS).to_pylist():
                self._tell(message.job, row)

    def flush(self) -> None:
        self._outbox.flush()

    def _tell(self, job: str, row: dict[str, object]) -> None:
        """Log a revision once: what changes between two of them nobody must hear."""
        incident, revision = str(row["id"]), int(str(row["revision"]))
        known = self._open.get((job, incident), 0)
        if revision <= known:
            return
        self._open[job, incident] = revision
        happened = "opened" if revision == 1 else "changed"
        if row["state"] == "resolved":
            happened = "resolved"
            del self._open[job, incident]
        _log.info(
            f"incident {happened}",
            job=job,
            incident=incident,
            what=headline(incident_json(row)),
            iterations=[row["first_iteration"], row["last_iteration"]],
            pattern=row["pattern"],
        )


class TellingStore:
    """A store that logs how many rows went into which table, now and then; ``stored`` counts them."""

    def __init__(
        self, store: Store, stored: Counts, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._stored = stored
        self._every_s = every_s
        self._clock = clock
        self._told_at = clock() - every_s
        self._untold: Counter[str] = Counter()

    def execute(self, sql: str, params: Parameters | None = None) -> None:
        self._store.execute(sql, params)

    def query(self, sql: str, params: Parameters | None = None, settings: Settings | None = None) -> pa.Table:
        return self._store.query(sql, params, settings)

    def insert(self, table: str, data: pa.Table | pa.RecordBatch, token: str) -> None:
        self._store.insert(table, data, token)
        self._untold[table] += data.num_rows
        self._stored.labels(table).inc(data.num_rows)
        if self._clock() - self._told_at >= self._every_s:
            self.tell()

    def tell(self) -> None:
        """Log what has been stored since the last time."""
        if self._untold:
            _log.info("rows stored", **self._untold)
            self._untold.clear()
            self._told_at = self._clock()

    def close(self) -> None:
        """Let go of the store, whose last rows are told of."""
        self.tell()
        self._store.close()
