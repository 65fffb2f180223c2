"""Which line of a block of JSON lines is at fault, and why: the slow way, taken once the fast one has failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa

from producers.importers.files import Block
from schemas import comm_ops
from schemas.topic import ID, Column

ALIASES: Mapping[str, str] = {"comm": "communicator"}
"""Other spellings of columns."""

PHASES: Mapping[str, str] = {"F": "forward", "B": "backward", "DP": "gradient", "OTHER": "other"}
"""Other spellings of phases."""

COLUMNS = (*comm_ops.TOPIC.columns, Column("host", ID, "Host that the rank runs on.", nullable=True))
"""What a line may hold: the columns of telemetry.comm_ops, and the rank's host."""

_TIMES = ("call_ns", "start_ns", "end_ns")
"""In the order in which they must lie."""
_SHOWN = 60
"""Characters of a wrong value that a message shows."""


def find_fault(block: Block) -> str | None:
    """What is wrong with the first bad line, with its file, line and field; None where all lines are good."""
    for number, line in enumerate(block.data.split(b"\n"), start=block.line):
        if line.strip() and (fault := _fault(line)):
            return f"{block.path}:{number}: {fault}"
    return None


class _Twice(ValueError):
    """A field of this name stands twice in an object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return fields


def _fault(line: bytes) -> str | None:
    try:
        row = json.loads(line.decode(), object_pairs_hook=_object)
    except UnicodeDecodeError:
        return "not UTF-8"
    except json.JSONDecodeError as error:
        return f"not a JSON object: {error.msg} at character {error.pos + 1}"
    except RecursionError:
        return "nested too deeply"
    except _Twice as error:
        return f"field {error} stands twice"
    if not isinstance(row, dict):
        return f"not a JSON object but {_shown(row)}"
    for alias, name in ALIASES.items():
        if row.get(name) is None:
            row[name] = row.pop(alias, None)
    row["phase"] = PHASES.get(phase, phase) if isinstance(phase := row.get("phase"), str) else phase
    return next((fault for column in COLUMNS if (fault := _column_fault(column, row.get(column.name)))), None) or (
        _time_fault(row)
    )


def _column_fault(column: Column, value: Any) -> str | None:
    if value is None:
        return None if column.nullable else f"field {column.name} is missing"
    if pa.types.is_dictionary(column.type):
        if not isinstance(value, str):
            return f"field {column.name} is {_shown(value)}, not a string"
        if column.choices and value not in column.choices:
            return f"field {column.name} is {_shown(value)}; known are {', '.join(column.choices)}"
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        return f"field {column.name} is {_shown(value)}, not a whole number"
    if value.bit_length() >= column.type.bit_width:
        return f"field {column.name} is {_shown(value)}, more than {column.type} holds"
    if column.minimum is not None and value < column.minimum:
        return f"field {column.name} is {value}; the least possible value is {column.minimum}"
    if column.maximum is not None and value > column.maximum:
        return f"field {column.name} is {value}; the greatest possible value is {column.maximum}"
    return None


def _time_fault(row: Mapping[str, Any]) -> str | None:
    known = [name for name in _TIMES if row.get(name) is not None]
    return next((f"field {b} lies before {a}" for a, b in pairwise(known) if row[b] < row[a]), None)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
