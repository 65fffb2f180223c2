"""Messages as they lie in files of frames."""

from __future__ import annotations

import json

from schemas.message import Message


def frame_of(message: Message) -> bytes:
    """The frame of a message, a tombstone as well."""
    about = {
        "topic": message.topic,
        "key": message.key,
        "headers": dict(message.headers),
        "timestamp_ns": message.timestamp_ns,
        "tombstone": message.value is None,
    }
    return json.dumps(about).encode() + b"\n" + (message.value or b"")


def message_of(payload: bytes) -> Message:
    """The message of a frame; raises ``ValueError`` where it holds none."""
    line, _, value = payload.partition(b"\n")
    try:
        about = json.loads(line)
        tombstone = about.pop("tombstone")
        message = Message(value=None if tombstone else value, **about)
        texts = [message.topic, message.key, *message.headers, *message.headers.values()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no message of this version: {type(error).__name__}: {str(error)[:200]}") from error
    if not all(type(text) is str for text in texts) or type(message.timestamp_ns) is not int:
        raise ValueError("no message of this version: a field of another type")
    return message
