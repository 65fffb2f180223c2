"""How large an Arrow IPC stream is once decompressed, told without decompressing it.

Arrow allocates what a compressed buffer claims to hold, so a few hostile bytes can ask for terabytes.
Each compressed buffer starts with its decompressed length; this module walks the messages of a stream
(Arrow columnar format, "Encapsulated message format" and Message.fbs) and adds those lengths up.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_CONTINUATION = 0xFFFFFFFF
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def decoded_bytes(stream: bytes) -> int:
    """Bytes that the buffers of a stream occupy after decompression.

    Raises ``ValueError`` where the stream is cut short or its lengths contradict each other.
    """
    try:
        return sum(_batch_bytes(header, kind, body) for header, kind, body in _messages(memoryview(stream)))
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"not an Arrow IPC stream: {error}") from error


def _messages(stream: memoryview) -> Iterator[tuple[_Table, int, memoryview]]:
    at = 0
    while at + 8 <= len(stream):
        marker, size = struct.unpack_from("<Ii", stream, at)
        if marker != _CONTINUATION or size < 0:
            raise ValueError("not an Arrow IPC stream: no message starts where one must")
        if size == 0:
            return
        metadata = stream[at + 8 : at + 8 + size]
        if len(metadata) < size:
            raise ValueError("not an Arrow IPC stream: cut short in a message's metadata")
        message = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
        body_bytes = message.scalar(3, "<q")
        start = at + 8 + size
        if body_bytes < 0 or start + body_bytes > len(stream):
            raise ValueError("not an Arrow IPC stream: cut short in a message's body")
        header = message.table(2)
        if header is not None:
            yield header, message.scalar(1, "<B"), stream[start : start + body_bytes]
        at = start + body_bytes


def _batch_bytes(header: _Table, kind: int, body: memoryview) -> int:
    batch: _Table | None = header
    if kind == _DICTIONARY_BATCH:
        batch = header.table(1)
    elif kind != _RECORD_BATCH:
        return 0
    if batch is None:
        return 0
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


class _Table:
    """A flatbuffers table: fields by number, found through its vtable."""

    __slots__ = ("_at", "_data", "_vtable", "_vtable_bytes")

    def __init__(self, data: memoryview, at: int) -> None:
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
