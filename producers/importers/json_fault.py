"""Which line of a block of JSON lines is at fault, and why: the slow way, taken once the fast one has failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from producers.importers.columns import ALIASES, PHASES, not_utf8, row_fault, shown
from producers.importers.files import Block


def find_fault(block: Block) -> str | None:
    """What is wrong with the first bad line, with its file, line and field; None where all lines are good."""
    for number, line in enumerate(block.data.split(b"\n"), start=block.line):
        if line.strip() and (fault := _fault(line)):
            return f"{block.path}:{number}: {fault}; correct the line, or leave it out"
    return None


class _Twice(ValueError):
    """A field of this name stands twice in an object."""


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return fields


def object_of(line: bytes) -> dict[str, Any]:
    """The object that a line is; raises ``ValueError`` that says what is wrong where it is none."""
    try:
        row = json.loads(line.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(error)) from error
    except json.JSONDecodeError as error:
        said = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
        raise ValueError(f"not a JSON object: {said}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except _Twice as error:
        raise ValueError(f"field {error} stands twice") from error
    except ValueError as error:  # a number of more digits than Python reads
        raise ValueError(f"not a JSON object: {error}") from error
    if isinstance(row, dict):
        _check_text(row)
        return row
    raise ValueError(f"not a JSON object but {shown(row)}")


def _check_text(row: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for halves of characters, for which JSON has words: they cannot be written as UTF-8."""
    for name, value in row.items():
        if not _is_text({name: value}):
            field = name.encode(errors="backslashreplace").decode()
            raise ValueError(f"field {field} is {shown(value)}, not text: it holds half of a surrogate pair")


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _fault(line: bytes) -> str | None:
    try:
        row = object_of(line)
    except ValueError as error:
        return str(error)
    for alias, name in ALIASES.items():
        if row.get(name) is None:
            row[name] = row.pop(alias, None)
    row["phase"] = PHASES.get(phase, phase) if isinstance(phase := row.get("phase"), str) else phase
    return row_fault(row)
