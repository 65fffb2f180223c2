"""What one recording tells of a job, put in place of what earlier ones told under the same name.

Of two runs under one name rows replace each other only where they tell of the same iteration, operator or finding, and
the later or higher one counts, whichever run it is of. So what is stored is deleted first, but only where all of it
came of recordings: what a live pipeline told of a job cannot be had again.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Mapping

from schemas.message import Message
from schemas.tables import TABLES
from schemas.topic import Topic
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.store import Store

_RECORDED_JOBS = """
CREATE TABLE IF NOT EXISTS recorded_jobs (job String, stored_at DateTime('UTC'), noted_at DateTime64(6, 'UTC'))
ENGINE = ReplacingMergeTree(noted_at) ORDER BY job
"""
_STORED = " UNION ALL ".join(f"SELECT stored_at FROM {name} WHERE job = {{job:String}}" for name in TABLES)
_FROM_OTHERS = f"""
SELECT count() > 0 AS found FROM ({_STORED})
WHERE stored_at > (SELECT argMax(stored_at, noted_at) FROM recorded_jobs WHERE job = {{job:String}})
"""
_BEING_REPLACED = "INSERT INTO recorded_jobs SELECT {job:String}, toDateTime('2100-01-01', 'UTC'), now64(6, 'UTC')"
_REPLACED = f"INSERT INTO recorded_jobs SELECT {{job:String}}, max(stored_at), now64(6, 'UTC') FROM ({_STORED})"


class OneRun:
    """A processor that holds what a recording makes of a job until ``keep`` stores it.

    So a diagnosis that fails half way leaves what was stored as it is. What waits is what a diagnosis makes of one
    recording, which is in memory as well. ``replaces``: whether all that is stored of the job came of recordings, and
    goes; else this run's rows come beside it. The table ``recorded_jobs`` tells: what came in after the time that it
    has of a job is somebody else's. Raises ``StoreError``; the store has to be migrated.
    """

    name = "store"
    writes: tuple[Topic, ...] = ()

    def __init__(self, store: Store, job: str, *, comm_ops: bool = True) -> None:
        store.execute(_RECORDED_JOBS)
        self._store, self._of_job = store, {"job": job}
        # A run that was stored before, and deleted since, must not be taken for a retry.
        self._sink = ClickHouseSink(
            store, comm_ops=comm_ops, max_rows=sys.maxsize, max_bytes=sys.maxsize, attempt=uuid.uuid4().hex
        )
        self.reads = self._sink.reads
        self.replaces = not self._others_told()

    def process(self, message: Message) -> Iterable[Message]:
        """Take a message; raises ``MessageError`` where it is bad."""
        return self._sink.process(message)

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Nothing: it waits for nobody."""
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        """Nothing is read again: a diagnosis of a recording starts anew."""
        return {}

    def keep(self) -> None:
        """Store what was taken; raises ``StoreError``. Where it ends half way, however, what came in by then goes with
        the next recording of the job.
        """
        if not self.replaces or self._others_told():
            self._sink.flush()
            return
        self._store.execute(_BEING_REPLACED, self._of_job)
        for table in TABLES:
            self._store.execute(f"DELETE FROM {table} WHERE job = {{job:String}}", self._of_job)
        self._sink.flush()
        self._store.execute(_REPLACED, self._of_job)

    def _others_told(self) -> bool:
        """Whether something that is stored of the job came of no recording."""
        return bool(self._store.query(_FROM_OTHERS, self._of_job).column("found")[0].as_py())
