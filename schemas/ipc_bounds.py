"""How large an Arrow IPC stream is once decoded, told without decoding it.

Arrow allocates what a compressed buffer claims to hold, so a few hostile bytes can ask for terabytes. Each
compressed buffer starts with its decompressed length; this module walks the messages of a stream (Arrow columnar
format, "Encapsulated message format" and Message.fbs) and adds those lengths up.

Metadata can explode as well: tables refer to each other by offset, so many fields may share one long name, and
each becomes an object of its own. Hence the bounds on its length and on what a reader would build from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3

_MAX_METADATA_BYTES = 64 << 10
"""Of one message; the largest schema of the catalogue takes 4 KiB."""

_MAX_METADATA_TABLES = 1_000
"""Fields and key-value pairs of one message; the largest schema of the catalogue has 100."""


def decoded_bytes(stream: bytes, *, max_metadata_bytes: int = _MAX_METADATA_BYTES) -> int:
    """Bytes that the buffers of a stream occupy after decompression.

    Raises ``ValueError`` where the stream is cut short, its lengths contradict each other, or its metadata is
    larger than ``max_metadata_bytes``, which no topic's is.
    """
    try:
        messages = _messages(memoryview(stream), max_metadata_bytes)
        return sum(_message_bytes(metadata, body) for metadata, body in messages)
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"not an Arrow IPC stream: {error}") from error


def _messages(stream: memoryview, max_metadata_bytes: int) -> Iterator[tuple[bytes, memoryview]]:
    """The metadata and the body of each message."""
    at = 0
    while at + 8 <= len(stream):
        marker, size = struct.unpack_from("<Ii", stream, at)
        if marker != _CONTINUATION or size < 0:
            raise ValueError("not an Arrow IPC stream: no message starts where one must")
        if size == 0:
            return
        if size > max_metadata_bytes:
            raise ValueError(f"{size} bytes of metadata, at most {max_metadata_bytes} are read")
        metadata = bytes(stream[at + 8 : at + 8 + size])
        if len(metadata) < size:
            raise ValueError("not an Arrow IPC stream: cut short in a message's metadata")
        body_bytes = _root(metadata).scalar(3, "<q")
        start = at + 8 + size
        if body_bytes < 0 or start + body_bytes > len(stream):
            raise ValueError("not an Arrow IPC stream: cut short in a message's body")
        yield metadata, stream[start : start + body_bytes]
        at = start + body_bytes


def _message_bytes(metadata: bytes, body: memoryview) -> int:
    message = _root(metadata)
    kind, header = message.scalar(1, "<B"), message.table(2)
    _check_count(message.tables(4))
    if header is None:
        return 0
    if kind == _SCHEMA:
        _check_schema(metadata)
    elif kind == _RECORD_BATCH:
        return _batch_bytes(header, body)
    elif kind == _DICTIONARY_BATCH:
        batch = header.table(1)
        return 0 if batch is None else _batch_bytes(batch, body)
    return 0


def _batch_bytes(batch: _Table, body: memoryview) -> int:
    compressed = batch.table(3) is not None
    total = 0
    for offset, length in batch.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise ValueError("not an Arrow IPC stream: a buffer reaches beyond its message")
        if compressed and length >= 8:
            claimed = struct.unpack_from("<q", body, offset)[0]
            if claimed < -1:
                raise ValueError("not an Arrow IPC stream: a buffer of negative size")
            total += length if claimed == -1 else claimed
        else:
            total += length
    return total


@lru_cache(maxsize=64)
def _check_schema(metadata: bytes) -> None:
    """Raise ``ValueError`` where a schema has more fields than any topic; a sender's schema is always the same."""
    schema = _root(metadata).table(2)
    if schema is not None:
        _check_count(_schema_tables(schema))


def _schema_tables(schema: _Table) -> Iterator[_Table]:
    """Fields and key-value pairs as a reader comes by them, one that is shared as often as it is referred to."""
    yield from schema.tables(2)
    levels = [schema.tables(1)]
    while levels:
        field = next(levels[-1], None)
        if field is None:
            levels.pop()
        else:
            yield field
            yield from field.tables(6)
            levels.append(field.tables(5))


def _check_count(tables: Iterator[_Table]) -> None:
    for count, _ in enumerate(tables, start=1):
        if count > _MAX_METADATA_TABLES:
            raise ValueError(f"more than {_MAX_METADATA_TABLES} fields and entries in a message's metadata")


def _root(metadata: bytes) -> _Table:
    return _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])


class _Table:
    """A flatbuffers table: fields by number, found through its vtable."""

    __slots__ = ("_at", "_data", "_vtable", "_vtable_bytes")

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - struct.unpack_from("<i", data, at)[0]
        if self._vtable < 0:
            raise ValueError("not an Arrow IPC stream: a table without a layout")
        self._vtable_bytes = struct.unpack_from("<H", data, self._vtable)[0]

    def _field(self, number: int) -> int | None:
        slot = 4 + 2 * number
        if slot + 2 > self._vtable_bytes:
            return None
        offset = struct.unpack_from("<H", self._data, self._vtable + slot)[0]
        return self._at + offset if offset else None

    def scalar(self, number: int, form: str) -> int:
        at = self._field(number)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def table(self, number: int) -> _Table | None:
        at = self._field(number)
        return None if at is None else _Table(self._data, at + struct.unpack_from("<I", self._data, at)[0])

    def tables(self, number: int) -> Iterator[_Table]:
        """A vector of tables."""
        at = self._field(number)
        if at is None:
            return
        at += struct.unpack_from("<I", self._data, at)[0]
        for index in range(struct.unpack_from("<I", self._data, at)[0]):
            item = at + 4 + 4 * index
            yield _Table(self._data, item + struct.unpack_from("<I", self._data, item)[0])

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A vector of two-word structs, as Arrow stores its buffers."""
        at = self._field(number)
        if at is None:
            return
        at += struct.unpack_from("<I", self._data, at)[0]
        count = struct.unpack_from("<I", self._data, at)[0]
        if at + 4 + 16 * count > len(self._data):
            raise ValueError("not an Arrow IPC stream: more buffers than bytes")
        for index in range(count):
            yield struct.unpack_from("<qq", self._data, at + 4 + 16 * index)
