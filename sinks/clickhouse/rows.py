"""A topic's batch as rows of its table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from schemas.tables import TIME, Table
from sinks.clickhouse.store import MAX_INSERT_ROWS
from sinks.clickhouse.types import arrow_type, parse

_DAY_NS = 86_400 * 10**9


def stored_rows(table: Table, batch: pa.RecordBatch, job: str) -> pa.RecordBatch:
    """A decoded batch in the table's columns, under its job."""
    columns = [column for column in table.columns if column.materialized is None]
    arrays = [
        _column(column.type, batch.column(column.source)) if column.source else _constant(job, batch.num_rows)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def by_partition(table: Table, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """The rows apart by partition and in pieces that one insert takes, each with a name for its token."""
    if table.partition_day is None:
        return _pieces("all", rows)
    days = np.floor_divide(rows.column(table.partition_day).view(pa.int64()).to_numpy(), _DAY_NS)
    present = np.unique(days)
    if len(present) == 1:
        return _pieces(str(present[0]), rows)
    return [piece for day in present for piece in _pieces(str(day), rows.filter(pa.array(days == day)))]


def _pieces(name: str, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    starts = range(0, rows.num_rows, MAX_INSERT_ROWS)
    return [(f"{name}/{start}", rows.slice(start, MAX_INSERT_ROWS)) for start in starts]


def _column(type_name: str, values: pa.Array) -> pa.Array:
    return values.view(arrow_type(parse(type_name))) if TIME in type_name else values


def _constant(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
