"""Arrow IPC streams that no writer makes, made from good ones byte by byte (Arrow's Message.fbs and Schema.fbs)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import pyarrow as pa

_METADATA = 8
"""Where the metadata of a message starts: after the continuation marker and the length."""

_RECORD_BATCH = 3


def claiming(stream: bytes, size: int) -> bytes:
    """The stream with the first buffer of its batch claiming to be ``size`` bytes decompressed."""
    edited = bytearray(stream)
    entry, body = _first_buffer(stream)
    struct.pack_into("<q", edited, body + _number(edited, "<q", entry), size)
    return bytes(edited)


def reaching(stream: bytes, offset: int, length: int) -> bytes:
    """The stream with the first buffer of its batch somewhere else."""
    edited = bytearray(stream)
    struct.pack_into("<qq", edited, _first_buffer(stream)[0], offset, length)
    return bytes(edited)


def sharing_a_value(entries: int, size: int) -> bytes:
    """A stream whose schema has ``entries`` key-value pairs that are all the same one, of ``size`` bytes."""
    pairs = {f"{number:06}": "" for number in range(entries - 1)} | {"large": "v" * size}
    edited = bytearray(pa.schema([pa.field("x", pa.int32())], metadata=pairs).serialize().to_pybytes())
    schema = _follow(edited, _field(edited, _root(edited, _METADATA), 2))
    slots = list(_slots(edited, _follow(edited, _field(edited, schema, 2))))
    values = {table: _follow(edited, _field(edited, table, 1)) for table in (_follow(edited, slot) for slot in slots)}
    _redirect(edited, slots, max(values, key=lambda table: _number(edited, "<I", values[table])))
    return bytes(edited)


def sharing_fields(levels: int, children: int) -> bytes:
    """A stream whose schema is a struct of structs, each of whose fields is the same one: children ** levels fields."""
    kind: pa.DataType = pa.int32()
    for _ in range(levels):
        kind = pa.struct([pa.field(f"f{number}", kind if number == 0 else pa.int32()) for number in range(children)])
    edited = bytearray(pa.schema([pa.field("x", kind)]).serialize().to_pybytes())
    schema = _follow(edited, _field(edited, _root(edited, _METADATA), 2))
    field = _follow(edited, next(_slots(edited, _follow(edited, _field(edited, schema, 1)))))
    for _ in range(levels):
        slots = list(_slots(edited, _follow(edited, _field(edited, field, 5))))
        nested = _follow(edited, slots[0])
        _redirect(edited, slots, nested)
        field = nested
    return bytes(edited)


def _redirect(edited: bytearray, slots: Iterable[int], table: int) -> None:
    """Let every slot that lies before a table refer to it."""
    for slot in slots:
        if slot < table:
            struct.pack_into("<I", edited, slot, table - slot)


def _first_buffer(stream: bytes) -> tuple[int, int]:
    """Where the first buffer of the record batch is listed, and where the batch's body starts."""
    at = 0
    while True:
        message = _root(stream, at + _METADATA)
        body = at + _METADATA + _number(stream, "<i", at + 4)
        if _number(stream, "<B", _field(stream, message, 1)) == _RECORD_BATCH:
            break
        at = body + _body_bytes(stream, message)
    buffers = _follow(stream, _field(stream, _follow(stream, _field(stream, message, 2)), 2))
    entries = range(buffers + 4, buffers + 4 + 16 * _number(stream, "<I", buffers), 16)
    return next(entry for entry in entries if _number(stream, "<q", entry + 8)), body


def _body_bytes(stream: bytes, message: int) -> int:
    try:
        return _number(stream, "<q", _field(stream, message, 3))
    except KeyError:
        return 0


def _number(data: bytes | bytearray, form: str, at: int) -> int:
    return int(struct.unpack_from(form, data, at)[0])


def _root(data: bytes | bytearray, at: int) -> int:
    return at + _number(data, "<I", at)


def _follow(data: bytes | bytearray, at: int) -> int:
    return at + _number(data, "<I", at)


def _field(data: bytes | bytearray, table: int, number: int) -> int:
    vtable = table - _number(data, "<i", table)
    slot = 4 + 2 * number
    offset = _number(data, "<H", vtable + slot) if slot < _number(data, "<H", vtable) else 0
    if not offset:
        raise KeyError(number)
    return table + offset


def _slots(data: bytes | bytearray, vector: int) -> Iterator[int]:
    return iter(range(vector + 4, vector + 4 + 4 * _number(data, "<I", vector), 4))
