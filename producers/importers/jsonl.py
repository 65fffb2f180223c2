"""Offbeat JSON lines: a comm_ops row a line, plain or gzipped.

Blocks of lines go through Arrow's JSON reader on several threads and become columns at once. Only the lines of a
block that could not be read, or holds impossible values, are looked at one by one (json_fault.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from producers.importers.about import About, described
from producers.importers.columns import ALIASES, COLUMNS, SCHEMA, check, conform, plain
from producers.importers.files import Block, Limits, first_lines, in_order, line_blocks, unrotated
from producers.importers.json_fault import find_fault
from producers.importers.unnamed import require_whole_streams
from schemas.errors import ImpossibleValue, InputError

OTHER_TOPICS = ("op_calls", "queue_pairs", "nic_epochs")
"""What ``traffic`` reads from files of names as ``rank3.op_calls.jsonl``."""

_BY_NAME = {column.name: column for column in COLUMNS}
_PARSE = pj.ParseOptions(
    explicit_schema=pa.schema(
        [(column.name, plain(column)) for column in COLUMNS]
        + [(alias, plain(_BY_NAME[name])) for alias, name in ALIASES.items()]
    ),
    unexpected_field_behavior="ignore",
)


class JsonLines:
    """The format that Offbeat itself writes."""

    name = "jsonl"
    what = "*.jsonl or *.jsonl.gz, an operator a line"

    def matches(self, path: Path) -> bool:
        """Whether a file's name is one of this format, and not one of another topic's rows."""
        name = unrotated(path)
        kind = name.removesuffix(".gz").removesuffix(".jsonl").rpartition(".")[2]
        return name.endswith((".jsonl", ".jsonl.gz")) and kind not in OTHER_TOPICS

    def begins(self, path: Path) -> bool:
        """Whether the first line is an object that names an operator."""
        try:
            row = json.loads(next(iter(first_lines(path)), ""))
        except (ValueError, RecursionError):
            return False
        return isinstance(row, dict) and "op" in row

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order.

        Raises ``InputError`` that names file, line and field.
        """
        tables, partial, cut = [SCHEMA.empty_table()], 0, list[str]()
        for table, ends_within in in_order(_columns_of, line_blocks(files, limits, cut)):
            tables.append(table)
            partial += ends_within
        what = About(lost_lines=partial, gone=cut)
        rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        require_whole_streams(rows, files)
        return described(rows, what)


def _columns_of(block: Block) -> tuple[pa.Table, bool]:
    """The block's rows, and whether it is a last line that was not written to its end."""
    text = block.data.strip()
    if not text:
        return SCHEMA.empty_table(), False
    if block.torn or (block.before and not block.data.endswith(b"\n") and _is_torn(text)):
        return SCHEMA.empty_table(), True
    try:
        if not text.startswith(b"{"):  # Arrow 26 crashes on a block that starts with null
            raise pa.ArrowInvalid("the block does not start with an object")
        reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        raw = pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=_PARSE)
        batch = conform({name: raw.column(name).combine_chunks() for name in raw.column_names}, raw.num_rows)
        check(batch)
        return pa.Table.from_batches([batch]), False
    except (pa.ArrowException, UnicodeDecodeError, ImpossibleValue) as error:
        reason = find_fault(block) or f"{block.path}: near line {block.line}: {error}"
        raise InputError(reason) from error


def _is_torn(text: bytes) -> bool:
    """Whether a line is no JSON to its end."""
    try:
        json.loads(text)
    except ValueError:
        return True
    except RecursionError:  # what is nested so deep is no line of ours, and refused as that
        return False
    return False
