"""Good and bad records of each topic, as test data, and the means to build records that no sender of ours would."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas.catalogue import TOPICS
from schemas.message import Message
from schemas.topic import Topic

TESTDATA = Path(__file__).parent / "testdata"
JOB = "llama-70b-3"

_TYPES = {
    "float64": pa.float64(),
    "int64": pa.int64(),
    "string": pa.string(),
    "list<int32>": pa.list_(pa.int32()),
    "list<string>": pa.list_(pa.string()),
}


@dataclass(frozen=True, slots=True)
class Good:
    """A record that every version must read."""

    topic: Topic
    what: str
    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        return f"{self.topic.name}: {self.what}"


@dataclass(frozen=True, slots=True)
class Bad:
    """What is wrong with a record, and what must be said of it."""

    topic: Topic
    what: str
    message: Message
    error: str
    says: str

    def __str__(self) -> str:
        return f"{self.topic.name}: {self.what}"


def good_samples() -> list[Good]:
    """Every good record of the test data."""
    return [Good(topic, sample["what"], sample["rows"]) for topic, sample in _samples("good")]


def bad_samples() -> list[Bad]:
    """Every bad one: the topic's first good row, changed as the test data says."""
    return [
        Bad(topic, sample["what"], _changed(topic, sample), sample["error"], sample["message"])
        for topic, sample in _samples("bad")
    ]


def first_row(topic: Topic) -> dict[str, Any]:
    """The topic's first good row: everything known."""
    return next(sample.rows[0] for sample in good_samples() if sample.topic is topic)


def batch_of(topic: Topic, row: Mapping[str, Any], types: Mapping[str, pa.DataType] | None = None) -> pa.RecordBatch:
    """A batch of one row with just the columns given, of whatever types; nothing is checked."""
    kinds = {column.name: column.type for column in topic.columns} | dict(types or {})
    return pa.record_batch({name: _array([value], kinds[name]) for name, value in row.items()})


def message_of(
    topic: Topic,
    batches: Sequence[pa.RecordBatch],
    headers: Mapping[str, str] | None = None,
    compression: str | None = "zstd",
) -> Message:
    """A message that holds these batches, however wrong."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    own = {"schema": topic.schema_id, "job": JOB, **(headers or {})}
    return Message(topic.name, JOB, sink.getvalue().to_pybytes(), own)


def _samples(kind: str) -> list[tuple[Topic, dict[str, Any]]]:
    return [
        (topic, _read(sample))
        for name, topic in TOPICS.items()
        for sample in json.loads((TESTDATA / f"{name}.{kind}.json").read_text())
    ]


def _read(value: Any) -> Any:
    """JSON as Python holds the columns: bytes, numbers that JSON lacks, and pairs as map entries."""
    if isinstance(value, dict):
        return (
            base64.b64decode(value["base64"]) if set(value) == {"base64"} else {k: _read(v) for k, v in value.items()}
        )
    if isinstance(value, list):
        pairs = len(value) > 0 and all(
            isinstance(item, list) and [type(x) for x in item] == [str, str] for item in value
        )
        return [tuple(item) for item in value] if pairs else [_read(item) for item in value]
    return float(value) if value in {"NaN", "Infinity"} else value


def _changed(topic: Topic, sample: dict[str, Any]) -> Message:
    row = {**first_row(topic), **sample.get("set", {})}
    for name in sample.get("drop", []):
        del row[name]
    types = {name: _TYPES[kind] for name, kind in sample.get("types", {}).items()}
    message = message_of(topic, [batch_of(topic, row, types)])
    headers = {**message.headers, **sample.get("headers", {})}
    return Message(topic.name, JOB, message.value, {k: v for k, v in headers.items() if v is not None})


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    array = pa.array(values, type=_lenient(plain))
    return array.dictionary_encode() if pa.types.is_dictionary(kind) else array


def _lenient(kind: pa.DataType) -> pa.DataType:
    """The same type with every field nullable: a sender that knows no better."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _lenient(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_lenient(kind.value_type))
    return kind
