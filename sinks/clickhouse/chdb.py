"""The store in this process: chDB, the ClickHouse engine as a library, over a folder on disk.

The engine lives once in a process and serves one folder; another process cannot open the folder meanwhile, and a
process that has imported it must not fork.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import StoreError
from sinks.clickhouse.folder_lock import opening
from sinks.clickhouse.native import native_block
from sinks.clickhouse.reason import reason
from sinks.clickhouse.store import INSERT_SETTINGS, Parameters, Settings, insertable, parameter_text, quoted
from sinks.clickhouse.types import Type, arrow_type, parse

if TYPE_CHECKING:
    from chdb.state.sqlitelike import Connection


_FAILED_INSERTS = "FailedInsertQuery"
_FAILURES = f"""
SELECT name, toInt64(value) AS times FROM system.errors
UNION ALL
SELECT '{_FAILED_INSERTS}', toInt64(sum(value)) FROM system.events WHERE event = '{_FAILED_INSERTS}'
"""


def holds_store(folder: Path) -> bool:
    """Whether tables were ever made in a chDB folder: the engine itself makes a store of any folder that it opens."""
    return (folder / "metadata").is_dir()


class ChdbStore:
    """A chDB folder, made where it is missing. Open until ``close``; one a process.

    Raises ``StoreError`` where the folder, or another one, is open in this process, or another process holds it.
    """

    _open: Path | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._one_at_a_time = threading.Lock()  # a query's parameters are its connection's
        if ChdbStore._open is not None:
            raise StoreError(
                f"chDB folder {self.folder}: this process has {ChdbStore._open} open, and chDB serves one folder a "
                "process; pass that store on, or close it first"
            )
        try:
            if not self.folder.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
            with opening(self.folder):
                self._connection: Connection | None = self._connect()
        except OSError as error:
            raise _unusable(self.folder, error) from error
        ChdbStore._open = self.folder

    def execute(self, sql: str, params: Parameters | None = None) -> None:
        """See ``Store.execute``."""
        with self._one_at_a_time:
            self._ask(self._connected, sql, params)

    def query(self, sql: str, params: Parameters | None = None, settings: Settings | None = None) -> pa.Table:
        """See ``Store.query``."""
        with self._one_at_a_time, self._with_settings(settings) as connection:
            answer = self._ask(connection, sql, params)
            if not any(_is_ambiguous(field.type) for field in answer.schema):
                return answer
            try:
                types = self._described(connection, sql, params)
            except StoreError:  # no SELECT: its types cannot be asked for
                return answer
            return _typed(answer, types)

    def insert(self, table: str, data: pa.Table | pa.RecordBatch, token: str) -> None:
        """See ``Store.insert``."""
        batch = insertable(data)
        if not batch.num_rows:
            return
        columns = ", ".join(f"`{name}`" for name in batch.schema.names)
        settings = _assigned({**INSERT_SETTINGS, "insert_deduplication_token": token})
        with self._one_at_a_time:
            types = self._described(self._connected, f"SELECT {columns} FROM {table}", None)
            block = b"".join(native_block(batch, types))
            self._insert(f"INSERT INTO {table} ({columns}) SETTINGS {settings}", block)

    def close(self) -> None:
        """See ``Store.close``."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            ChdbStore._open = None

    @property
    def _connected(self) -> Connection:
        if self._connection is None:
            raise StoreError(f"chDB folder {self.folder}: the store is closed")
        return self._connection

    def _connect(self) -> Connection:
        # Not from the package itself: chdb and chdb-core both bring its face, and which one is there is chance.
        from chdb import _chdb
        from chdb.state import connect

        try:
            connection = connect(str(self.folder))
            # The engine takes over the handlers of fatal signals; a crash of ours is to be seen as what it is.
            _chdb.reset_signal_handlers()  # type: ignore[attr-defined] # its stub leaves it out
        except RuntimeError as error:
            raise _store_error(self.folder, error) from error
        return connection

    @contextmanager
    def _with_settings(self, settings: Settings | None) -> Iterator[Connection]:
        """A connection under these settings: one of its own, because they last as long as it does."""
        if not settings:
            yield self._connected
            return
        connection = self._connect()
        try:
            self._ask(connection, f"SET {_assigned(settings)}", None)
            yield connection
        finally:
            connection.close()

    def _insert(self, sql: str, block: bytes) -> None:
        before = self._failures()
        try:
            inserter: Any = self._connected.send_insert(sql, "Native")
            with inserter as stream:
                stream.append(block)
                stream.finish()
        except RuntimeError as error:
            raise _store_error(self.folder, error) from error
        # Not every failure is raised: on a full disk the engine says that it has written what it has not.
        after = self._failures()
        if after[_FAILED_INSERTS] != before[_FAILED_INSERTS]:
            happened = {name for name, count in after.items() if count != before.get(name, 0)} - {_FAILED_INSERTS}
            raise StoreError(f"chDB folder {self.folder}: {self._message_of(happened)}")

    def _failures(self) -> dict[str, int]:
        """How many inserts have failed in this process so far, and how often each error has happened."""
        counted = self._ask(self._connected, _FAILURES, None)
        return dict(zip(counted["name"].to_pylist(), counted["times"].to_pylist(), strict=True))

    def _message_of(self, errors: set[str]) -> str:
        """What the engine last said of errors with these names."""
        told = self._ask(self._connected, "SELECT name, last_error_message AS message FROM system.errors", None)
        rows: list[dict[str, str]] = told.to_pylist()
        said = "; ".join(reason(row["message"]) for row in rows if row["name"] in errors)
        return said or "an insert has failed, and the engine does not say why"

    def _ask(self, connection: Connection, sql: str, params: Parameters | None) -> pa.Table:
        texts = {name: parameter_text(value) for name, value in (params or {}).items()}
        try:
            answer = connection.query(sql, "Arrow", params=texts).bytes()
            return pa.ipc.open_file(answer).read_all() if answer else pa.table({})
        except RuntimeError as error:
            raise _store_error(self.folder, error) from error
        except (pa.ArrowException, OSError) as error:
            raise StoreError(
                f"chDB folder {self.folder}: the answer is no table ({error}); ask one question, without FORMAT"
            ) from error

    def _described(self, connection: Connection, sql: str, params: Parameters | None) -> list[tuple[str, str]]:
        """Names and ClickHouse types of a query's columns."""
        described = self._ask(connection, f"DESCRIBE TABLE (\n{sql.rstrip().rstrip(';')}\n)", params)
        return list(zip(described["name"].to_pylist(), described["type"].to_pylist(), strict=True))


def _assigned(settings: Settings) -> str:
    return ", ".join(f"{name} = {quoted(value)}" for name, value in settings.items())


def _unusable(folder: Path, error: OSError) -> StoreError:
    return StoreError(f"chDB folder {folder}: {error.strerror}; give a folder that can be made or written to")


def _store_error(folder: Path, error: Exception) -> StoreError:
    return StoreError(f"chDB folder {folder}: {reason(str(error))}")


def _is_ambiguous(type_: pa.DataType) -> bool:
    """Whether chDB's Arrow stands for several types of ClickHouse: a uint32 is a number, a DateTime or an IPv4."""
    if pa.types.is_list(type_):
        return _is_ambiguous(type_.value_type)
    plain = pa.types.is_uint32(type_) or pa.types.is_int8(type_) or pa.types.is_int16(type_)
    return bool(plain or pa.types.is_fixed_size_binary(type_) or isinstance(type_, pa.BaseExtensionType))


def _typed(table: pa.Table, types: list[tuple[str, str]]) -> pa.Table:
    columns = []
    for column, (_, type_name) in zip(table.columns, types, strict=True):
        columns.append(_restored(parse(type_name), column.combine_chunks()))
    fields = [
        pa.field(field.name, column.type, nullable=field.nullable)
        for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _restored(type_: Type, values: pa.Array) -> pa.Array:
    """What chDB's Arrow lost: dates to the second, names of enums, and what is read as text."""
    match type_.name:
        case "Nullable" | "LowCardinality":
            return _restored(type_.arguments[0], values)
        case "Array" if _is_ambiguous(values.type):
            items = _restored(type_.arguments[0], values.values)
            field = values.type.value_field.with_type(items.type)
            return pa.ListArray.from_arrays(values.offsets, items, type=pa.list_(field))
        case "DateTime":
            return values.cast(pa.int64()).cast(arrow_type(type_))
        case "Enum8" | "Enum16":
            named = dict(literal.rsplit(" = ", 1) for literal in type_.literals)
            keys = pa.array([int(number) for number in named.values()], values.type)
            names = pa.array([name[1:-1] for name in named])
            return names.take(pc.index_in(values, keys))
        case "UUID" | "IPv4" | "IPv6" | "FixedString":
            as_text = _AS_TEXT[type_.name]
            return pa.array([None if v is None else as_text(v) for v in values.to_pylist()], pa.string())
    return values


_AS_TEXT: dict[str, Callable[[Any], str]] = {
    "UUID": str,
    "IPv4": lambda number: str(ipaddress.IPv4Address(number)),
    "IPv6": lambda packed: str(ipaddress.IPv6Address(packed)),
    "FixedString": lambda padded: padded.rstrip(b"\0").decode("utf-8", "replace"),
}
