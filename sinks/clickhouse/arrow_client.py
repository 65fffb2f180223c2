"""clickhouse-driver's client, with Arrow batches where it has Python values.

The driver speaks the protocol; only how a block of data is written and read is ours. Writing is the hot path and
goes through ``native``. Reading keeps the driver's columns, but takes points in time as the whole numbers that
travel: the driver makes datetimes of them, which have no nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from clickhouse_driver import Client
from clickhouse_driver.block import BlockInfo
from clickhouse_driver.columns.service import read_column
from clickhouse_driver.connection import Connection
from clickhouse_driver.errors import UnknownTypeError
from clickhouse_driver.protocol import ServerPacketTypes
from clickhouse_driver.reader import read_binary_str, read_binary_uint8
from clickhouse_driver.streams.native import BlockInputStream, BlockOutputStream
from clickhouse_driver.varint import read_varint

from sinks.clickhouse.native import native_block
from sinks.clickhouse.types import Type, arrow_type, parse

# Types of points in time, wherever they stand in a column's type.
_SECONDS = re.compile(r"\bDateTime\b(\('[^']*'\))?")
_TICKS = re.compile(r"\bDateTime64\(\d(, *'[^']*')?\)")


class ArrowClient(Client):  # type: ignore[misc]
    """A client whose blocks are Arrow batches; its settings and errors are the driver's.

    It leans on how the driver is made inside (0.2.11), and on a server that speaks of parameters and custom
    serialization (protocol revision 54459), as ClickHouse has since 2022.
    """

    def __init__(self, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        options.pop("settings", None)
        self.connection = _ArrowConnection(host, **options)

    def query_table(self, sql: str, params: Mapping[str, Any], settings: Mapping[str, Any]) -> pa.Table:
        """Run a statement; its answer, a table without columns where it has none.

        Raises ``UnknownTypeError`` for a column of a type that Arrow cannot carry.
        """
        with self.disconnect_on_error(sql, {**settings, "server_side_params": True}):
            self.connection.send_query(sql, params=params)
            self.connection.send_external_tables(None)
            blocks = [p.block for p in self.packet_generator() if p.type == ServerPacketTypes.DATA and p.block]
        try:
            batches = [block.batch() for block in blocks if block.columns_with_types]
        except ValueError as error:
            raise UnknownTypeError(str(error)) from error
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def insert_batch(self, sql: str, batch: pa.RecordBatch, settings: Mapping[str, Any]) -> None:
        """Run an INSERT with a batch for its data, as one block."""
        self.execute(sql, [batch], settings=settings)

    def send_data(self, sample_block: _Read, data: Sequence[pa.RecordBatch], **_: Any) -> int:
        """Send the data of an INSERT: what ``execute`` calls once the server has said which columns it takes."""
        for batch in data:
            self.connection.send_data(_Written(batch, sample_block.columns_with_types))
            self.receive_profile_events()
        self.connection.send_data(_END)
        self.receive_profile_events()
        return sum(batch.num_rows for batch in data)


@dataclass(frozen=True, slots=True)
class _Written:
    """A batch on its way to the server."""

    batch: pa.RecordBatch
    columns_with_types: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Read:
    """A block from the server: its columns' values as the driver reads them."""

    columns_with_types: Sequence[tuple[str, str]]
    columns: Sequence[Sequence[Any]]
    num_rows: int

    def batch(self) -> pa.RecordBatch:
        types = [parse(type_name) for _, type_name in self.columns_with_types]
        schema = pa.schema(
            [
                pa.field(name, arrow_type(type_), nullable=type_.nullable)
                for (name, _), type_ in zip(self.columns_with_types, types, strict=True)
            ]
        )
        columns = self.columns if self.num_rows else [()] * len(types)
        return pa.RecordBatch.from_arrays(
            [_array(type_, values) for type_, values in zip(types, columns, strict=True)], schema=schema
        )


_END = _Written(pa.RecordBatch.from_arrays([], names=[]), ())


class _ArrowConnection(Connection):  # type: ignore[misc]
    def get_block_in_stream(self) -> _BlockReader:
        return _BlockReader(super().get_block_in_stream())

    def get_block_out_stream(self) -> _BlockWriter:
        return _BlockWriter(super().get_block_out_stream())


class _BlockWriter:
    """Writes our batches as Native, and what the driver itself sends as the driver does."""

    def __init__(self, stream: BlockOutputStream) -> None:
        self._stream = stream

    def write(self, block: Any) -> None:
        if not isinstance(block, _Written):
            self._stream.write(block)
            return
        BlockInfo().write(self._stream.fout)
        for part in native_block(block.batch, block.columns_with_types, on_tcp=True):
            self._stream.fout.write(bytes(part))
        self._stream.finalize()


class _BlockReader:
    """Reads a block as ``BlockInputStream`` does, times as whole numbers."""

    def __init__(self, stream: BlockInputStream) -> None:
        self._stream = stream

    def read(self, use_numpy: bool | None = None) -> _Read:
        source = self._stream.fin
        BlockInfo().read(source)
        n_columns, n_rows = read_varint(source), read_varint(source)
        types, columns = [], []
        for _ in range(n_columns):
            name, type_name = read_binary_str(source), read_binary_str(source)
            custom = bool(read_binary_uint8(source))
            types.append((name, type_name))
            if n_rows:
                raw = _SECONDS.sub("UInt32", _TICKS.sub("Int64", type_name))
                columns.append(
                    read_column(
                        self._stream.context, raw, n_rows, source, use_numpy=False, has_custom_serialization=custom
                    )
                )
        return _Read(types, columns, n_rows)


def _array(type_: Type, values: Sequence[Any]) -> pa.Array:
    """The driver's values as an Arrow array; nested ones column by column, not value by value."""
    match type_.name:
        case "Array":
            offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
            items = _array(type_.arguments[0], list(chain.from_iterable(values)))
            return pa.ListArray.from_arrays(pa.array(offsets), items, type=arrow_type(type_))
        case "Tuple":
            columns = list(zip(*values, strict=True)) or [()] * len(type_.arguments)
            arrays = [_array(of, column) for of, column in zip(type_.arguments, columns, strict=True)]
            return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(type_)))
        case "Map":
            return pa.array([list(value.items()) for value in values], arrow_type(type_))
        case "UUID" | "IPv4" | "IPv6":
            return pa.array([None if value is None else str(value) for value in values], pa.string())
        case "Bool":  # where nearly all are false, the server leaves those out and the driver says 0 for them
            return pa.array([None if value is None else bool(value) for value in values], pa.bool_())
        case "Nullable" | "LowCardinality":
            return _array(type_.arguments[0], values)
    return pa.array(values, arrow_type(type_))
