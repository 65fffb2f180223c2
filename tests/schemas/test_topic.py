"""Building batches, the bounds of columns, and what the catalogue holds."""

import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.catalogue import COMM_OPS, ITERATIONS, TOPICS
from schemas.errors import ImpossibleValue
from schemas.topic import ID, Column, Key, Topic

REQUIRED: dict[str, list[Any]] = {"iteration": [1], "pivot": [0], "start_ns": [5], "delta": [1.1]}


def test_a_batch_is_built_from_lists_arrays_and_columns() -> None:
    rows = 3
    batch = COMM_OPS.batch(
        {
            "rank": np.arange(rows, dtype=np.int32),
            "communicator": ["a", "b", "a"],
            "seq": pa.array([1, None, 3]),
            "op": pa.chunked_array([["send"], ["recv", "send"]]),
            "call_ns": range(rows),
        }
    )
    assert batch.schema == COMM_OPS.schema
    assert batch.column("op").to_pylist() == ["send", "recv", "send"]
    assert batch.column("seq").to_pylist() == [1, None, 3]
    assert batch.column("end_ns").null_count == rows


def test_columns_of_another_topic_serve_as_they_are() -> None:
    codes = pa.array(["a", "b", "a"]).dictionary_encode()
    batch = COMM_OPS.batch({"rank": [0] * 3, "communicator": codes, "op": ["send"] * 3, "call_ns": [0] * 3})
    assert batch.column("communicator").equals(codes)


def test_rows_may_leave_out_what_may_be_null() -> None:
    batch = ITERATIONS.from_rows([{name: values[0] for name, values in REQUIRED.items()}])
    assert batch.schema == ITERATIONS.schema
    assert batch.column("duration_ns").to_pylist() == [None]


def test_no_rows_are_a_batch_as_well() -> None:
    assert COMM_OPS.from_rows([]).num_rows == 0


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (REQUIRED | {"durations": [1]}, "has no column 'durations'"),
        ({"iteration": [1]}, "needs column 'pivot'"),
        (REQUIRED | {"pivot": [None]}, "column 'pivot' may not be null"),
        (REQUIRED | {"pivot": ["zero"]}, "zero"),
        (REQUIRED | {"pivot": [0, 1]}, "length"),
        (REQUIRED | {"pivot": [2**40]}, "too large"),
    ],
)
def test_a_batch_that_cannot_be_built_is_a_programming_error(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ITERATIONS.batch(columns)


BOUNDED = Column("x", pa.float64(), "", minimum=0, maximum=1, nullable=True)


@pytest.mark.parametrize("values", [[], [None], [0.0, 1.0], [None, 0.5]])
def test_values_within_bounds_pass(values: list[float | None]) -> None:
    BOUNDED.check(pa.array(values, pa.float64()), "t")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (-0.1, "t: column x holds -0.1; the least possible value is 0"),
        (1.1, "t: column x holds 1.1; the greatest possible value is 1"),
        (math.nan, "t: column x holds a number that is not finite"),
        (math.inf, "t: column x holds a number that is not finite"),
        (-math.inf, "t: column x holds a number that is not finite"),
    ],
)
def test_a_value_out_of_bounds_is_refused_among_good_ones(value: float, says: str) -> None:
    with pytest.raises(ImpossibleValue, match=re.escape(says)):
        BOUNDED.check(pa.array([0.5, value, None, 0.7]), "t")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_within_structs_are_finite_as_well(number: float) -> None:
    kind = pa.list_(pa.struct([("a", pa.struct([("b", pa.list_(pa.float64()))]))]))
    column = Column("x", kind, "")
    column.check(pa.array([[{"a": {"b": [0.5, 1.0]}}, {"a": None}]], kind), "t")
    with pytest.raises(ImpossibleValue, match="t: column x holds a number that is not finite"):
        column.check(pa.array([[{"a": {"b": [0.5]}}], [{"a": {"b": [0.5, number]}}]], kind), "t")


@pytest.mark.parametrize("values", [[[[0], []], [], None], [None], []])
def test_lists_are_checked_by_their_elements(values: list[Any]) -> None:
    kind = pa.list_(pa.list_(pa.int32()))
    column = Column("x", kind, "", minimum=0, nullable=True)
    column.check(pa.array(values, kind), "t")
    with pytest.raises(ImpossibleValue, match="holds -1"):
        column.check(pa.array([*values, [[3], [-1]]], kind), "t")
    with pytest.raises(ImpossibleValue, match="a list with a null"):
        column.check(pa.array([*values, [None]], kind), "t")
    with pytest.raises(ImpossibleValue, match="a list with a null"):
        column.check(pa.array([*values, [[None]]], kind), "t")


@pytest.mark.parametrize("kind", [ID, pa.string()])
def test_choices_are_checked_in_ids_and_in_text(kind: pa.DataType) -> None:
    column = Column("x", kind, "", choices=("a", "b"), nullable=True)
    column.check(pa.array(["a", None, "b"], pa.string()).cast(kind), "t")
    with pytest.raises(ImpossibleValue, match="t: column x holds 'c'; known are a, b"):
        column.check(pa.array(["a", "d", "c"], pa.string()).cast(kind), "t")


TOPIC = pytest.mark.parametrize("topic", TOPICS.values(), ids=lambda topic: topic.name)


def test_names_schemas_and_hashes_of_topics_are_their_own() -> None:
    assert all(name == topic.name for name, topic in TOPICS.items())
    assert len({topic.schema_id for topic in TOPICS.values()}) == len(TOPICS)
    assert set(TOPICS.values()) == {TOPICS[name] for name in TOPICS}


@TOPIC
def test_columns_are_named_once_documented_and_carry_their_unit(topic: Topic) -> None:
    assert len({column.name for column in topic.columns}) == len(topic.columns)
    for column in topic.columns:
        assert column.doc.endswith("."), column.name
        if column.name.endswith("_ns"):
            assert column.type in {pa.int64(), pa.list_(pa.int64())}
            assert column.unit in {"ns", "ns since the epoch"}, column.name
        if "bytes" in column.name:
            assert column.unit == ("bytes/s" if column.name.endswith("_per_s") else "bytes"), column.name
        if column.choices:
            assert column.type in {ID, pa.string()}


@TOPIC
def test_topics_that_are_read_together_have_as_many_partitions(topic: Topic) -> None:
    if topic.key in {Key.JOB, Key.JOB_HOST}:
        assert topic.partitions == COMM_OPS.partitions


@TOPIC
def test_the_largest_record_decompressed_is_larger_than_the_largest_record(topic: Topic) -> None:
    assert 0 < topic.max_bytes <= topic.max_decoded_bytes
    assert topic.max_bytes <= 8 << 20  # what the brokers and the consumers are told to expect
