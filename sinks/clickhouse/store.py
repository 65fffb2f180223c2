"""The store contract: what the sink, the migrations and the command line need of ClickHouse, whoever runs it.

Two engines are behind it: ``chdb.ChdbStore`` (in this process, a folder on disk) and ``driver.DriverStore`` (a
server, native TCP). One conformance suite, tests/sinks/clickhouse, runs on both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import pyarrow as pa

MAX_INSERT_ROWS = 1_000_000
"""No insert is larger: ClickHouse takes so many rows as one block, hence as one part, all or nothing."""

INSERT_SETTINGS: dict[str, int] = {"async_insert": 0, "optimize_on_insert": 0}
"""Acknowledged once stored; and rows that replace each other meet in merges and FINAL, not in every insert as well,
which would take the server twice the time."""

Scalar = str | int | float | bool | datetime | None
Parameter = Scalar | Sequence[Scalar]
Parameters = Mapping[str, Parameter]
Settings = Mapping[str, str | int]

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"})


class Store(Protocol):
    """A place for tables. Threads may share it, and wait for each other.

    SQL takes parameters, ``{name:Type}``. Every method raises ``StoreError``: the statement is wrong, or the store
    cannot be reached (after retries).
    """

    def execute(self, sql: str, params: Parameters | None = None) -> None:
        """Run a statement without an answer. It may run twice where the connection breaks: make it repeatable."""

    def query(self, sql: str, params: Parameters | None = None, settings: Settings | None = None) -> pa.Table:
        """Ask for a table, typed as ``types.arrow_type`` says; ``settings`` hold for this query alone."""

    def insert(self, table: str, data: pa.Table | pa.RecordBatch, token: str) -> None:
        """Append rows, columns by name, all of one partition and at most ``MAX_INSERT_ROWS``.

        Returns once they are stored. A second insert with a token that the table remembers does nothing. A null
        list is stored as an empty one, a null struct as a struct of nulls; any other null where the column knows
        none raises ``ValueError``, as do too many rows.
        """

    def close(self) -> None:
        """Let go of the connection or folder. Closing twice does nothing."""


def parameter_text(value: Parameter) -> str:
    """A parameter's value as ClickHouse reads it: a list as a literal, else as a field of TabSeparated."""
    if value is None:
        return "\\N"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(quoted(item) for item in value) + "]"
    return _text(value).translate(_ESCAPES)


def quoted(value: Scalar) -> str:
    """A value as a literal of SQL: for settings, which take no parameters."""
    if value is None:
        return "NULL"
    if isinstance(value, str | datetime):
        return "'" + _text(value).translate(_ESCAPES).replace("'", "\\'") + "'"
    return _text(value)


def one_batch(data: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """The rows as a single batch."""
    if isinstance(data, pa.RecordBatch):
        return data
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in data.unify_dictionaries().columns], names=data.column_names
    )


def insertable(data: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """The rows of an insert as a single batch. Raises ``ValueError`` above ``MAX_INSERT_ROWS``."""
    if data.num_rows > MAX_INSERT_ROWS:
        raise ValueError(f"an insert of {data.num_rows} rows; at most {MAX_INSERT_ROWS} are one block: split it")
    return one_batch(data)


def _text(value: str | float | datetime) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        at = value.astimezone(UTC) if value.tzinfo else value
        return at.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    return str(value)
