"""Columns by name: what a sender of another version, or in another language, may do, and what it may not."""

from typing import Any

import pyarrow as pa
import pytest

from schemas.catalogue import COMM_OPS, FINDINGS, ITERATION_SUMMARIES, JOBS, TOPICS
from schemas.errors import ImpossibleValue, MessageError, MessageTooLarge, UndecodableMessage, WrongSchema
from schemas.message import Message, decode
from schemas.topic import Topic
from tests.schemas.samples import JOB, batch_of, first_row, message_of

TOPIC = pytest.mark.parametrize("topic", TOPICS.values(), ids=lambda topic: topic.name)
WRONG = [
    pa.array([{"x": 1}]),
    pa.array([[{"y": "z"}]]),
    pa.array([0], type=pa.timestamp("ns")),
    pa.array([0], type=pa.duration("ns")),
    pa.array(["0"], type=pa.string_view()),
    pa.array([[0]], type=pa.list_(pa.int32(), 1)),
    pa.array([[0]], type=pa.list_view(pa.int32())),
    pa.array([[None]], type=pa.list_(pa.null())),
    pa.array([["0"]], type=pa.list_(pa.string())),
    pa.array([[0.5]], type=pa.list_(pa.float64())),
    pa.array([0]).dictionary_encode(),
    pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([0])),
    pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([0])]),
]


def decoded(topic: Topic, *batches: pa.RecordBatch, **headers: str) -> pa.RecordBatch:
    """What becomes of batches on the way."""
    return decode(message_of(topic, batches, headers), topic)


def with_column(topic: Topic, name: str, array: pa.Array) -> pa.RecordBatch:
    """The topic's first good row, with one column replaced."""
    columns = {column: batch_of(topic, {column: value}).column(0) for column, value in first_row(topic).items()}
    return pa.record_batch(columns | {name: array})


@TOPIC
def test_an_absent_column_is_null_where_it_may_be(topic: Topic) -> None:
    for column in topic.columns:
        row = first_row(topic)
        del row[column.name]
        if column.nullable:
            assert decoded(topic, batch_of(topic, row)).to_pylist() == [row | {column.name: None}]
        else:
            with pytest.raises(WrongSchema, match=f"column {column.name} is missing"):
                decoded(topic, batch_of(topic, row))


@TOPIC
@pytest.mark.parametrize("untyped", [False, True], ids=["typed", "untyped"])
def test_a_null_passes_where_it_may(topic: Topic, untyped: bool) -> None:
    for column in topic.columns:
        row = first_row(topic) | {column.name: None}
        batch = batch_of(topic, row, {column.name: pa.null()} if untyped else None)
        if column.nullable:
            assert decoded(topic, batch).to_pylist() == [row]
        else:
            with pytest.raises(WrongSchema, match=f"column {column.name} may not be null"):
                decoded(topic, batch)


@TOPIC
@pytest.mark.parametrize("wrong", WRONG, ids=lambda array: str(array.type))
def test_a_column_of_another_type_is_refused(topic: Topic, wrong: pa.Array) -> None:
    for column in topic.columns:
        if column.type != wrong.type:
            with pytest.raises(WrongSchema, match=f"column {column.name}"):
                decoded(topic, with_column(topic, column.name, wrong))


@TOPIC
def test_an_unknown_column_is_ignored(topic: Topic) -> None:
    unknown = {"from_the_future": pa.array([[{"x": None}]]), "": pa.array([b"x"])}
    batch = batch_of(topic, first_row(topic))
    wider = pa.record_batch(dict(zip(batch.schema.names, batch.columns, strict=True)) | unknown)
    assert decoded(topic, wider).to_pylist() == [first_row(topic)]


@TOPIC
def test_the_order_of_columns_is_free(topic: Topic) -> None:
    backwards = dict(reversed(list(first_row(topic).items())))
    result = decoded(topic, batch_of(topic, backwards))
    assert result.schema == topic.schema
    assert result.to_pylist() == [first_row(topic)]


@TOPIC
def test_a_column_that_comes_twice_is_refused(topic: Topic) -> None:
    batch = batch_of(topic, first_row(topic))
    twice = pa.RecordBatch.from_arrays(
        [*batch.columns, batch.column(0)], names=[*batch.schema.names, batch.schema.names[0]]
    )
    with pytest.raises(WrongSchema, match=f"column {topic.columns[0].name} appears twice"):
        decoded(topic, twice)


@TOPIC
def test_two_batches_in_a_record_are_refused(topic: Topic) -> None:
    batch = batch_of(topic, first_row(topic))
    with pytest.raises(UndecodableMessage, match="more than one record batch"):
        decoded(topic, batch, batch)


@TOPIC
def test_a_record_without_a_batch_is_refused(topic: Topic) -> None:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, topic.schema).close()
    headers = {"schema": topic.schema_id, "job": JOB}
    with pytest.raises(UndecodableMessage):
        decode(Message(topic.name, JOB, sink.getvalue().to_pybytes(), headers), topic)


@TOPIC
@pytest.mark.parametrize("value", [None, b"", b"\0", b"{}", b"\xff" * 64, b"ARROW1\0\0" * 8])
def test_what_is_no_stream_is_refused(topic: Topic, value: bytes | None) -> None:
    with pytest.raises(UndecodableMessage):
        decode(Message(topic.name, JOB, value, {"schema": topic.schema_id, "job": JOB}), topic)


@TOPIC
@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "is missing"),
        ("", "is missing"),
        ("other/1", "expected"),
        ("{name}", "expected"),
        ("{name}/x", "expected"),
    ],
)
def test_the_header_schema_must_name_the_topic(topic: Topic, schema: str | None, says: str) -> None:
    message = message_of(topic, [batch_of(topic, first_row(topic))])
    headers = {"job": JOB}
    if schema is not None:
        headers["schema"] = schema.format(name=topic.schema_id.partition("/")[0])
    with pytest.raises(WrongSchema, match=f"header schema.*{says}"):
        decode(Message(topic.name, JOB, message.value, headers), topic)


@TOPIC
def test_another_version_of_the_schema_is_read_by_its_columns(topic: Topic) -> None:
    newer = {"schema": f"{topic.schema_id.partition('/')[0]}/{topic.version + 1}"}
    assert decoded(topic, batch_of(topic, first_row(topic)), **newer).num_rows == 1


@pytest.mark.parametrize(
    ("name", "array", "value"),
    [
        ("rank", pa.array([3], pa.uint8()), 3),
        ("rank", pa.array([3], pa.int64()), 3),
        ("bytes", pa.array([5], pa.uint64()), 5),
        ("op", pa.array(["send"]), "send"),
        ("op", pa.array(["send"], pa.large_string()), "send"),
        ("op", pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), ["send"]), "send"),
        (
            "op",
            pa.DictionaryArray.from_arrays(pa.array([1], pa.uint16()), pa.array(["recv", "send"], pa.large_string())),
            "send",
        ),
    ],
)
def test_a_type_that_carries_the_same_is_converted(name: str, array: pa.Array, value: Any) -> None:
    result = decoded(COMM_OPS, with_column(COMM_OPS, name, array))
    assert result.schema == COMM_OPS.schema
    assert result.column(name).to_pylist() == [value]


@pytest.mark.parametrize(
    ("topic", "name", "array", "value"),
    [
        (FINDINGS, "coverage", pa.array([1], pa.int32()), 1.0),
        (FINDINGS, "coverage", pa.array([0.5], pa.float32()), 0.5),
        (FINDINGS, "ranks", pa.array([[1, 2]], pa.large_list(pa.int64())), [1, 2]),
        (FINDINGS, "candidates", pa.array([[[1], [2]]], pa.large_list(pa.list_(pa.uint8()))), [[1], [2]]),
    ],
)
def test_numbers_and_lists_are_converted(topic: Topic, name: str, array: pa.Array, value: Any) -> None:
    assert decoded(topic, with_column(topic, name, array)).column(name).to_pylist() == [value]


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1])
def test_a_number_that_its_type_cannot_hold_is_refused(number: int) -> None:
    with pytest.raises(WrongSchema, match="column rank"):
        decoded(COMM_OPS, with_column(COMM_OPS, "rank", pa.array([number])))


def test_a_large_number_is_not_rounded() -> None:
    with pytest.raises(WrongSchema, match="column coverage"):
        decoded(FINDINGS, with_column(FINDINGS, "coverage", pa.array([2**53 + 1])))


def test_fields_of_structs_are_matched_by_name() -> None:
    """Another order, an unknown field, an absent one."""
    row = {"from_the_future": 1.5, "op": "send", "count": 4, "communicator": "0x1f"}
    result = decoded(ITERATION_SUMMARIES, with_column(ITERATION_SUMMARIES, "by_operator", pa.array([[row]])))
    assert result.schema == ITERATION_SUMMARIES.schema
    assert result.column("by_operator").to_pylist() == [
        [{"communicator": "0x1f", "op": "send", "count": 4, "duration_sum_ns": None, "duration_max_ns": None}]
    ]


def test_a_struct_without_a_required_field_is_refused() -> None:
    with pytest.raises(WrongSchema, match="column by_operator is"):
        decoded(ITERATION_SUMMARIES, with_column(ITERATION_SUMMARIES, "by_operator", pa.array([[{"op": "send"}]])))


def test_a_struct_with_a_field_twice_is_refused() -> None:
    field = pa.array([1], pa.int32())
    twice = pa.StructArray.from_arrays([field, field, field], names=["rank", "rank", "position"])
    with pytest.raises(WrongSchema, match="column root_operator is"):
        decoded(FINDINGS, with_column(FINDINGS, "root_operator", twice))


def test_a_null_below_a_null_is_none() -> None:
    """A required field of a struct that is null itself, as Arrow's writers leave it."""
    fields = [pa.field("device", pa.string(), nullable=False), pa.field("kind", pa.string(), nullable=False)]
    inner = pa.StructArray.from_arrays([pa.array([None], pa.string())] * 2, fields=fields, mask=pa.array([True]))
    hidden = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), inner)
    with pytest.raises(ImpossibleValue, match="column devices holds a list with a null"):
        decoded(FINDINGS, with_column(FINDINGS, "devices", hidden))
    cut_off = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), inner)
    assert decoded(FINDINGS, with_column(FINDINGS, "devices", cut_off)).column("devices").to_pylist() == [[]]


def test_a_field_declared_required_that_holds_a_null_is_refused() -> None:
    fields = [pa.field("device", pa.string(), nullable=False), pa.field("kind", pa.string(), nullable=False)]
    fields.append(pa.field("downside_nics", pa.int32()))
    liar = pa.StructArray.from_arrays(
        [pa.array([None], pa.string()), pa.array(["gpu"]), pa.array([0], pa.int32())], fields=fields
    )
    assert liar.type == FINDINGS.schema.field("devices").type.value_type
    with pytest.raises(WrongSchema, match="field device may not be null"):
        decoded(
            FINDINGS, with_column(FINDINGS, "devices", pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), liar))
        )


def test_equal_ids_have_equal_codes_whatever_the_sender_did() -> None:
    """A dictionary may repeat a value, and hold null as one."""
    codes, values = pa.array([0, 1, 2, 3, None], pa.int32()), pa.array(["ring", None, "ring", "tree"])
    rows = [first_row(COMM_OPS)] * 5
    batch = COMM_OPS.from_rows(rows)
    batch = batch.set_column(
        batch.schema.get_field_index("algorithm"), "algorithm", pa.DictionaryArray.from_arrays(codes, values)
    )
    column = decoded(COMM_OPS, batch).column("algorithm")
    assert column.to_pylist() == ["ring", None, "ring", "tree", None]
    assert column.null_count == 2
    assert column.dictionary.to_pylist() == ["ring", "tree"]


def test_a_null_in_the_dictionary_of_a_required_column_is_refused() -> None:
    with pytest.raises(WrongSchema, match="column op may not be null"):
        decoded(
            COMM_OPS,
            with_column(
                COMM_OPS, "op", pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array([None], pa.string()))
            ),
        )


def test_a_code_outside_its_dictionary_is_refused() -> None:
    outside = pa.DictionaryArray.from_arrays(pa.array([7], pa.int32()), ["send"], safe=False)
    with pytest.raises(UndecodableMessage, match=r"telemetry\.comm_ops: ArrowInvalid"):
        decoded(COMM_OPS, with_column(COMM_OPS, "op", outside))


def test_text_that_is_not_utf8_is_refused() -> None:
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    with pytest.raises(UndecodableMessage, match="UTF8"):
        decoded(JOBS, with_column(JOBS, "job", text))


def empty_lists(start: int) -> pa.Array:
    """A list that holds no lists, which start anywhere."""
    offsets = pa.py_buffer(start.to_bytes(4, "little"))
    none = pa.Array.from_buffers(pa.list_(pa.int32()), 0, [None, offsets], children=[pa.array([], pa.int32())])
    return pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), none)


@pytest.mark.parametrize(
    "candidates",
    [empty_lists(0), empty_lists(1 << 17), pa.array([[]], pa.list_(pa.list_(pa.int64())))],
    ids=["as they should be", "starting beyond their elements", "of another type"],
)
def test_empty_lists_can_be_flattened_however_they_came(candidates: pa.Array) -> None:
    """Arrow checks no offsets of an empty list, its cast makes none, and its flatten follows them out of memory."""
    inner = decoded(FINDINGS, with_column(FINDINGS, "candidates", candidates)).column("candidates").flatten()
    assert inner.flatten().to_pylist() == []
    assert inner.offsets.to_pylist() == [0]


@pytest.mark.parametrize("error", [MessageTooLarge, UndecodableMessage, WrongSchema, ImpossibleValue])
def test_every_refusal_is_poison(error: type[Exception]) -> None:
    assert issubclass(error, MessageError)
