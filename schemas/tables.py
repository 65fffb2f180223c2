"""What is stored: every table, declared once; what is asked of them is in schemas/views.py.

A table holds one topic. Its columns are the job (from the messages' header) and the topic's columns; points in
time, ``*_ns`` on the bus, are ``*_at`` here and read as dates. The migrations of sinks/clickhouse make a store
agree with this file, and a test holds the two together: a column added to a topic needs a migration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from schemas.catalogue import COMM_OPS, FINDINGS, INCIDENTS, ITERATIONS, OPERATORS, TRAFFIC_METRICS
from schemas.topic import Column, Topic

DEDUPLICATION_WINDOW = 1000
"""How many inserts a table remembers by their token: a retry of one of them changes nothing."""

TIME = "DateTime64(9, 'UTC')"
"""Type of points in time."""

_SINCE_EPOCH = "ns since the epoch"
_SCALARS = {
    pa.bool_(): "Bool",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint32(): "UInt32",
    pa.float64(): "Float64",
    pa.string(): "String",
}


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a table.

    ``source`` is the topic's column that fills it. Without one it is the job, or ``materialized``: worked out by
    the store as a row comes in, and left out of ``SELECT *``.
    """

    name: str
    type: str
    doc: str
    source: str | None = None
    materialized: str | None = None


@dataclass(frozen=True)
class Table:
    """A stored topic.

    Rows with equal ``order_by`` are one row: read with FINAL, the one with the highest ``version`` counts, the
    last one inserted where versions are equal or there is none. So a replay overwrites what it repeats.
    ``partition_day`` names the time whose day (UTC) is the partition. It belongs to ``order_by``: a row whose
    partition changed could not be overwritten. Rows go ``keep_days`` after they came in, however old the
    recording that they tell of.
    """

    name: str
    topic: Topic
    order_by: tuple[str, ...]
    keep_days: int
    version: str | None = None
    partition_day: str | None = None

    @cached_property
    def columns(self) -> tuple[StoredColumn, ...]:
        """All columns, in order."""
        job = StoredColumn("job", "LowCardinality(String)", "The run that the row tells of.")
        stored_at = StoredColumn("stored_at", "DateTime('UTC')", "When the row came in.", materialized="now('UTC')")
        return (job, *(_stored(column) for column in self.topic.columns), stored_at)

    @property
    def engine(self) -> str:
        """The engine, with its version column."""
        return f"ReplacingMergeTree({self.version})" if self.version else "ReplacingMergeTree"

    @property
    def partition_by(self) -> str | None:
        """The partition as an expression; None: the table is one partition."""
        return f"toYYYYMMDD({self.partition_day})" if self.partition_day else None

    @property
    def ttl(self) -> str:
        """When a row may go, as an expression."""
        return f"stored_at + toIntervalDay({self.keep_days})"

    @property
    def settings(self) -> dict[str, int]:
        """Settings that differ from ClickHouse's own."""
        types = {column.name: column.type for column in self.columns}
        own = {"non_replicated_deduplication_window": DEDUPLICATION_WINDOW}
        if any("Nullable(" in types[name] for name in self.order_by):
            own["allow_nullable_key"] = 1
        if self.partition_day:
            own["ttl_only_drop_parts"] = 1
        return own


def _stored(column: Column) -> StoredColumn:
    if column.unit == _SINCE_EPOCH:
        name = column.name.removesuffix("_ns") + "_at"
        return StoredColumn(name, f"Nullable({TIME})" if column.nullable else TIME, column.doc, column.name)
    type_ = _type(column.type, column.nullable, few_values=bool(column.choices))
    return StoredColumn(column.name, type_, column.doc, column.name)


def _type(arrow: pa.DataType, nullable: bool, *, few_values: bool = False, in_struct: bool = False) -> str:
    """The stored form of an Arrow type.

    A list or struct has no null of its own: it becomes [], or a struct of nulls. No message brings a null within a
    list, unless the list is a struct's.
    """
    if pa.types.is_list(arrow):
        items_nullable = in_struct and arrow.value_field.nullable
        return f"Array({_type(arrow.value_type, items_nullable, in_struct=in_struct)})"
    if pa.types.is_struct(arrow):
        fields = (f"{field.name} {_type(field.type, field.nullable, in_struct=True)}" for field in arrow)
        return f"Tuple({', '.join(fields)})"
    if pa.types.is_dictionary(arrow):
        arrow, few_values = arrow.value_type, True
    plain = f"Nullable({_SCALARS[arrow]})" if nullable else _SCALARS[arrow]
    return f"LowCardinality({plain})" if few_values else plain


_ITERATIONS = Table("iterations", ITERATIONS, order_by=("job", "iteration", "pivot"), keep_days=90)
_FINDINGS = Table("findings", FINDINGS, order_by=("job", "id"), version="found_at", keep_days=365)
_INCIDENTS = Table("incidents", INCIDENTS, order_by=("job", "id"), version="revision", keep_days=730)
# The same operator comes again with every answer that holds it, each time in another batch, so a token can not
# tell it: it is replaced by what it is. Nothing but the call time is sure to be known, hence the long key.
_COMM_OPS = Table(
    "comm_ops",
    COMM_OPS,
    order_by=("job", "rank", "call_at", "communicator", "op", "seq", "call_order", "peer"),
    partition_day="call_at",
    keep_days=14,
)
# An operator that is overdue is told again and again until it is over.
_OPERATORS = Table(
    "operators", OPERATORS, order_by=("job", "rank", "communicator", "seq", "call_id", "method", "nic"), keep_days=14
)
_TRAFFIC_METRICS = Table(
    "traffic_metrics",
    TRAFFIC_METRICS,
    order_by=("job", "rank", "call_at", "communicator", "seq", "nic"),
    partition_day="call_at",
    keep_days=14,
)

TABLES: dict[str, Table] = {
    table.name: table for table in (_ITERATIONS, _FINDINGS, _INCIDENTS, _COMM_OPS, _OPERATORS, _TRAFFIC_METRICS)
}
