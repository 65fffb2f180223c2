"""Recorded NIC traffic: JSON lines of telemetry.op_calls, queue_pairs and nic_epochs, and epoch dumps as they are.

A file's name tells its topic: ``rank3.op_calls.jsonl``, ``host0.queue_pairs.jsonl.gz``, ``mlx5_0.nic_epochs.jsonl``,
``poll7.epochs``. A line is a row of the topic, with its fields; a ``host`` in it says whose it is, or a folder
``host=h1``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from producers.collectors import epoch_dump
from producers.collectors.nic_clock import NicClock
from producers.collectors.poll import rows_of
from producers.importers.about import About, about, described
from producers.importers.columns import ALIASES, plain
from producers.importers.files import Block, Limits, expand, first_lines, in_order, line_blocks, partitions
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.errors import ImpossibleValue, InputError
from schemas.topic import ID, Column, Topic

LIMITS = Limits(line_bytes=8 << 20)
"""A poll's line is as long as what agents tell of a poll in one record."""

TOGETHER_NS = 1_000_000_000
"""Hosts whose last polls ended this near to each other were polled for as long."""

HOST = Column("host", ID, "Host that the row comes from.", nullable=True)


class TopicLines:
    """JSON lines of one topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.name = f"{topic.name.partition('.')[2]}.jsonl"
        self.what = f"*.{self.name} or *.{self.name}.gz, a row of {topic.name} a line"
        self.columns = (*topic.columns, HOST)
        self.schema = pa.schema([(column.name, column.type) for column in self.columns])
        types = {column.name: plain(column) for column in self.columns}
        spelled = {alias: types[name] for alias, name in ALIASES.items() if name in types}
        self._parse = pj.ParseOptions(
            explicit_schema=pa.schema([*types.items(), *spelled.items()]), unexpected_field_behavior="ignore"
        )

    def matches(self, path: Path) -> bool:
        """Whether a file's name is one of this format."""
        return path.name.endswith((f".{self.name}", f".{self.name}.gz"))

    def begins(self, path: Path) -> bool:
        """Whether the first line is a row of the topic, as far as its fields tell."""
        try:
            row = json.loads(next(iter(first_lines(path)), ""))
        except (ValueError, RecursionError):
            return False
        needed = (column.name for column in self.topic.columns if not column.nullable)
        return isinstance(row, dict) and all(name in row or _alias_of(name) in row for name in needed)

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order, in the topic's columns and ``host``.

        What is gone of them is in the metadata (about.py). Raises ``InputError`` that names file, line and field.
        """
        cut: list[str] = []
        tables = list(in_order(self._rows_of_block, line_blocks(files, limits, cut)))
        rows = pa.concat_tables([self.schema.empty_table(), *tables]).unify_dictionaries().combine_chunks()
        return described(rows, About(gone=cut))

    def _rows_of_block(self, block: Block) -> pa.Table:
        if block.torn:
            return self.schema.empty_table()
        try:
            return self._rows(block.data, _host_of(block.path))
        except (pa.ArrowException, UnicodeDecodeError, ImpossibleValue) as error:
            raise InputError(self._fault(block) or f"{block.path}: near line {block.line}: {error}") from error

    def _fault(self, block: Block) -> str | None:
        """What is wrong with the first bad line: the slow way, taken once the fast one has failed."""
        for number, line in enumerate(block.data.split(b"\n"), start=block.line):
            try:
                self._rows(line)
            except (pa.ArrowException, UnicodeDecodeError, ImpossibleValue) as error:
                told = (
                    str(error)
                    .removeprefix(f"{self.topic.name}: ")
                    .removeprefix("row 0: ")
                    .removesuffix(" in row 0")[:300]
                )
                return f"{block.path}:{number}: {self._field_fault(line) or told}; correct the line, or leave it out"
        return None

    def _field_fault(self, line: bytes) -> str | None:
        """Which field of a line is not of its column's type, of which Arrow's reader tells the value alone."""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return None
        spelled = [(column, name) for column in self.columns for name in (column.name, _alias_of(column.name)) if name]
        for column, name in spelled if isinstance(row, dict) else ():
            value = row.get(name)
            if isinstance(value, float) and pa.types.is_integer(column.type):
                return f"field {name}: {value}, and a whole number is written without a point"
            try:
                pa.array([value], plain(column))
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                return f"field {name}: {str(error)[:300]}"
        return None

    def _rows(self, data: bytes, host: str | None = None) -> pa.Table:
        text = data.strip()
        if not text:
            return self.schema.empty_table()
        if not text.startswith(b"{"):  # Arrow 26 crashes on a block that starts with null
            raise pa.ArrowInvalid("the line is not a JSON object")
        reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        raw = pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=self._parse).combine_chunks()
        columns = {name: raw.column(name).combine_chunks() for name in raw.column_names}
        columns[HOST.name] = columns[HOST.name].fill_null(host) if host else columns[HOST.name]
        arrays = [self._column(columns, column, raw.num_rows) for column in self.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self.topic.check is not None:
            self.topic.check(batch)
        return pa.Table.from_batches([batch])

    def _column(self, columns: dict[str, pa.Array], column: Column, rows: int) -> pa.Array:
        values, alias = columns.get(column.name), columns.get(_alias_of(column.name) or "")
        if alias is not None:
            values = alias if values is None else values.fill_null(alias)
        if values is None:
            values = pa.nulls(rows, plain(column))
        if values.null_count and not column.nullable:
            raise ImpossibleValue(f"field {column.name} is missing")
        values.validate(full=True)
        if pa.types.is_dictionary(column.type):
            values = values.dictionary_encode().cast(column.type)
        column.check(values, self.topic.name)
        return values


class EpochDumps:
    """Epoch dumps of NIC agents; the clocks are aligned file by file, NIC by NIC."""

    name = "epochs"
    what = f"*{epoch_dump.SUFFIX}, polls as a NIC agent dumps them"
    topic = NIC_EPOCHS
    columns = (*NIC_EPOCHS.columns, HOST)
    schema = pa.schema([(column.name, column.type) for column in columns])

    def matches(self, path: Path) -> bool:
        """Whether a file's name is one of this format."""
        return path.name.endswith(epoch_dump.SUFFIX)

    def begins(self, path: Path) -> bool:
        """Whether a file begins with the header of a dump."""
        try:
            with path.open("rb") as file:
                return file.read(len(epoch_dump.MAGIC)) == epoch_dump.MAGIC
        except OSError:
            return False

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All polls of the files, in the files' order. Raises ``InputError`` that names file, offset and field."""
        left = limits.decoded_bytes
        batches = []
        for path in files:
            if path.is_file() and path.stat().st_size > limits.file_bytes:
                raise InputError(f"{path}: {path.stat().st_size} bytes, at most {limits.file_bytes} are read; split it")
            clocks: dict[str, NicClock] = {}
            for dump in epoch_dump.read(path):
                clock = clocks.setdefault(dump.poll.nic, NicClock())
                clock.take(dump.readings)
                rows = rows_of(dump.poll.aligned(clock))
                if (left := left - rows.nbytes) < 0:
                    raise InputError(f"{path}: the recording holds more than {limits.decoded_bytes} bytes; read a part")
                host = pa.array([_host_of(path)] * rows.num_rows, pa.string())
                batches.append(rows.append_column(HOST.name, host.dictionary_encode().cast(ID)))
        table = pa.Table.from_batches(batches).cast(self.schema) if batches else self.schema.empty_table()
        return table.unify_dictionaries().combine_chunks()


TRAFFIC = {
    format_.name: format_
    for format_ in (TopicLines(OP_CALLS), TopicLines(QUEUE_PAIRS), TopicLines(NIC_EPOCHS), EpochDumps())
}
"""The formats that traffic is recorded in."""


@dataclass(frozen=True)
class Traffic:
    """What was recorded of NIC traffic: rows of the three topics, each with a column ``host``.

    ``files``: where; ``gone``: what is missing of them, in words.
    """

    op_calls: pa.Table
    queue_pairs: pa.Table
    nic_epochs: pa.Table
    files: tuple[Path, ...] = ()
    gone: tuple[str, ...] = ()

    def place_of(self, topic: Topic, **values: Any) -> str:
        """The first line whose row holds these values, as ``file:line: ``; empty where no line does, as of a dump."""
        format_ = TRAFFIC[f"{topic.name.partition('.')[2]}.jsonl"]
        for block in line_blocks([path for path in self.files if format_.matches(path)], LIMITS, []):
            for number, line in enumerate(block.data.split(b"\n"), start=block.line):
                row = json.loads(line) if line.strip() and not block.torn else {}
                row[HOST.name] = row.get(HOST.name) or _host_of(block.path)
                if all(row.get(name) == value for name, value in values.items()):
                    return f"{block.path}:{number}: "
        return ""

    @property
    def lost_calls(self) -> int:
        """Holes in the numbers of each rank's calls."""
        numbers = [("call_id", "min"), ("call_id", "max"), ("call_id", "count_distinct")]
        ranks = self.op_calls.group_by("rank").aggregate(numbers).to_pylist()
        return sum(one["call_id_max"] - one["call_id_min"] + 1 - one["call_id_count_distinct"] for one in ranks)

    @property
    def polled_ns(self) -> dict[str, int]:
        """Up to when each host was polled, by its clock."""
        epochs = self.nic_epochs
        ended = pc.add(epochs.column("poll_to_ns"), pc.fill_null(epochs.column("host_minus_nic_ns"), 0))
        return _last_of(epochs.column("host"), ended)

    @property
    def called_ns(self) -> dict[str, int]:
        """When the last call of each host began, by its clock."""
        return _last_of(self.op_calls.column("host"), self.op_calls.column("call_ns"))

    @property
    def ended_ns(self) -> int | None:
        """Up to when all hosts were polled but those that most others were polled for a second longer than; None where
        there are none."""
        last = self.polled_ns.values()
        return min((one for one in last if one >= median_high(last) - TOGETHER_NS), default=None)

    @property
    def silent_ns(self) -> int | None:
        """For how long most hosts were polled after the last call of any."""
        polled, called = self.polled_ns.values(), self.called_ns.values()
        return max(median_high(polled) - max(called), 0) if polled and called else None


def holds_any(path: Path) -> bool:
    """Whether a file, or one in a folder, is traffic by its name."""
    return any(format_.matches(file) for file in expand([path]) for format_ in TRAFFIC.values())


def load(paths: Sequence[Path], limits: Limits | None = None) -> Traffic:
    """All traffic that files and folders hold, whatever else lies in them.

    Raises ``InputError`` for what cannot be read, and where there is none.
    """
    found = expand(paths)
    tables: dict[str, list[pa.Table]] = {topic.name: [] for topic in (OP_CALLS, QUEUE_PAIRS, NIC_EPOCHS)}
    for format_ in TRAFFIC.values():
        if files := [path for path in found if format_.matches(path)]:
            tables[format_.topic.name].append(format_.read(files, limits or LIMITS))
    if not any(tables.values()):
        known = "; ".join(format_.what for format_ in TRAFFIC.values())
        raise InputError(f"{paths[0] if paths else 'nothing'}: no NIC traffic; known are {known}")
    gone = tuple(line for read in tables.values() for table in read for line in about(table.schema).gone)
    calls, pairs, epochs = (
        pa.concat_tables([TRAFFIC[f"{topic.name.partition('.')[2]}.jsonl"].schema.empty_table(), *tables[topic.name]])
        for topic in (OP_CALLS, QUEUE_PAIRS, NIC_EPOCHS)
    )
    calls, pairs, epochs = (table.unify_dictionaries().combine_chunks() for table in (calls, pairs, epochs))
    return Traffic(calls, pairs, epochs, found, gone)


def _last_of(host: pa.ChunkedArray, at_ns: pa.ChunkedArray) -> dict[str, int]:
    """The last time of each host."""
    last = pa.table({"host": host, "at": at_ns}).group_by("host").aggregate([("at", "max")])
    return dict(zip(last.column("host").to_pylist(), last.column("at_max").to_pylist(), strict=True))


def _host_of(path: Path) -> str | None:
    """The host that a folder's name tells: ``host=h1``."""
    return partitions(path).get(HOST.name)


def _alias_of(name: str) -> str | None:
    return next((alias for alias, meant in ALIASES.items() if meant == name), None)
