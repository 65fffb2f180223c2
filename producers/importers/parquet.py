"""Parquet with the columns of telemetry.comm_ops: any writer's, and the one that ``offbeat convert`` writes.

Columns are matched by name, as in JSON lines; others are left alone. A folder may be partitioned
(``rank=3/part-0.parquet``): what the folders' names say becomes columns. What Offbeat writes carries the job in the
metadata of its schema (about.py).
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from producers.importers.about import About, about, described, joined
from producers.importers.columns import (
    ALIASES,
    COLUMNS,
    PHASES,
    SCHEMA,
    check,
    conform,
    plain,
    row_fault,
    shown,
)
from producers.importers.files import Limits, partitions
from producers.importers.unnamed import require_whole_streams
from producers.whole_files import replacing
from schemas.errors import ImpossibleValue, InputError
from schemas.topic import TIME, Column

SUFFIX = ".parquet"

ROWS_A_GROUP = 1 << 17
"""Rows of a row group that Offbeat writes."""

MOST_ROWS = 16 << 20
"""Rows of a row group that is read."""

_MOST_NAMES = 30
"""Columns that a message lists."""

_MAGIC = b"PAR1"

_DAMAGED = (OSError, pa.ArrowException, UnicodeDecodeError)
"""What reading damaged files raises."""

_MISFIT = (pa.ArrowException, UnicodeDecodeError)
"""What values raise that are not of their column's type."""

_TEXT = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
)
"""Of writers that do not say that bytes are text as well; what is no UTF-8 is refused."""
_NUMBERS = (pa.types.is_integer, pa.types.is_floating)
_OWN = frozenset({"op", "call_ns"})
"""A file with these columns is a log of operators, even if it lacks others."""
_BY_NAME = {column.name: column for column in COLUMNS} | {
    alias: next(column for column in COLUMNS if column.name == name) for alias, name in ALIASES.items()
}


class Parquet:
    """Apache Parquet."""

    name = "parquet"
    what = "*.parquet with the columns of an operator log"

    def matches(self, path: Path) -> bool:
        """Whether a file is of this format, by its name and its columns; damaged ones are, to be refused by name."""
        return path.suffix == SUFFIX and _is_log(path)

    def begins(self, path: Path) -> bool:
        """Whether a file begins as all Parquet does, and matches but for its name."""
        return _begins(path) and _is_log(path)

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order; ``communicator`` may be null.

        Raises ``InputError`` that names file, row and field.
        """
        tables = [SCHEMA.empty_table()]
        said: list[About] = []
        left = limits.decoded_bytes
        for path in files:
            with _opened(path, limits) as file:
                try:
                    said.append(about(file.schema_arrow))
                except ValueError as error:
                    raise InputError(f"{path}: {_first_line(error)}") from error
                if (said[-1].job, said[-1].iterations_source) != (said[0].job, said[0].iterations_source):
                    raise InputError(
                        f"{path}: not converted together with {files[0]}: convert a run whole, and diagnose each alone"
                    )
                for batch in _groups(file, path, left):
                    tables.append(pa.Table.from_batches([batch]))
                    left -= batch.nbytes
        rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        require_whole_streams(rows, files)
        return described(rows, joined(said))


def write(table: pa.Table, path: Path, what: About) -> None:
    """Write rows with what is said of them; an existing file is replaced once the new one is whole.

    Raises ``OSError`` where it cannot be written.
    """
    with replacing(path) as file:  # Arrow's own file tells of a failure in words of its own
        pq.write_table(described(table, what), file, row_group_size=ROWS_A_GROUP, compression="zstd")


def _begins(path: Path) -> bool:
    """Whether a file begins as all Parquet does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _is_log(path: Path) -> bool:
    """Whether the columns are those of an operator log; of a damaged file they may be."""
    try:
        names = set(pq.read_schema(path).names)
    except _DAMAGED:
        return True
    return bool(_OWN & (names | set(partitions(path))))


def _opened(path: Path, limits: Limits) -> pq.ParquetFile:
    try:
        size = path.stat().st_size
        if size > limits.file_bytes:
            raise InputError(f"{path}: {size} bytes, at most {limits.file_bytes} are read; split it")
        return pq.ParquetFile(path)
    except _DAMAGED as error:
        raise InputError(f"{path}: {_unread(path, error)}") from error


def _unread(path: Path, error: Exception) -> str:
    """Why a file cannot be opened as Parquet. Arrow tells it by the parts of the format."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if not _begins(path):
        return "no Parquet, whatever its name says; name it by what it is, or leave it out"
    return "damaged, or not written to its end; copy or write it anew"


def _groups(file: pq.ParquetFile, path: Path, left: int) -> Iterator[pa.RecordBatch]:
    """The row groups, one after the other, of at most ``left`` bytes in all."""
    names = [name for name in file.schema_arrow.names if name in _BY_NAME]
    if len(set(names)) < len(names):
        name, times = Counter(names).most_common(1)[0]
        raise InputError(f"{path}: field {name}: {times} columns bear this name, expected one")
    fixed = {name: value for name, value in partitions(path).items() if name in _BY_NAME and name not in names}
    _require_columns(file, path, {*names, *fixed})
    row = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if group.num_rows > MOST_ROWS:
            raise InputError(
                f"{path}: row group {number} has {group.num_rows} rows, at most {MOST_ROWS} are read at once; "
                "write smaller ones"
            )
        left -= group.total_byte_size
        if left < 0:
            raise InputError(f"{path}: the recording is larger than the limit once decompressed; diagnose a part of it")
        try:
            raw = file.read_row_group(number, columns=names)
        except _DAMAGED as error:
            known = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it is damaged"
            raise InputError(f"{path}: row group {number}: {known}; copy or write the file anew") from error
        yield _conformed(raw, fixed, path, row)
        row += group.num_rows


def _require_columns(file: pq.ParquetFile, path: Path, known: set[str]) -> None:
    """Raise ``InputError`` where columns are missing that no row can do without; ``communicator`` can be inferred from
    ``stream``.
    """
    there = {_BY_NAME[name].name for name in known}
    needed = (column.name for column in COLUMNS if not column.nullable and column.name != "communicator")
    missing = ", ".join(name for name in needed if name not in there)
    if not missing and there.isdisjoint({"communicator", "stream"}):
        missing = "communicator, or else stream"
    if missing:
        held = ", ".join(file.schema_arrow.names[:_MOST_NAMES]) or "none"
        raise InputError(f"{path}: columns are missing: {missing}; it has {held}")


def _conformed(raw: pa.Table, fixed: Mapping[str, str], path: Path, first: int) -> pa.RecordBatch:
    columns = {}
    for name in raw.column_names:
        try:
            columns[name] = _plain(raw.column(name), _BY_NAME[name])
        except _MISFIT as error:
            raise InputError(_misfit(raw.column(name), name, path, first)) from error
    for name, text in fixed.items():
        columns[name] = _repeated(text, _BY_NAME[name], raw.num_rows, path)
    try:
        batch = conform(columns, raw.num_rows)
        check(batch)
    except (pa.ArrowException, ImpossibleValue) as error:
        raise InputError(_first_fault(columns, path, first) or f"{path}: {_first_line(error)}") from error
    return batch


def _plain(values: pa.ChunkedArray, column: Column) -> pa.Array:
    """A column in its type, without its dictionary; points in time may be Parquet's own, whole numbers floats."""
    whole = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    whole.validate(full=True)
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if pa.types.is_timestamp(whole.type) and column.type == TIME:
        return whole.cast(pa.timestamp("ns", whole.type.tz)).cast(pa.int64())
    if pa.types.is_floating(whole.type):
        whole = pc.if_else(pc.is_nan(whole), pa.scalar(None, whole.type), whole)
    target = plain(column)
    readable = _TEXT if pa.types.is_string(target) else _NUMBERS
    if not pa.types.is_null(whole.type) and not any(test(whole.type) for test in readable):
        raise pa.ArrowInvalid(f"its type is {whole.type}, not {target}")
    return whole.cast(target)


def _misfit(values: pa.ChunkedArray, name: str, path: Path, first: int) -> str:
    """What is wrong with a column that is not of its type, with the first row that is not where others are."""

    def fault(rows: int) -> str | None:
        try:
            _plain(values.slice(0, rows), _BY_NAME[name])
        except _MISFIT as error:
            return _first_line(error)
        return None

    rows = bisect_left(range(len(values) + 1), True, key=lambda rows: fault(rows) is not None)
    row = f"row {first + rows - 1}: " if rows else ""
    return f"{path}: {row}field {name}: {fault(rows)}"


def _repeated(text: str, column: Column, rows: int, path: Path) -> pa.Array:
    try:
        return pa.repeat(pa.scalar(text).cast(plain(column)), rows)
    except pa.ArrowException as error:
        raise InputError(f"{path}: field {column.name}: the folder says {shown(text)}, not {column.type}") from error


def _first_fault(columns: Mapping[str, pa.Array], path: Path, first: int) -> str | None:
    """What is wrong with the first bad row: the slow way, taken once the fast one has failed."""
    for batch in pa.table(dict(columns)).to_batches(max_chunksize=1 << 12):
        for number, row in enumerate(batch.to_pylist(), start=first):
            for alias, name in ALIASES.items():
                if row.get(name) is None:
                    row[name] = row.pop(alias, None)
            row["phase"] = PHASES.get(row.get("phase"), row.get("phase"))
            if fault := row_fault(row):
                return f"{path}: row {number}: {fault}"
        first += len(batch)
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
