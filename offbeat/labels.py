"""Labels of recorded logs: which operators a person found abnormal."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.irregularity.drift import Levels
from diagnosis.operators import Operators
from offbeat import reading
from offbeat.reading import Reading
from offbeat.terminal import counted
from offbeat.training import LABEL_COLUMNS, Labelled, Log, labelled, named
from producers.importers.columns import not_utf8, shown
from producers.importers.json_fault import object_of
from schemas.errors import InputError

MOST_BYTES = 256 << 20

SCHEMA = pa.schema(
    [
        ("rank", pa.int64()),
        ("communicator", pa.string()),
        ("iteration", pa.int64()),
        ("position", pa.int64()),
        ("line", pa.int64()),
    ]
)
"""What names an operator, and the line of the file that does."""

_YES = frozenset({"true", "yes", "1"})
_NO = frozenset({"false", "no", "0"})
"""What the field ``abnormal`` may say, in capital letters or not."""

_WHOLE = re.compile(r"\s*([0-9]{1,15})(?:\.0*)?\s*")
"""A whole number, as tables with gaps write it as well."""

_ROWS_AT_ONCE = 1 << 16


class Taught(NamedTuple):
    """What a recording and its labels teach: the labelled irregular iterations and where its features stand.

    ``idle`` counts the labels in other iterations, which teach nothing.
    """

    parts: list[Labelled]
    levels: Levels | None
    idle: int


def labelled_recording(paths: Sequence[Path], labels: Path, given: Reading | None = None) -> Taught:
    """What a recording and the labels of its operators teach. Raises ``InputError`` for files that cannot be read."""
    recording = reading.read(paths, given or Reading())
    return taught(Log.of(recording.job, recording.table), labels)


def taught(log: Log, labels: Path) -> Taught:
    """What a log and the labels of its operators teach.

    Iterations without any label are left out, nobody looked at them.
    Raises ``InputError`` for a file that cannot be read, and where a label names no operator of the log.
    """
    table = read(labels)
    _check_named(log.operators, table, labels)
    parts = [part for part in labelled(log, table) if part.abnormal.any()]
    if not parts:
        raise InputError(
            f"{labels}: none of the labels is an operator of an irregular iteration: "
            "rank, communicator, iteration and position together name one"
        )
    idle = pc.invert(pc.is_in(table.column("iteration"), pa.array(list(log.irregular), pa.int64())))
    return Taught(parts, log.levels(), pc.sum(idle).as_py())


def _check_named(operators: Operators, table: pa.Table, labels: Path) -> None:
    """Raise ``InputError`` where labels name no operator: those that they were meant for would be taken for normal."""
    _, known = named(operators, table)
    strangers = table.filter(pa.array(~known))
    if not strangers.num_rows:
        return
    first = strangers.slice(0, 1).to_pylist()[0]
    line, name = first.pop("line"), first["communicator"]
    told = ", ".join(f"{column} {value}" for column, value in first.items()) + " is no operator of the recording"
    if name not in operators.communicators:
        told = f"communicator {name!r} is not in the recording, so this is no operator of it"
    others = f", nor is that of {counted(strangers.num_rows - 1, 'other label')}" if strangers.num_rows > 1 else ""
    raise InputError(f"{labels}:{line}: {told}{others}; correct or remove it")


def read(path: Path) -> pa.Table:
    """The labels of a file, JSON lines or CSV (``.csv``): a row an abnormal operator (``SCHEMA``).

    Rows whose field ``abnormal`` says no are left out. Raises ``InputError`` that names file, line and field.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: more than {MOST_BYTES >> 20} MiB; label fewer iterations")
        labels, batches = _labels(path), list[pa.RecordBatch]()
        while rows := list(islice(labels, _ROWS_AT_ONCE)):
            batches.append(pa.RecordBatch.from_pylist(rows, SCHEMA))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    return pa.Table.from_batches(batches, SCHEMA)


def _labels(path: Path) -> Iterator[dict[str, Any]]:
    for line, row in _rows_of_csv(path) if path.suffix == ".csv" else _rows_of_json(path):
        try:
            label = {name: _name(row) if name == "communicator" else _whole(row, name) for name in LABEL_COLUMNS}
            abnormal = _is_abnormal(row)
        except ValueError as error:
            raise InputError(f"{path}:{line}: {error}") from error
        if abnormal:
            yield {**label, "line": line}


def _rows_of_json(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            if line.strip():
                yield number, object_of(line)
        except ValueError as error:
            raise _unreadable(path, number, error) from error


def _rows_of_csv(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader((line.decode() for line in _lines(path)), strict=True)
    rows = filter(None, reader)
    try:
        head = next(rows, [])
        _check_head(head, path)
        for row in rows:
            if len(row) != len(head):
                raise InputError(f"{path}:{reader.line_num}: {len(row)} fields; the first line names {len(head)}")
            yield reader.line_num, dict(zip(head, row, strict=True))
    except UnicodeDecodeError as error:
        raise _unreadable(path, reader.line_num + 1, not_utf8(error)) from error
    except csv.Error as error:
        raise _unreadable(path, reader.line_num, error) from error


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield file.readline().removeprefix(codecs.BOM_UTF8)
        yield from file


def _unreadable(path: Path, line: int, why: object) -> InputError:
    return InputError(f"{path}: neither JSON lines nor CSV: line {line}: {why}")


def _check_head(names: Sequence[str], path: Path) -> None:
    """Raise ``InputError`` where the first line of a CSV file does not name what labels have, each once."""
    if not names:
        raise _unreadable(path, 1, "it names no columns")
    for name in LABEL_COLUMNS:
        if name not in names:
            raise InputError(f"{path}: the column {name} is missing; labels have {', '.join(LABEL_COLUMNS)}")
    if twice := [name for name in (*LABEL_COLUMNS, "abnormal") if names.count(name) > 1]:
        raise InputError(f"{path}: the column {twice[0]} stands twice; leave one of them")


def _given(row: Mapping[str, Any], name: str) -> Any:
    """What a row says of a field; raises ``ValueError`` where it says nothing."""
    value = row.get(name)
    if value is None or value == "":
        raise ValueError(f"field {name} is missing; labels have {', '.join(LABEL_COLUMNS)}")
    return value


def _whole(row: Mapping[str, Any], name: str) -> int:
    value = _given(row, name)
    found = _WHOLE.fullmatch(str(value))
    if found is None:
        raise ValueError(f"field {name} is {shown(value)}; give a whole number from 0 on, of at most 15 digits")
    return int(found[1])


def _name(row: Mapping[str, Any]) -> str:
    """The communicator of a row; one that is a hash may be written as a number."""
    value = _given(row, "communicator")
    if type(value) not in {str, int}:
        raise ValueError(f"field communicator is {shown(value)}; give its name")
    return str(value)


def _is_abnormal(row: Mapping[str, Any]) -> bool:
    """What a row says of its operator, which is abnormal where the row has no field ``abnormal``."""
    said = str(row.get("abnormal", True)).strip().lower()
    if said not in _YES | _NO:
        raise ValueError(f"field abnormal is {shown(row['abnormal'])}; give true or false, 1 or 0, yes or no")
    return said in _YES
