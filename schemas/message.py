"""The envelope: one Kafka record = one Arrow IPC stream holding one zstd-compressed record batch.

``encode`` builds a message, ``decode`` checks one. Columns are matched by name: an absent nullable column
is null, an unknown column is ignored, anything else raises a ``MessageError`` and is dead-lettered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import ImpossibleValue, MessageTooLarge, UndecodableMessage, WrongSchema
from schemas.ipc_bounds import decoded_bytes
from schemas.topic import MAX_STRING_BYTES, Topic

_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")
_REQUIRED_HEADERS = ("schema", "job")


@dataclass(frozen=True, slots=True)
class Message:
    """A record of a topic, as it is on the bus.

    ``timestamp_ns`` is the record's time: what the broker stamped, in process the watermark. ``taken_ns`` is when
    a worker took it; 0 in process.
    ``value`` is None for a tombstone. Headers: schema, job, producer (with a start id), seq (per producer
    and topic), produced_ns, watermark_ns, and on answers request_id, outcome, part and parts.
    """

    topic: str
    key: str
    value: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)
    partition: int = 0
    offset: int = -1
    timestamp_ns: int = 0
    taken_ns: int = 0

    @property
    def now_ns(self) -> int:
        """The time that deadlines count from, and nothing else does.

        A record that is read again after a restart, or late, is old; what a processor asks because of it is not.
        """
        return max(self.timestamp_ns, self.taken_ns)

    @property
    def job(self) -> str:
        """The job that the record belongs to; empty where the header is missing."""
        return self.headers.get("job", "")

    @property
    def watermark_ns(self) -> int:
        """Up to when its producer has told everything; the record's own time where the header is missing."""
        try:
            return int(self.headers.get("watermark_ns", self.timestamp_ns))
        except ValueError as error:
            raise WrongSchema(f"{self.topic}: header watermark_ns is not a whole number") from error

    def stamped(self, producer: str, seq: int, produced_ns: int) -> Message:
        """The same message under its sender's name and number."""
        own = {"producer": producer, "seq": str(seq), "produced_ns": str(produced_ns)}
        return replace(self, headers={**self.headers, **own})


def encode(
    topic: Topic,
    batch: pa.RecordBatch,
    *,
    job: str,
    key: str | None = None,
    watermark_ns: int = 0,
    headers: Mapping[str, str] | None = None,
) -> Message:
    """Encode a batch (of ``topic.schema``) as a message; ``key`` is the job where it is not given.

    Raises ``MessageTooLarge`` beyond ``topic.max_bytes``: the caller splits before it encodes.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, topic.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    value = sink.getvalue().to_pybytes()
    if len(value) > topic.max_bytes:
        raise MessageTooLarge(
            f"{topic.name}: a record of {len(value)} bytes exceeds {topic.max_bytes}; split it into parts"
        )
    own = {"schema": topic.schema_id, "job": job, "watermark_ns": str(watermark_ns)}
    return Message(
        topic.name, job if key is None else key, value, {**own, **(headers or {})}, timestamp_ns=watermark_ns
    )


def decode(message: Message, topic: Topic) -> pa.RecordBatch:
    """Check a message against its topic and return its batch, in the topic's columns and types.

    Raises ``MessageTooLarge``, ``UndecodableMessage``, ``WrongSchema`` or ``ImpossibleValue``.
    """
    _check_headers(message, topic)
    batch = _read(message, topic)
    batch = _conform(batch, topic)
    for column in topic.columns:
        values = batch.column(column.name)
        if not column.nullable and values.null_count:
            raise WrongSchema(f"{topic.name}: column {column.name} may not be null")
        column.check(values, topic.name)
    _check_strings(batch, topic)
    if topic.check is not None:
        topic.check(batch)
    return batch


def _check_headers(message: Message, topic: Topic) -> None:
    for header in _REQUIRED_HEADERS:
        if not message.headers.get(header):
            raise WrongSchema(f"{topic.name}: header {header} is missing")
    name, _, version = message.headers["schema"].partition("/")
    if name != topic.schema_id.partition("/")[0] or not version.isdecimal():
        raise WrongSchema(f"{topic.name}: header schema is {message.headers['schema']!r}, expected {topic.schema_id}")


def _read(message: Message, topic: Topic) -> pa.RecordBatch:
    if message.value is None:
        raise UndecodableMessage(f"{topic.name}: a tombstone where none belongs")
    if len(message.value) > topic.max_bytes:
        raise MessageTooLarge(f"{topic.name}: {len(message.value)} bytes, at most {topic.max_bytes} are read")
    try:
        size = decoded_bytes(message.value)
        if size > topic.max_decoded_bytes:
            raise MessageTooLarge(
                f"{topic.name}: {size} bytes decompressed, at most {topic.max_decoded_bytes} are read"
            )
        with pa.ipc.open_stream(message.value) as reader:
            batch = reader.read_next_batch()
            batch.validate(full=True)
            if _another(reader):
                raise UndecodableMessage(f"{topic.name}: more than one record batch in a record")
    except (pa.ArrowException, ValueError, StopIteration, OSError, KeyError) as error:
        raise UndecodableMessage(f"{topic.name}: {type(error).__name__}: {str(error)[:300]}") from error
    if batch.num_rows > topic.max_rows:
        raise MessageTooLarge(f"{topic.name}: {batch.num_rows} rows, at most {topic.max_rows} are read")
    return batch


def _another(reader: pa.RecordBatchStreamReader) -> bool:
    try:
        reader.read_next_batch()
    except StopIteration:
        return False
    return True


def _conform(batch: pa.RecordBatch, topic: Topic) -> pa.RecordBatch:
    arrays = []
    names = batch.schema.names
    for column in topic.columns:
        if names.count(column.name) > 1:
            raise WrongSchema(f"{topic.name}: column {column.name} appears twice")
        if column.name not in names:
            if not column.nullable:
                raise WrongSchema(f"{topic.name}: column {column.name} is missing")
            arrays.append(pa.nulls(batch.num_rows, column.type))
            continue
        arrays.append(_cast(batch.column(column.name), column.type, topic, column.name))
    return pa.RecordBatch.from_arrays(arrays, schema=_nullable(topic.schema))


def _cast(values: pa.Array, target: pa.DataType, topic: Topic, name: str) -> pa.Array:
    if values.type == target:
        return values
    if not _convertible(values.type, target):
        raise WrongSchema(f"{topic.name}: column {name} is {values.type}, expected {target}")
    try:
        if pa.types.is_dictionary(target) and not pa.types.is_dictionary(values.type):
            return values.cast(target.value_type).dictionary_encode().cast(target)
        return values.cast(target)
    except (pa.ArrowException, ValueError) as error:
        raise WrongSchema(f"{topic.name}: column {name}: {str(error)[:200]}") from error


def _convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a sender's type carries the same information; a dictionary is never expanded, it could be huge."""
    if pa.types.is_null(source):
        return True
    if pa.types.is_dictionary(target):
        return bool(pa.types.is_dictionary(source) or _is_text(source))
    if pa.types.is_integer(target):
        return bool(pa.types.is_integer(source))
    if pa.types.is_floating(target):
        return bool(pa.types.is_floating(source) or pa.types.is_integer(source))
    if pa.types.is_nested(target):
        return bool(pa.types.is_nested(source))
    return _is_text(target) and _is_text(source)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema])


def _check_strings(batch: pa.RecordBatch, topic: Topic) -> None:
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        texts = values.dictionary if pa.types.is_dictionary(values.type) else values
        if pa.types.is_string(texts.type) and len(texts):
            longest = pc.max(pc.binary_length(texts)).as_py() or 0
            if longest > MAX_STRING_BYTES:
                raise ImpossibleValue(f"{topic.name}: column {name} holds a string of {longest} bytes")
