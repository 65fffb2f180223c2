"""The columns that every format fills, other spellings of them, and whether values can be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.operators import UNKNOWN
from schemas import comm_ops
from schemas.errors import ImpossibleValue
from schemas.topic import ID, Column

ALIASES: Mapping[str, str] = {"comm": "communicator"}
"""Other spellings of columns."""

PHASES: Mapping[str, str] = {"F": "forward", "B": "backward", "DP": "gradient", "OTHER": "other"}
"""Other spellings of phases."""

COLUMNS = (*comm_ops.TOPIC.columns, Column("host", ID, "Host that the rank runs on.", nullable=True))
"""What a row may hold: the columns of telemetry.comm_ops, and the rank's host."""

SCHEMA = pa.schema([(column.name, column.type) for column in COLUMNS])
"""What a reader returns: these columns, all nullable."""

_NAMES = ("communicator", "stream")
"""What tells which ranks meet; an empty text names nothing."""
_TIMES = ("call_ns", "start_ns", "end_ns")
"""In the order in which they must lie."""
_DAY_NS = 86_400 * 10**9
_LONGEST_NS = 30 * _DAY_NS
"""No operator lasts longer: times that lie so far apart are in different units."""
_SHOWN = 60
"""Characters of a wrong value that a message shows."""


def plain(column: Column) -> pa.DataType:
    """A column's type without its dictionary."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def conform(columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
    """The columns in their own types and under their own names; absent ones are null.

    Raises ``pa.ArrowException`` where a value is not of its column's type.
    """
    known = dict(columns)
    for alias, name in ALIASES.items():
        if alias in known and known[alias].null_count < rows:
            known[name] = known[alias] if name not in known else known[name].fill_null(known[alias])
    if "phase" in known:
        phase = known["phase"].dictionary_encode()
        names = [PHASES.get(name, name) for name in phase.dictionary.to_pylist()]
        known["phase"] = pa.array(names, pa.string()).take(phase.indices)
    arrays = [_encoded(known[f.name], f.type) if f.name in known else pa.nulls(rows, f.type) for f in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def check(batch: pa.RecordBatch) -> None:
    """Raise ``ImpossibleValue`` where rows hold what cannot be.

    A communicator may be left to inference, from the rank's stream.
    """
    for column in COLUMNS:
        values = batch.column(column.name)
        if values.null_count and not column.nullable and _missing(batch, column.name):
            raise ImpossibleValue(f"field {column.name} is missing")
        if pa.types.is_dictionary(values.type):
            values.dictionary.validate(full=True)
            if column.name in _NAMES and pc.any(pc.equal(values.dictionary, "")).as_py():
                raise ImpossibleValue(f"field {column.name} is empty")
        column.check(values, comm_ops.TOPIC.name)
    if comm_ops.TOPIC.check is not None:
        comm_ops.TOPIC.check(batch)
    for earlier, later in combinations(_TIMES, 2):
        if pc.any(pc.greater(pc.subtract(batch.column(later), batch.column(earlier)), _LONGEST_NS)).as_py():
            raise ImpossibleValue(f"field {later} lies more than {_LONGEST_NS // _DAY_NS} days after {earlier}")


def _missing(batch: pa.RecordBatch, name: str) -> bool:
    """Whether a value is missing for which no other stands."""
    missing = batch.column(name).is_null()
    if name == "communicator":
        missing = pc.and_(missing, batch.column("stream").is_null())
    return bool(pc.any(missing).as_py())


def row_fault(row: Mapping[str, Any]) -> str | None:
    """What is wrong with one row, and in which field; None where nothing is."""
    for column in COLUMNS:
        if column.name == "communicator" and row.get(column.name) is None:
            if row.get("stream") is None:
                return "field communicator is missing, and so is stream, from which it could be inferred"
            continue
        if fault := _column_fault(column, row.get(column.name)):
            return fault
    return _time_fault(row)


def _encoded(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.null_count == len(values):
        return pa.nulls(len(values), target)
    if pa.types.is_dictionary(target) and not pa.types.is_dictionary(values.type):
        return values.cast(target.value_type).dictionary_encode().cast(target)
    return values.cast(target)


def _column_fault(column: Column, value: Any) -> str | None:
    if value is None:
        return None if column.nullable else f"field {column.name} is missing"
    if pa.types.is_dictionary(column.type):
        if not isinstance(value, str):
            return f"field {column.name} is {shown(value)}, not a string"
        if column.name in _NAMES and not value:
            return f"field {column.name} is empty: give it a name"
        if column.choices and value not in column.choices:
            return f"field {column.name} is {shown(value)}; known are {', '.join(column.choices)}"
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        return f"field {column.name} is {shown(value)}, not a whole number"
    if value.bit_length() >= column.type.bit_width:
        return f"field {column.name} is {shown(value)}, more than {column.type} holds"
    if column.minimum is not None and value < column.minimum:
        unknown = ", or leave the field out where it is not known" if value == UNKNOWN and column.nullable else ""
        return f"field {column.name} is {value}; the least possible value is {column.minimum}{unknown}"
    if column.maximum is not None and value > column.maximum:
        return f"field {column.name} is {value}; the greatest possible value is {column.maximum}"
    return None


def _time_fault(row: Mapping[str, Any]) -> str | None:
    known = [name for name in _TIMES if row.get(name) is not None]
    for earlier, later in combinations(known, 2):
        if row[later] < row[earlier]:
            return f"field {later} lies before {earlier}"
        if row[later] - row[earlier] > _LONGEST_NS:
            days = (row[later] - row[earlier]) // _DAY_NS
            return f"field {later} lies {days} days after {earlier}: give both in nanoseconds since the epoch"
    return None


def not_utf8(error: UnicodeDecodeError) -> str:
    """Where a line stops being text, as a message says it."""
    return f"not UTF-8: byte {error.start + 1} of the line is 0x{error.object[error.start]:02x}; logs are UTF-8 text"


def shown(value: object) -> str:
    """A wrong value as a message shows it."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
