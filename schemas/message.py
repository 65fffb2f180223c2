"""The envelope: one Kafka record = one Arrow IPC stream holding one zstd-compressed record batch.

``encode`` builds a message, ``decode`` checks one. Columns are matched by name: an absent nullable column
is null, an unknown column is ignored, anything else raises a ``MessageError`` and is dead-lettered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from schemas.conform import conform
from schemas.errors import MessageTooLarge, UndecodableMessage, WrongSchema
from schemas.ipc_bounds import decoded_bytes
from schemas.topic import Topic

# Without threads: at every size they cost more than they save, and workers share their machine.
_WRITE = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)
_REQUIRED_HEADERS = ("schema", "job")

TopicKey = tuple[str, str]
"""A topic's name and a key: such messages go to one partition, so that they come in the order they were sent in."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record of a topic, as it is on the bus.

    ``timestamp_ns`` is the record's time: what the broker stamped, in process the watermark. ``taken_ns`` is when
    a worker took it; 0 in process.
    ``value`` is None for a tombstone. Headers: schema, job, producer (with a start id), seq (per producer,
    topic and key), produced_ns, watermark_ns, and on answers request_id, outcome, part and parts.
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

    Raises ``MessageTooLarge`` for what no reader would take: the caller splits before it encodes.
    """
    _check_rows(batch.num_rows, topic)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, topic.schema, options=_WRITE) as writer:
        writer.write_batch(batch)
    value = sink.getvalue().to_pybytes()
    if len(value) > topic.max_bytes:
        raise MessageTooLarge(
            f"{topic.name}: a record of {len(value)} bytes exceeds {topic.max_bytes}; split it into parts"
        )
    _check_decoded(decoded_bytes(value), topic)
    own = {"schema": topic.schema_id, "job": job, "watermark_ns": str(watermark_ns)}
    return Message(
        topic.name, job if key is None else key, value, {**own, **(headers or {})}, timestamp_ns=watermark_ns
    )


def decode(message: Message, topic: Topic) -> pa.RecordBatch:
    """Check a message against its topic and return its batch, with exactly ``topic.schema``.

    Raises ``MessageTooLarge``, ``UndecodableMessage``, ``WrongSchema`` or ``ImpossibleValue``.
    """
    _check_headers(message, topic)
    try:
        batch = conform(_read(message, topic), topic)
    except (pa.ArrowException, ValueError, StopIteration, OSError, KeyError) as error:
        raise UndecodableMessage(f"{topic.name}: {type(error).__name__}: {str(error)[:300]}") from error
    for column in topic.columns:
        column.check(batch.column(column.name), topic.name)
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
    _check_decoded(decoded_bytes(message.value), topic)
    with pa.ipc.open_stream(message.value, options=_READ) as reader:
        batch = reader.read_next_batch()
        _check_rows(batch.num_rows, topic)
        batch.validate()
        if _another(reader):
            raise UndecodableMessage(f"{topic.name}: more than one record batch in a record")
    return batch


def _check_decoded(size: int, topic: Topic) -> None:
    if size > topic.max_decoded_bytes:
        raise MessageTooLarge(f"{topic.name}: {size} bytes decompressed, at most {topic.max_decoded_bytes} are read")


def _check_rows(rows: int, topic: Topic) -> None:
    if rows > topic.max_rows:
        raise MessageTooLarge(f"{topic.name}: {rows} rows, at most {topic.max_rows} are read")


def _another(reader: pa.RecordBatchStreamReader) -> bool:
    try:
        reader.read_next_batch()
    except StopIteration:
        return False
    return True
