"""Arrow columns in ClickHouse's Native format, which both engines read.

clickhouse-driver writes a column value by value from Python objects; here it is written from Arrow's buffers,
which are laid out almost the same. The format: src/Formats/NativeWriter.cpp of ClickHouse, and the
``serializeBinaryBulk...`` functions in src/DataTypes/Serializations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.clickhouse.types import Type, arrow_type, parse

Buffer = bytes | memoryview

_KEYS_VERSION = (1).to_bytes(8, "little")
_KEYS_IN_THIS_BLOCK = (1 << 9) | (1 << 10)
_CODE_TYPES = (np.uint8, np.uint16, np.uint32, np.uint64)
_NUMBERS = frozenset(
    "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 Bool DateTime DateTime64".split()
)


def native_block(batch: pa.RecordBatch, types: Sequence[tuple[str, str]], *, on_tcp: bool = False) -> Iterator[Buffer]:
    """Write a batch as one block. ``types`` are the names and ClickHouse types of its columns, in their order.

    ``on_tcp`` adds the byte that marks a column's serialization on a connection and that a file does not have.
    Raises ``ValueError`` for a column that is missing, a type that no table of ours has, and a null where the
    type knows none.
    """
    yield _varint(len(types)) + _varint(batch.num_rows)
    for name, type_name in types:
        yield _name(name) + _name(type_name) + (b"\0" if on_tcp else b"")
        type_ = parse(type_name)
        yield from _prefix(type_)
        if batch.num_rows:
            try:
                yield from _data(type_, batch.column(name))
            except (KeyError, ValueError, pa.ArrowException) as error:
                raise ValueError(f"column {name} cannot be written as {type_name}: {error}") from error


def _prefix(type_: Type) -> Iterator[bytes]:
    if type_.name == "LowCardinality":
        yield _KEYS_VERSION
    for argument in type_.arguments:
        yield from _prefix(argument)


def _data(type_: Type, values: pa.Array) -> Iterator[Buffer]:
    match type_.name:
        case "Nullable":
            yield _bytes(values.is_null().cast(pa.uint8()))
            yield from _scalars(type_.arguments[0], values)
        case "LowCardinality":
            yield from _low_cardinality(type_.arguments[0], values)
        case "Array":
            lengths = pc.fill_null(pc.list_value_length(values), 0)
            yield np.cumsum(lengths, dtype=np.uint64).data.cast("B")
            yield from _data(type_.arguments[0], values.flatten())
        case "Tuple":
            fields = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
            for name, of in zip(type_.names, type_.arguments, strict=True):
                yield from _data(of, fields[name])
        case _:
            if values.null_count:
                raise ValueError(f"{values.null_count} nulls where {type_.name} knows none")
            yield from _scalars(type_, values)


def _scalars(type_: Type, values: pa.Array) -> Iterator[Buffer]:
    """Values of one size each, or strings; what a null hides is written as zero."""
    if not len(values):
        return
    if type_.name == "String":
        yield _strings(values.cast(pa.large_string()))
    elif type_.name in _NUMBERS:
        target = arrow_type(type_)
        numbers = values if values.type == target else values.cast(target)
        if pa.types.is_timestamp(target):
            numbers = numbers.view(pa.int64())
            numbers = numbers.cast(pa.uint32()) if type_.name == "DateTime" else numbers
        elif pa.types.is_boolean(target):
            numbers = numbers.cast(pa.uint8())
        yield _bytes(pc.fill_null(numbers, 0))
    else:
        raise ValueError(f"values of type {type_.name} are not written")


def _low_cardinality(keys: Type, values: pa.Array) -> Iterator[Buffer]:
    if not len(values):
        return
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    elif values.dictionary.null_count:
        values = values.cast(values.type.value_type).dictionary_encode()
    dictionary, codes = values.dictionary, values.indices
    if keys.nullable:  # the first key is the null
        keys = keys.arguments[0]
        dictionary = pa.concat_arrays([pa.nulls(1, dictionary.type), dictionary])
        codes = pc.fill_null(pc.add(codes.cast(pa.int64()), 1), 0)
    elif codes.null_count:
        raise ValueError(f"{codes.null_count} nulls where {keys.name} knows none")
    width = next(power for power in range(4) if len(dictionary) <= 1 << (8 << power))
    yield np.array([_KEYS_IN_THIS_BLOCK | width, len(dictionary)], np.uint64).tobytes()
    yield from _scalars(keys, dictionary)
    yield len(values).to_bytes(8, "little")
    yield codes.to_numpy().astype(_CODE_TYPES[width]).data.cast("B")


def _strings(values: pa.Array) -> Buffer:
    """Each string behind its length, a varint: seven bits a byte, the least significant first."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    sizes = np.ones_like(lengths)
    for bits in range(7, 63, 7):
        sizes += lengths >= 1 << bits
    starts = np.cumsum(sizes + lengths) - lengths
    written = np.empty(int(starts[-1] + lengths[-1]), np.uint8)
    written[np.arange(len(data)) + np.repeat(starts - (offsets[:-1] - offsets[0]), lengths)] = data
    for byte in range(int(sizes.max())):
        rows = np.flatnonzero(sizes > byte)
        goes_on = np.where(sizes[rows] > byte + 1, 0x80, 0)
        written[(starts - sizes)[rows] + byte] = (lengths[rows] >> (7 * byte)) & 0x7F | goes_on
    return written.data


def _bytes(numbers: pa.Array) -> Buffer:
    plain: npt.NDArray[np.generic] = numbers.to_numpy()
    return plain.data.cast("B")


def _varint(number: int) -> bytes:
    low = bytearray()
    while number > 0x7F:
        low.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(low) + bytes([number])


def _name(text: str) -> bytes:
    encoded = text.encode()
    return _varint(len(encoded)) + encoded
