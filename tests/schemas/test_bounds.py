"""Nothing larger than its topic allows is taken apart, sent, or ever held in memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from schemas.catalogue import COMM_OPS, DEAD_LETTERS, FINDINGS, ITERATIONS, JOBS, STATE
from schemas.errors import ImpossibleValue, MessageError, MessageTooLarge, UndecodableMessage
from schemas.message import Message, decode, encode
from schemas.topic import MAX_STRING_BYTES, Topic
from tests.schemas.hostile import claiming, sharing_a_value, sharing_fields
from tests.schemas.memory import allocating_at_most
from tests.schemas.samples import JOB, batch_of, first_row, message_of

LITTLE = 1 << 20


def with_column(topic: Topic, name: str, array: pa.Array) -> Message:
    """A record of one row, the first good one with a column replaced."""
    row = first_row(topic)
    columns = {column: batch_of(topic, {column: value}).column(0) for column, value in row.items()}
    return message_of(topic, [pa.record_batch(columns | {name: array})])


def zeros(rows: int) -> pa.RecordBatch:
    """Rows of analysis.iterations that compress to almost nothing."""
    nothing = np.zeros(rows, np.int32)
    times = np.zeros(rows, np.int64)
    return ITERATIONS.batch({"iteration": nothing, "pivot": nothing, "start_ns": times, "delta": np.ones(rows)})


def test_a_record_beyond_its_bytes_is_not_even_looked_at() -> None:
    message = Message(ITERATIONS.name, JOB, bytes(ITERATIONS.max_bytes + 1), {"schema": "iterations/1", "job": JOB})
    with pytest.raises(MessageTooLarge, match=f"{ITERATIONS.max_bytes + 1} bytes, at most {ITERATIONS.max_bytes}"):
        decode(message, ITERATIONS)


def test_a_record_beyond_its_bytes_is_not_sent() -> None:
    noise = np.random.default_rng(1).bytes(STATE.max_bytes + 1)
    row = {"processor": "p", "job": JOB, "offsets": [], "format": "f", "state": noise}
    with pytest.raises(MessageTooLarge, match="split it into parts"):
        encode(STATE, STATE.from_rows([row]), job=JOB)


@pytest.mark.parametrize("off_by", [0, 1])
def test_rows_are_bounded_on_both_sides(off_by: int) -> None:
    small = dataclasses.replace(ITERATIONS, max_rows=4)
    batch = zeros(4 + off_by)
    if off_by:
        with pytest.raises(MessageTooLarge, match="5 rows, at most 4"):
            encode(small, batch, job=JOB)
        with pytest.raises(MessageTooLarge, match="5 rows, at most 4"):
            decode(encode(ITERATIONS, batch, job=JOB), small)
    else:
        assert decode(encode(small, batch, job=JOB), small).num_rows == 4


def test_the_decoded_size_is_bounded_on_both_sides() -> None:
    batch = zeros(1_000)
    message = encode(ITERATIONS, batch, job=JOB)
    small = dataclasses.replace(ITERATIONS, max_decoded_bytes=10_000)
    with pytest.raises(MessageTooLarge, match="bytes decompressed, at most 10000"):
        encode(small, batch, job=JOB)
    with pytest.raises(MessageTooLarge, match="bytes decompressed, at most 10000"):
        decode(message, small)


def test_a_record_that_would_fill_memory_is_refused_without_being_decompressed() -> None:
    """1 GiB of zeros in a record of a few kilobytes, given Arrow's most obliging reader."""
    roomy = dataclasses.replace(ITERATIONS, max_rows=1 << 30, max_decoded_bytes=1 << 40)
    message = encode(roomy, zeros(4_000_000), job=JOB)
    assert message.value is not None
    assert len(message.value) < 1 << 16
    with allocating_at_most(LITTLE), pytest.raises(MessageTooLarge, match="bytes decompressed"):
        decode(message, ITERATIONS)


@pytest.mark.parametrize("size", [1 << 32, 1 << 45, (1 << 63) - 1])
def test_a_record_that_claims_to_be_huge_is_refused_without_allocating(size: int) -> None:
    message = encode(ITERATIONS, zeros(1_000), job=JOB)
    assert message.value is not None
    claimed = dataclasses.replace(message, value=claiming(message.value, size))
    with allocating_at_most(LITTLE), pytest.raises(MessageTooLarge, match="bytes decompressed"):
        decode(claimed, ITERATIONS)


@pytest.mark.parametrize("size", [0, 1, 3_999, 4_001, 1 << 20])
def test_a_record_that_lies_about_its_size_is_refused(size: int) -> None:
    message = encode(ITERATIONS, zeros(1_000), job=JOB)
    assert message.value is not None
    with pytest.raises(UndecodableMessage):
        decode(dataclasses.replace(message, value=claiming(message.value, size)), ITERATIONS)


@pytest.mark.parametrize(
    "value", [sharing_a_value(1_100, 1_000), sharing_a_value(2_000, 300_000), sharing_fields(12, 10)], ids=len
)
def test_metadata_that_explodes_never_reaches_arrow(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the stream was opened")

    monkeypatch.setattr(pa.ipc, "open_stream", opened)
    with pytest.raises(UndecodableMessage, match="metadata"):
        decode(Message(JOBS.name, JOB, value, {"schema": "jobs/1", "job": JOB}), JOBS)


def no_bytes(length: int) -> pa.Array:
    """Any number of nulls, in no memory."""
    return pa.Array.from_buffers(pa.null(), length, [None])


MANY = (1 << 31) - 2
ONE_LIST = pa.array([0, MANY], pa.int32())


@pytest.mark.parametrize(
    ("topic", "name", "array"),
    [
        (FINDINGS, "ranks", pa.ListArray.from_arrays(ONE_LIST, no_bytes(MANY))),
        (FINDINGS, "waits", pa.ListArray.from_arrays(ONE_LIST, pa.StructArray.from_arrays([no_bytes(MANY)], ["rank"]))),
        (FINDINGS, "candidates", pa.array([[]]).cast(pa.list_(pa.list_(pa.null())))),
        (FINDINGS, "ranks", pa.FixedSizeListArray.from_arrays(no_bytes(MANY), MANY)),
        (JOBS, "communicators", pa.ListArray.from_arrays(ONE_LIST, no_bytes(MANY))),
    ],
    ids=["nulls", "structs of nulls", "lists of nulls", "fixed-size nulls", "nulls for structs"],
)
def test_lists_that_hold_everything_in_no_bytes_are_refused_without_allocating(
    topic: Topic, name: str, array: pa.Array
) -> None:
    message = with_column(topic, name, array)
    with allocating_at_most(LITTLE), pytest.raises(MessageError, match=f"column {name}"):
        decode(message, topic)


def test_a_column_of_nulls_is_bounded_by_the_rows() -> None:
    batch = pa.record_batch({name: no_bytes(MANY) for name in ITERATIONS.schema.names})
    with allocating_at_most(LITTLE), pytest.raises(MessageTooLarge, match="rows, at most 1000000"):
        decode(message_of(ITERATIONS, [batch]), ITERATIONS)


def test_elements_of_lists_are_bounded_like_rows() -> None:
    small = dataclasses.replace(FINDINGS, max_rows=3)
    with pytest.raises(MessageTooLarge, match="column ranks holds 4 values, at most 3"):
        decode(with_column(FINDINGS, "ranks", pa.array([[1, 2, 3, 4]], pa.list_(pa.int32()))), small)


def test_elements_of_lists_in_structs_are_bounded_like_rows() -> None:
    path = pa.array([[1, 2, 3, 4]], pa.list_(pa.int32()))
    evidence = pa.StructArray.from_arrays([path], names=["path"])
    with pytest.raises(MessageTooLarge, match="column evidence holds 4 values, at most 3"):
        decode(with_column(FINDINGS, "evidence", evidence), dataclasses.replace(FINDINGS, max_rows=3))


def test_ids_are_bounded_as_if_they_were_spelled_out() -> None:
    """A long id costs four bytes a row on the wire, and its whole length in whoever writes it out."""
    rows = 1_000
    batch = COMM_OPS.batch(
        {
            "rank": np.zeros(rows, np.int32),
            "communicator": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * 100_000]),
            "op": pa.array(["send"] * rows),
            "call_ns": np.zeros(rows, np.int64),
        }
    )
    message = encode(COMM_OPS, batch, job=JOB)
    with pytest.raises(MessageTooLarge, match="column communicator is 100000000 bytes spelled out"):
        decode(message, COMM_OPS)
    assert decode(encode(COMM_OPS, batch.slice(0, 600), job=JOB), COMM_OPS).num_rows == 600


def test_a_dictionary_in_a_struct_is_refused_rather_than_spelled_out() -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), ["x"])
    stage = pa.StructArray.from_arrays([text], names=["phase"])
    with pytest.raises(MessageError, match="column stage is struct<phase: dictionary"):
        decode(with_column(FINDINGS, "stage", stage), FINDINGS)


@pytest.mark.parametrize(("topic", "name"), [(JOBS, "job"), (COMM_OPS, "error")])
def test_strings_are_bounded(topic: Topic, name: str) -> None:
    with pytest.raises(ImpossibleValue, match=f"column {name} holds a string of {MAX_STRING_BYTES + 1} bytes"):
        decode(with_column(topic, name, pa.array(["x" * (MAX_STRING_BYTES + 1)])), topic)


def test_a_record_of_the_largest_size_is_read() -> None:
    noise = np.random.default_rng(1).bytes(DEAD_LETTERS.max_bytes - 10_000)
    row = first_row(DEAD_LETTERS) | {"value": noise}
    message = encode(DEAD_LETTERS, DEAD_LETTERS.from_rows([row]), job=JOB)
    assert decode(message, DEAD_LETTERS).column("value").to_pylist() == [noise]
