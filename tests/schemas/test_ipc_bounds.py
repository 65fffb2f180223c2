"""The size of a stream once decoded: what is told beforehand is what decoding then takes, never less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.catalogue import TOPICS
from schemas.ipc_bounds import decoded_bytes
from schemas.topic import Topic
from tests.schemas.batches import rows_of
from tests.schemas.hostile import claiming, reaching, sharing_a_value, sharing_fields
from tests.schemas.memory import new_pool

COMPRESSION = pytest.mark.parametrize("compression", ["zstd", "lz4", None])
ROUNDED = 64
"""Arrow's pools hand out whole cache lines."""


def stream(*batches: pa.RecordBatch, compression: str | None = "zstd", deltas: bool = False) -> bytes:
    """A stream of batches."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def buffers(array: pa.Array) -> Iterator[pa.Buffer]:
    """The buffers of an array, of its children and of their dictionaries."""
    if isinstance(array, pa.DictionaryArray):
        yield from (buffer for buffer in array.buffers() if buffer is not None)
        yield from buffers(array.dictionary)
    elif isinstance(array, pa.ListArray):
        yield from (buffer for buffer in array.buffers()[:2] if buffer is not None)
        yield from buffers(array.values)
    elif isinstance(array, pa.StructArray):
        yield from (buffer for buffer in array.buffers()[:1] if buffer is not None)
        for index in range(array.type.num_fields):
            yield from buffers(array.field(index))
    else:
        yield from (buffer for buffer in array.buffers() if buffer is not None)


def assert_told_truly(value: bytes) -> None:
    """Decode a stream of one batch and compare."""
    told = decoded_bytes(value)
    pool = new_pool()
    with pa.ipc.open_stream(value, memory_pool=pool) as reader:
        batch = reader.read_next_batch()
    held = [buffer for column in batch.columns for buffer in buffers(column)]
    assert told == sum(buffer.size for buffer in held)
    assert pool.bytes_allocated() <= told + ROUNDED * len(held)


NUMBERS = pa.array(np.arange(10_000) % 7)
TEXT = pa.array([None if i % 5 == 0 else f"communicator-{i % 11}" for i in range(10_000)])
RANDOM = pa.array(np.random.default_rng(1).bytes(10_000).hex()[i : i + 20] for i in range(1_000))
LISTS = pa.ListArray.from_arrays(pa.array(range(0, 10_001, 10), pa.int32()), NUMBERS)
ARRAYS = {
    "numbers": NUMBERS,
    "text": TEXT,
    "text that does not compress": RANDOM,
    "a dictionary": TEXT.dictionary_encode(),
    "lists": LISTS,
    "lists of ids": pa.ListArray.from_arrays(LISTS.offsets, TEXT.dictionary_encode()),
    "structs": pa.StructArray.from_arrays([NUMBERS, TEXT, TEXT.dictionary_encode()], names=["a", "b", "c"]),
    "lists of structs of lists": pa.ListArray.from_arrays(
        pa.array([0, 400, 1000], pa.int32()), pa.StructArray.from_arrays([LISTS, RANDOM], names=["a", "b"])
    ),
    "a map": pa.array([[("schema", "comm_ops/1"), ("job", "j")], []], pa.map_(pa.string(), pa.string())),
    "bits": pa.array([True, False, None] * 100),
    "one value": pa.array([1]),
    "nothing": pa.array([], pa.int64()),
    "an empty dictionary": pa.array([], pa.string()).dictionary_encode(),
    "nulls": pa.nulls(1_000),
}


@COMPRESSION
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_it_is_what_the_decoded_buffers_hold(array: pa.Array, compression: str | None) -> None:
    assert_told_truly(stream(pa.record_batch({"x": array}), compression=compression))


@COMPRESSION
def test_columns_add_up(compression: str | None) -> None:
    columns = {"a": NUMBERS, "b": TEXT, "c": TEXT.dictionary_encode(), "d": pa.nulls(10_000)}
    assert_told_truly(stream(pa.record_batch(columns), compression=compression))


@pytest.mark.parametrize("topic", TOPICS.values(), ids=lambda topic: topic.name)
@given(data=st.data())
@settings(max_examples=15)
def test_it_holds_for_every_topic(topic: Topic, data: st.DataObject) -> None:
    batch = topic.from_rows(data.draw(rows_of(topic)))
    assert_told_truly(stream(batch, compression=data.draw(st.sampled_from(["zstd", None]))))


@COMPRESSION
def test_every_batch_and_every_addition_to_a_dictionary_counts(compression: str | None) -> None:
    def batch(words: list[str]) -> pa.RecordBatch:
        return pa.record_batch({"x": pa.array(words).dictionary_encode()})

    first, both = ["a" * 1000], ["a" * 1000, "b" * 1000]
    one = decoded_bytes(stream(batch(first), compression=compression))
    two = decoded_bytes(stream(batch(first), batch(both), compression=compression, deltas=True))
    assert one >= 1000
    assert two >= one + 1000


def test_what_compresses_well_is_told_at_its_true_size() -> None:
    value = stream(pa.record_batch({"x": pa.array(np.zeros(1_000_000, np.int64))}))
    assert len(value) < 10_000
    assert decoded_bytes(value) == 8_000_000


@pytest.mark.parametrize("size", [1 << 33, 1 << 50, (1 << 63) - 1])
def test_a_claim_is_believed_without_being_tried(size: int) -> None:
    value = claiming(stream(pa.record_batch({"x": NUMBERS})), size)
    assert decoded_bytes(value) >= size


@pytest.mark.parametrize("size", [-2, -(1 << 63)])
def test_a_negative_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="negative size"):
        decoded_bytes(claiming(stream(pa.record_batch({"x": NUMBERS})), size))


def test_a_buffer_that_stays_as_it_is_takes_its_own_length() -> None:
    """A length of -1: the writer saw that compression would not pay."""
    value = stream(pa.record_batch({"x": NUMBERS}))
    assert 0 < decoded_bytes(claiming(value, -1)) < len(value)


@pytest.mark.parametrize(("offset", "length"), [(0, 1 << 20), (1 << 40, 8), (-8, 16), (0, -8), ((1 << 63) - 1, 8)])
@COMPRESSION
def test_a_buffer_beyond_its_message_is_refused(offset: int, length: int, compression: str | None) -> None:
    with pytest.raises(ValueError, match="reaches beyond its message"):
        decoded_bytes(reaching(stream(pa.record_batch({"x": NUMBERS}), compression=compression), offset, length))


@COMPRESSION
def test_a_stream_that_is_cut_off_is_refused(compression: str | None) -> None:
    value = stream(pa.record_batch({"x": pa.array([1, 2])}), compression=compression)
    after_schema, after_batch, whole = _ends(value)
    assert decoded_bytes(value[:after_schema]) == 0
    assert decoded_bytes(value[:after_batch]) == decoded_bytes(value[:whole]) > 0
    for length in range(len(value)):
        if not any(0 <= length - end < 8 for end in (0, after_schema, after_batch)):
            with pytest.raises(ValueError, match="cut short"):
                decoded_bytes(value[:length])


def _ends(value: bytes) -> list[int]:
    """Where the messages of a stream end, and the stream itself."""
    source = pa.BufferReader(value)
    return [source.tell() for _ in pa.ipc.MessageReader.open_stream(source)] + [len(value)]


def test_pairs_that_share_one_value_are_refused() -> None:
    """Arrow makes a string of each: 2,000 times 50 KB of a record of 100 KB."""
    with pytest.raises(ValueError, match="metadata"):
        decoded_bytes(sharing_a_value(2_000, 1_000))
    with pytest.raises(ValueError, match="bytes of metadata, at most 65536"):
        decoded_bytes(sharing_a_value(2_000, 50_000))


def test_fields_that_share_their_children_are_refused_at_once() -> None:
    """Arrow makes an object of each: 10 to the 12th of a record of a few kilobytes."""
    value = sharing_fields(12, 10)
    assert len(value) < 20_000
    with pytest.raises(ValueError, match="more than 1000 fields"):
        decoded_bytes(value)


def test_entries_beside_a_field_or_a_batch_count_as_well() -> None:
    entries = {f"{number:04}": "" for number in range(1_100)}
    schema = pa.schema([pa.field("x", pa.int32(), metadata=entries)])
    with pytest.raises(ValueError, match="more than 1000 fields and entries"):
        decoded_bytes(schema.serialize().to_pybytes())
    batch, sink = pa.record_batch({"x": NUMBERS}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=entries)
    with pytest.raises(ValueError, match="more than 1000 fields and entries"):
        decoded_bytes(sink.getvalue().to_pybytes())


def test_a_schema_of_many_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="metadata"):
        decoded_bytes(pa.schema([pa.field(str(n), pa.int8()) for n in range(1_100)]).serialize().to_pybytes())


@pytest.mark.parametrize("topic", TOPICS.values(), ids=lambda topic: topic.name)
def test_no_topic_comes_near_the_bounds_of_metadata(topic: Topic) -> None:
    fields = [field for column in topic.schema for field in (column, *_inner(column.type))]
    assert topic.schema.serialize().size < 8 << 10
    assert len(fields) < 200


def _inner(kind: pa.DataType) -> Iterator[pa.Field]:
    for index in range(kind.num_fields):
        yield kind.field(index)
        yield from _inner(kind.field(index).type)


@pytest.mark.parametrize("value", [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\0\0\0\0"])
def test_a_stream_without_messages_holds_nothing(value: bytes) -> None:
    assert decoded_bytes(value) == 0


@given(st.binary(max_size=200).map(lambda tail: b"\xff\xff\xff\xff" + tail) | st.binary(max_size=64))
def test_nonsense_is_a_value_error(value: bytes) -> None:
    try:
        told: Any = decoded_bytes(value)
    except ValueError as error:
        told = error
    assert told == 0 or isinstance(told, ValueError)
