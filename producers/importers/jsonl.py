"""Offbeat JSON lines: a comm_ops row a line, plain or gzipped.

Blocks of lines go through Arrow's JSON reader on several threads and become columns at once. Only the lines of a
block that could not be read, or holds impossible values, are looked at one by one (json_fault.py).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from producers.importers.files import Block, Limits, line_blocks
from producers.importers.json_fault import ALIASES, COLUMNS, PHASES, find_fault
from schemas import comm_ops
from schemas.errors import ImpossibleValue, InputError
from schemas.topic import Column

SCHEMA = pa.schema([(column.name, column.type) for column in COLUMNS])
"""What the reader returns: the columns of telemetry.comm_ops and ``host``, all nullable."""

_THREADS = min(4, os.cpu_count() or 1)


def _plain(column: Column) -> pa.DataType:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


_BY_NAME = {column.name: column for column in COLUMNS}
_PARSE = pj.ParseOptions(
    explicit_schema=pa.schema(
        [(column.name, _plain(column)) for column in COLUMNS]
        + [(alias, _plain(_BY_NAME[name])) for alias, name in ALIASES.items()]
    ),
    unexpected_field_behavior="ignore",
)


class JsonLines:
    """The format that Offbeat itself writes."""

    name = "jsonl"
    what = "*.jsonl or *.jsonl.gz, an operator a line"

    def matches(self, path: Path) -> bool:
        """Whether a file's name is one of this format."""
        return path.name.endswith((".jsonl", ".jsonl.gz"))

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order.

        Raises ``InputError`` that names file, line and field.
        """
        tables = list(_in_order(_columns_of, line_blocks(files, limits)))
        return pa.concat_tables([SCHEMA.empty_table(), *tables]).unify_dictionaries().combine_chunks()


def _in_order(work: Callable[[Block], pa.Table], blocks: Iterable[Block]) -> Iterator[pa.Table]:
    """Results of ``work`` in the order of the blocks, a few of which are under way at a time."""
    under_way: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for block in blocks:
                under_way.append(pool.submit(work, block))
                if len(under_way) > 2 * _THREADS:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def _columns_of(block: Block) -> pa.Table:
    text = block.data.strip()
    if not text:
        return SCHEMA.empty_table()
    try:
        if not text.startswith(b"{"):  # Arrow 26 crashes on a block that starts with null
            raise pa.ArrowInvalid("the block does not start with an object")
        reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        batch = _conform(pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=_PARSE))
        _check(batch)
        return pa.Table.from_batches([batch])
    except (pa.ArrowException, ImpossibleValue) as error:
        reason = find_fault(block) or f"{block.path}: near line {block.line}: {error}"
        raise InputError(reason) from error


def _conform(raw: pa.Table) -> pa.RecordBatch:
    """The columns under their own names and in their own types."""
    columns = {name: raw.column(name).combine_chunks() for name in raw.column_names}
    for alias, name in ALIASES.items():
        if columns[alias].null_count < len(raw):
            columns[name] = pc.coalesce(columns[name], columns[alias])
    phase = columns["phase"].dictionary_encode()
    names = [PHASES.get(name, name) for name in phase.dictionary.to_pylist()]
    columns["phase"] = pa.array(names, pa.string()).take(phase.indices)
    return pa.RecordBatch.from_arrays([_encoded(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _encoded(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.null_count == len(values):
        return pa.nulls(len(values), target)
    return values.dictionary_encode() if pa.types.is_dictionary(target) else values


def _check(batch: pa.RecordBatch) -> None:
    for column in COLUMNS:
        values = batch.column(column.name)
        if values.null_count and not column.nullable:
            raise ImpossibleValue(f"field {column.name} is missing")
        if pa.types.is_dictionary(values.type):
            values.dictionary.validate(full=True)
        column.check(values, comm_ops.TOPIC.name)
    if comm_ops.TOPIC.check is not None:
        comm_ops.TOPIC.check(batch)
