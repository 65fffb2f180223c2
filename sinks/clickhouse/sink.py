"""The sink that fills the tables: one table a topic, few large inserts, each of them safe to repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import pyarrow as pa

from schemas.message import Message, decode
from schemas.tables import TABLES, Table
from schemas.topic import Topic
from sinks.clickhouse.rows import by_partition, stored_rows
from sinks.clickhouse.store import MAX_INSERT_ROWS, Store, one_batch

MAX_BUFFERED_BYTES = 256 << 20


class ClickHouseSink:
    """A ``Sink`` named store: keeps what it reads until ``flush`` stores it.

    Its runner flushes before each commit. It flushes by itself once ``max_rows`` rows or ``max_bytes`` bytes wait,
    so that what is under way stays bounded, whatever comes in between two commits. After a restart the same
    messages come again from ``safe_offsets`` on, maybe cut differently: their rows replace themselves.

    An insert's token names the topic, partition, first and last offset, and digests the messages, because a topic
    may be made anew and the in-process runner counts from 0 each time; with the offsets alone, rows that are new
    would be taken for a retry and dropped. ``attempt`` tells it apart from inserts of the same messages before: where
    their rows were deleted since, it is no retry.
    """

    name = "store"
    writes: tuple[Topic, ...] = ()

    def __init__(
        self,
        store: Store,
        *,
        comm_ops: bool = True,
        max_rows: int = MAX_INSERT_ROWS,
        max_bytes: int = MAX_BUFFERED_BYTES,
        attempt: str = "",
    ) -> None:
        tables = [table for table in TABLES.values() if comm_ops or table.name != "comm_ops"]
        self.reads = tuple(table.topic for table in tables)
        self._store = store
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._waiting = {table.topic.name: _Waiting(table, attempt) for table in tables}

    def process(self, message: Message) -> Iterable[Message]:
        """Take a message; raises ``MessageError`` where it is bad, ``StoreError`` where a due flush fails."""
        self._waiting[message.topic].take(message)
        waiting = self._waiting.values()
        if sum(w.rows for w in waiting) >= self._max_rows or sum(w.bytes for w in waiting) >= self._max_bytes:
            self.flush()
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Nothing: the runner's commits set the pace."""
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        """The first message of each topic that is not stored yet."""
        offsets = {w.table.topic: w.safe_offset for w in self._waiting.values()}
        return {topic: offset for topic, offset in offsets.items() if offset is not None}

    def flush(self) -> None:
        """Store all that waits; raises ``StoreError``, and then it still waits."""
        for waiting in self._waiting.values():
            waiting.store(self._store)


class _Waiting:
    """The messages of one topic that are not stored yet."""

    def __init__(self, table: Table, attempt: str) -> None:
        self.table = table
        self._attempt = attempt
        self.next_offset: int | None = None
        self._clear()

    def _clear(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = self.bytes = 0
        self._first: Message | None = None
        self._digest = hashlib.blake2b(digest_size=8)

    @property
    def safe_offset(self) -> int | None:
        return self._first.offset if self._first else self.next_offset

    def take(self, message: Message) -> None:
        batch = stored_rows(self.table, decode(message, self.table.topic), message.job)
        self._first = self._first or message
        self.next_offset = message.offset + 1
        self._digest.update(message.job.encode())
        self._digest.update(message.value or b"")
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def store(self, store: Store) -> None:
        if self._first is None or self.next_offset is None:
            return
        first, last = self._first, self.next_offset - 1
        insert = f"{first.topic}/{first.partition}/{first.offset}-{last}/{self._digest.hexdigest()}{self._attempt}"
        for part, rows in by_partition(self.table, one_batch(pa.Table.from_batches(self.batches))):
            store.insert(self.table.name, rows, f"{insert}/{part}")
        self._clear()
