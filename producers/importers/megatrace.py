"""Megatrace API logs: the NCCL calls of a rank, a line each, with the time of the call and nothing of its end.

``[save_count 3] [1755590104.253968145] [Rank 0] Fun AllReduce Data 1 stream 0x55.. opCount 8 groupHash -595..``;
there are logs without save_count, opCount and groupHash, logs without groupHash, and logs with all; newer ones put
the node's address and name in front and more fields into brackets. Blocks of lines go through one expression
at once and become columns; only where a line does not fit are lines looked at one by one (megatrace_fault.py).

What lines lack: which communicator a call is on (the group's hash where there is one, cut with the line at 128
characters; else the rank's stream, which inference takes from there), bytes, peers, ends. A ring of 10,000 lines is
written over silently: what jumps in opCount and save_count show to be gone is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from producers.importers.about import About, described
from producers.importers.columns import COLUMNS, SCHEMA, check, conform
from producers.importers.files import Block, Limits, first_lines, in_order, line_blocks, unrotated
from producers.importers.megatrace_calls import WentBack, number
from producers.importers.megatrace_fault import CUT_TAILS, LINE, MOST_CHARACTERS, find_faults, operator
from schemas.errors import ImpossibleValue, InputError
from schemas.topic import ID

RAW = pa.schema(
    [
        ("rank", pa.int32()),
        ("op", ID),
        ("count", pa.int64()),
        ("stream", ID),
        ("call_ns", pa.int64()),
        ("op_count", pa.int64()),
        ("hash", ID),
        ("save_count", pa.int64()),
        ("host", pa.string()),
        ("cut", pa.bool_()),
    ]
)
"""What lines say. ``cut``: the line may end within its last field."""


_NS_DIGITS = 9
"""Digits of a number of nanoseconds below a second."""

_TORN_SHARE = 0.001
"""Part of a block's lines that may be none: the logger copies them out of a ring that is written over meanwhile."""

_BOUNDED = ("rank", "count", "call_ns")


class Megatrace:
    """The logger of Megatrace and VenusTrace."""

    name = "megatrace"
    what = "*.log or *.log.gz, lines as [sec.nsec] [Rank r] Fun AllReduce Data 8 stream 0x.."

    def matches(self, path: Path) -> bool:
        """Whether a file is of this format, by its name and its first line."""
        return unrotated(path).endswith((".log", ".log.gz")) and self.begins(path)

    def begins(self, path: Path) -> bool:
        """Whether one of the first lines is one of this format."""
        return any(LINE.match(line) for line in first_lines(path))

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order; ``communicator`` is null where a line does not name it.

        Raises ``InputError`` that names file, line and field.
        """
        blocks, cut = list[_Lines](), list[str]()
        for block in in_order(_columns_of, line_blocks(files, limits, cut)):
            blocks.append(block)
        partial = sum(block.ends_within + len(block.torn) for block in blocks)
        if torn := [fault for block in blocks for fault in block.torn]:
            cut.append(f"{torn[0]}{f' (and {len(torn) - 1} more)' if len(torn) > 1 else ''}: passed over")
        tables = [RAW.empty_table(), *(block.table for block in blocks)]
        lines = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        lines = _in_ns(lines, frozenset().union(*(block.digits for block in blocks)))
        try:
            calls = number(lines)
        except WentBack as error:
            raise InputError(f"{_place_of(error.row, files, limits)}: {error}") from error
        batch = conform(calls.columns, calls.rows)
        check(batch)
        what = About(lost_lines=calls.lost_lines + partial, duplicates=calls.duplicates, gone=cut)
        return described(pa.Table.from_batches([batch], SCHEMA), what)


@dataclass(frozen=True, slots=True)
class _Lines:
    """A block's lines, how many digits their times have after the point, and whether the block ends within a line: the
    file was still written, or its writer died. ``torn``: what is wrong with lines that were passed over.
    """

    table: pa.Table
    digits: frozenset[int]
    ends_within: bool
    torn: tuple[str, ...] = ()


def _in_ns(table: pa.Table, digits: Collection[int]) -> pa.Table:
    """The lines of a recording whose times have so many digits after the point. These count nanoseconds; but where all
    are equally many and fewer than nine, which no count that is not padded keeps to, they are a decimal fraction.
    """
    if len(digits) != 1 or _NS_DIGITS in digits:
        return table
    [alike] = digits
    call_ns = table.column("call_ns")
    count = pc.subtract(call_ns, pc.multiply(pc.divide(call_ns, 10**_NS_DIGITS), 10**_NS_DIGITS))
    scaled = pc.add(call_ns, pc.multiply(count, 10 ** (_NS_DIGITS - alike) - 1))
    return table.set_column(table.schema.get_field_index("call_ns"), "call_ns", scaled)


def _columns_of(block: Block) -> _Lines:
    """The fields of a block's lines; raises ``InputError``."""
    if block.torn:
        return _Lines(RAW.empty_table(), frozenset(), True)
    try:
        text = block.data.decode()
        lines = text.split("\n")
        ends_within = bool(lines[-1]) and not _is_whole(lines[-1], block.before.decode().rstrip("\n"))
        given = pc.utf8_rtrim(pa.array(lines[:-1] if ends_within else lines, pa.string()), "\r")
        long = pc.greater_equal(pc.utf8_length(given), MOST_CHARACTERS)
        trimmed = pc.if_else(long, given, pc.utf8_trim_whitespace(given))
        held = pc.greater(pc.binary_length(trimmed), 0)
        table, digits = _parsed(trimmed.filter(held), long.filter(held))
        return _Lines(table, digits, ends_within)
    except (UnicodeDecodeError, pa.ArrowException, ImpossibleValue) as error:
        faults, written = find_faults(block), block.data.split(b"\n")
        if not 0 < len(faults) <= _TORN_SHARE * len(written):
            told = next(iter(faults.values()), f"{block.path}: near line {block.line}: {error}")
            raise InputError(told) from error
        whole = b"\n".join(line for at, line in enumerate(written) if at not in faults)
        return replace(_columns_of(replace(block, data=whole)), torn=tuple(faults.values()))


def _place_of(row: int, files: Sequence[Path], limits: Limits) -> str:
    """The file and line of a row of the files: the slow way, they are read once more."""
    for block in line_blocks(files, limits, []):
        rows = _columns_of(block).table.num_rows
        if row < rows:
            bad = find_faults(block)
            lines = [at for at, line in enumerate(block.data.split(b"\n")) if line.strip() and at not in bad]
            return f"{block.path}:{block.line + lines[row]}"
        row -= rows
    return str(files[0].parent)  # they have changed since


def _is_whole(last: str, before: str) -> bool:
    """Whether a file's last line, which nothing ends, ends where the line before it does: with a field as long."""
    own, other = LINE.match(last), LINE.match(before)
    if own is None or other is None:
        return own is not None
    field = next(name for name in ("hash", "op_count", "stream") if other[name])
    return bool(own[field]) and len(own[field]) >= len(other[field])


def _parsed(lines: pa.Array, long: pa.Array) -> tuple[pa.Table, frozenset[int]]:
    """The fields of lines, and how many digits their times have; ``long``: which ones may be cut."""
    fields = pc.extract_regex(lines, LINE.pattern)
    if fields.null_count:
        raise ImpossibleValue("a line that is none of the format")

    def text(name: str) -> pa.Array:
        values = fields.field(name)
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)

    functions = fields.field("function").dictionary_encode()
    names = functions.dictionary.to_pylist()
    ops = [operator(name) for name in names]
    if None in ops:
        raise ImpossibleValue(f"function {names[ops.index(None)]} is not known")
    tail = fields.field("tail")
    ends = pc.equal(tail, "")
    if pc.any(pc.invert(pc.or_(ends, pc.and_(long, pc.is_in(tail, CUT_TAILS))))).as_py():
        raise ImpossibleValue("a line that goes on after its end")
    seconds, nanoseconds = fields.field("seconds").cast(pa.int64()), fields.field("nanoseconds").cast(pa.int64())
    columns = {
        "rank": fields.field("rank").cast(pa.int32()),
        "op": pa.DictionaryArray.from_arrays(functions.indices, ops),
        "count": fields.field("count").cast(pa.int64()),
        "stream": fields.field("stream").dictionary_encode(),
        "call_ns": pc.add_checked(pc.multiply_checked(seconds, 10**_NS_DIGITS), nanoseconds),
        "op_count": text("op_count").cast(pa.int64()),
        "hash": text("hash").dictionary_encode(),
        "save_count": text("save_count").cast(pa.int64()),
        "host": text("host"),
        "cut": pc.and_(long, ends),
    }
    for column in COLUMNS:
        if column.name in _BOUNDED:
            column.check(columns[column.name], column.name)
    digits = pc.unique(pc.utf8_length(fields.field("nanoseconds")))
    return pa.table(columns, schema=RAW), frozenset(digits.to_pylist())
