"""A Kafka record as a message: bytes of any kind become text that can be kept and shown."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.message import Message


def received(
    topic: str,
    partition: int,
    offset: int,
    *,
    key: bytes | str | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | str | None]] | None,
    timestamp_ns: int,
    taken_ns: int = 0,
) -> Message:
    """Build the message of a record; of headers of one name the last counts, those without a value do not."""
    texts = {name: _text(content) for name, content in headers or () if content is not None}
    return Message(topic, _text(key or b""), value, texts, partition, offset, timestamp_ns, taken_ns)


def _text(content: bytes | str) -> str:
    return content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")
