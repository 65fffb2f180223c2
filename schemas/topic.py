"""What a topic is: its key, its columns with their units and bounds, and how long it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import ImpossibleValue

ID = pa.dictionary(pa.int32(), pa.string())
"""Type of identifiers: strings, dictionary-encoded so that a repeated id costs four bytes."""

TIME = pa.int64()
"""Type of points in time: nanoseconds since the epoch."""

LATEST_NS = 4_102_444_800_000_000_000
"""No time of a message lies beyond the year 2100: differences and sums of times then fit in 64 bits."""

MOST = 1 << 50
"""No ordinal and no number of bytes or elements is larger."""

LONGEST_RUN_NS = 1 << 55
"""A year and more: no run of iterations loses as much, and a sum of hundreds fits in 64 bits."""

MOST_RANKS = 1 << 20
"""No job has more ranks, and none of them a higher number: what is kept an entry a rank is then bounded."""

DURATION = pa.int64()
"""Type of durations: nanoseconds."""

MAX_STRING_BYTES = 1 << 20
"""No string of a message may be longer (explanations and evidence included)."""


class Key(StrEnum):
    """What a topic's records are keyed by; records of one key keep their order."""

    JOB = "job"
    JOB_HOST = "job/host"
    FABRIC = "fabric"
    PROCESSOR_JOB = "processor/job"
    TOPIC = "topic"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a topic.

    ``minimum``, ``maximum`` and ``choices`` are checked on every decoded message, in lists on each element; nulls
    pass where ``nullable``, but never in a list. A number that is not finite never passes, at any depth.
    """

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    choices: tuple[str, ...] = ()

    def check(self, values: pa.Array, topic: str) -> None:
        """Raise ``ImpossibleValue`` where a value is out of bounds."""
        where = f"{topic}: column {self.name}"
        while pa.types.is_list(values.type):
            values = values.flatten()
            if values.null_count:
                raise ImpossibleValue(f"{where} holds a list with a null in it")
        if not _finite(values):
            raise ImpossibleValue(f"{where} holds a number that is not finite")
        if self.minimum is not None or self.maximum is not None:
            self._check_range(pc.min_max(values).as_py(), where)
        if self.choices:
            present = values.dictionary if pa.types.is_dictionary(values.type) else values.unique()
            unknown = set(present.drop_null().to_pylist()) - set(self.choices)
            if unknown:
                raise ImpossibleValue(f"{where} holds {min(unknown)!r}; known are {', '.join(self.choices)}")

    def _check_range(self, found: dict[str, int | float | None], where: str) -> None:
        least, greatest = found["min"], found["max"]
        if self.minimum is not None and least is not None and least < self.minimum:
            raise ImpossibleValue(f"{where} holds {least}; the least possible value is {self.minimum}")
        if self.maximum is not None and greatest is not None and greatest > self.maximum:
            raise ImpossibleValue(f"{where} holds {greatest}; the greatest possible value is {self.maximum}")


@dataclass(frozen=True)
class Topic:
    """One topic of the catalogue.

    ``max_bytes`` bounds a record on the wire, ``max_decoded_bytes`` the same record decompressed,
    ``max_rows`` its rows and the elements of each list. ``check`` looks at what no single column shows.
    """

    name: str
    version: int
    key: Key
    doc: str
    columns: tuple[Column, ...]
    compacted: bool = False
    retention_hours: float = 24.0
    partitions: int = 8
    max_bytes: int = 4 << 20
    max_decoded_bytes: int = 64 << 20
    max_rows: int = 1_000_000
    check: Callable[[pa.RecordBatch], None] | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def schema_id(self) -> str:
        """The value of the header ``schema``: short name and version, ``comm_ops/1``."""
        return f"{self.name.rpartition('.')[2]}/{self.version}"

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a record's batch."""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])

    def batch(self, columns: dict[str, Any]) -> pa.RecordBatch:
        """Build a record batch of this topic from columns by name; absent nullable columns become null.

        Raises ``ValueError`` for an unknown column and for a required one that is missing or holds a null: that is
        a programming error.
        """
        unknown = set(columns) - {c.name for c in self.columns}
        if unknown:
            raise ValueError(f"{self.name} has no column {min(unknown)!r}")
        arrays: dict[str, pa.Array] = {}
        for column in self.columns:
            if column.name in columns:
                arrays[column.name] = _as_array(columns[column.name], column.type)
                if arrays[column.name].null_count and not column.nullable:
                    raise ValueError(f"{self.name}: column {column.name!r} may not be null")
            elif not column.nullable:
                raise ValueError(f"{self.name} needs column {column.name!r}")
        rows = len(next(iter(arrays.values())))
        return pa.RecordBatch.from_arrays(
            [arrays[c.name] if c.name in arrays else pa.nulls(rows, c.type) for c in self.columns],
            schema=self.schema,
        )

    def from_rows(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """Build a record batch from rows: for the small topics, never for telemetry."""
        names = [c.name for c in self.columns]
        return self.batch({n: [r.get(n) for r in rows] for n in names})


def _finite(values: pa.Array) -> bool:
    if pa.types.is_struct(values.type):
        return all(_finite(field) for field in values.flatten())
    if pa.types.is_list(values.type):
        return _finite(values.flatten())
    return not pa.types.is_floating(values.type) or pc.all(pc.is_finite(values)).as_py() is not False


def _as_array(values: Any, target: pa.DataType) -> pa.Array:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values, type=target.value_type if pa.types.is_dictionary(target) else target)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(target) and not pa.types.is_dictionary(values.type):
        values = values.cast(target.value_type).dictionary_encode()
    return values if values.type == target else values.cast(target)
