"""Rows a second into ClickHouse: through the sink, and by a bare insert of the same rows with the driver.

The sink's time has everything in it, from the encoded messages to the server's acknowledgement. The bare insert
gets its values made before the clock starts, in the form that the driver documents for large inserts: a list a
column. Both inserts have the same settings.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from clickhouse_driver import Client

from schemas.catalogue import COMM_OPS
from schemas.errors import StoreError
from schemas.message import Message, decode, encode
from schemas.tables import TABLES
from sinks.clickhouse.driver import DriverStore, ServerAddress
from sinks.clickhouse.migrate import migrate
from sinks.clickhouse.rows import stored_rows
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.store import INSERT_SETTINGS, MAX_INSERT_ROWS, Store, one_batch

_TABLE = TABLES["comm_ops"]


@dataclass(frozen=True, slots=True)
class InsertRates:
    """Medians over the repeats, rows a second."""

    rows: int
    sink_rows_per_s: float
    bare_rows_per_s: float

    @property
    def ratio(self) -> float:
        """The sink's rate in bare inserts."""
        return self.sink_rows_per_s / self.bare_rows_per_s


def measure_inserts(address: ServerAddress, messages: Sequence[Message], *, repeats: int = 5) -> InsertRates:
    """Insert these records of comm_ops both ways, by turns, into a database made for it and dropped at the end.

    Raises ``ValueError`` where they are not one insert: more rows than that, or of several days.
    """
    batches = [stored_rows(_TABLE, decode(message, COMM_OPS), message.job) for message in messages]
    rows = one_batch(pa.Table.from_batches(batches))
    days = np.unique(rows.column("call_at").view(pa.int64()).to_numpy() // (86_400 * 10**9))
    if rows.num_rows > MAX_INSERT_ROWS or len(days) != 1:
        raise ValueError(f"{rows.num_rows} rows of {len(days)} days are not one insert")
    sink_s, bare_s = [], []
    with _database(address) as own, closing(DriverStore(own)) as store, _client(own) as client:
        migrate(store)
        columns = _as_lists(rows)
        for _ in range(repeats):
            sink_s.append(_timed(store, rows.num_rows, lambda: _through_the_sink(store, messages)))
            bare_s.append(_timed(store, rows.num_rows, _bare_insert(client, rows.schema.names, columns)))
    return InsertRates(
        rows.num_rows, rows.num_rows / statistics.median(sink_s), rows.num_rows / statistics.median(bare_s)
    )


def operator_messages(
    rows: int,
    *,
    rows_per_message: int = 25_000,
    ranks: int = 64,
    start_ns: int = 1_768_000_000_000_000_000,
    seed: int = 0,
) -> list[Message]:
    """Records of comm_ops as log agents send them, of made-up operators: every column filled that often is."""
    draw = np.random.default_rng(seed)
    messages = []
    for offset, start in enumerate(range(0, rows, rows_per_message)):
        number = np.arange(start, min(start + rows_per_message, rows))
        call_ns = start_ns + number * 10_000 + draw.integers(0, 10_000, len(number))
        end_ns = call_ns + draw.integers(10**5, 10**7, len(number))
        point_to_point = draw.random(len(number)) < 0.2
        batch = COMM_OPS.batch(
            {
                "rank": (number % ranks).astype(np.int32),
                "communicator": _named("tp", number % ranks // 8),
                "seq": number // ranks,
                "position": (number // ranks % 400).astype(np.int32),
                "call_order": number // ranks,
                "op": _named("", point_to_point.astype(int), ("all_reduce", "send")),
                "dtype": _named("bf", np.full(len(number), 16)),
                "count": draw.integers(1, 1 << 20, len(number)),
                "bytes": draw.integers(1, 1 << 21, len(number)),
                "peer": pa.array(((number + 8) % ranks).astype(np.int32), mask=~point_to_point),
                "p2p_seq": pa.array(number // ranks, mask=~point_to_point),
                "iteration": (number // ranks // 400).astype(np.int32),
                "microbatch": (number // ranks // 25 % 16).astype(np.int32),
                "phase": _named("", number // ranks // 200 % 2, ("forward", "backward")),
                "call_ns": call_ns,
                "start_ns": call_ns + 1000,
                "end_ns": pa.array(end_ns, mask=draw.random(len(number)) < 0.01),
            }
        )
        messages.append(replace(encode(COMM_OPS, batch, job="bench"), offset=offset))
    return messages


def _through_the_sink(store: Store, messages: Sequence[Message]) -> None:
    sink = ClickHouseSink(store)
    for message in messages:
        sink.process(message)
    sink.flush()


def _as_lists(rows: pa.RecordBatch) -> list[list[Any]]:
    """The values as a user of the driver has them: a list a column, times as the whole numbers that it takes."""
    plain = [column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    return [column.to_pylist() for column in plain]


def _bare_insert(client: Client, names: Sequence[str], columns: Sequence[list[Any]]) -> Callable[[], None]:
    own = [list(column) for column in columns]  # the driver replaces nulls in the lists that it is given
    sql = f"INSERT INTO comm_ops ({', '.join(names)}) VALUES"
    return partial(client.execute, sql, own, columnar=True, settings=INSERT_SETTINGS)


def _client(address: ServerAddress) -> Client:
    return Client(address.host, address.port, user=address.user, password=address.password, database=address.database)


def _timed(store: Store, rows: int, insert: Callable[[], None]) -> float:
    store.execute("TRUNCATE TABLE comm_ops")
    started = time.perf_counter()
    insert()
    elapsed = time.perf_counter() - started
    stored = store.query("SELECT count() AS n FROM comm_ops").column("n")[0].as_py()
    if stored != rows:
        raise StoreError(f"{stored} of {rows} rows were stored")
    return elapsed


@contextmanager
def _database(address: ServerAddress) -> Iterator[ServerAddress]:
    name = f"offbeat_bench_{uuid.uuid4().hex[:8]}"
    store = DriverStore(address)
    store.execute(f"CREATE DATABASE {name}")
    try:
        yield replace(address, database=name)
    finally:
        store.execute(f"DROP DATABASE {name}")
        store.close()


def _named(prefix: str, codes: npt.NDArray[np.int_], words: Sequence[str] = ()) -> pa.DictionaryArray:
    names = list(words) or [f"{prefix}{code}" for code in range(int(codes.max()) + 1)]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names))
