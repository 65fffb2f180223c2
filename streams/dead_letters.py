"""What happens to a bad message: it goes to dead_letters, whole and with the reason, and the stream goes on.

The one path for every processor under both runners: a ``MessageError`` becomes a record of dead_letters,
delivered before the offsets are committed. Too many in a row raise ``TooMuchPoison``: then the fault is not the
messages', and going on would empty a topic into dead_letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from schemas import catalogue
from schemas.errors import MessageError, MessageTooLarge, TooMuchPoison
from schemas.message import Message, decode, encode

MOST_IN_A_ROW = 50
"""Below the batch of a worker, so that a restarted worker stops at the same message again."""

_NO_JOB = "unknown"
_MOST_CHARACTERS = 4000
_LEFT_OUT = "exceed what dead_letters carries and are left out)"


class DeadLetters:
    """Turns the bad messages of one processor instance into records of dead_letters.

    ``count`` is how many there were, ``in_a_row`` how many since the last good one.
    """

    def __init__(self, processor: str, *, most_in_a_row: int = MOST_IN_A_ROW) -> None:
        self._processor = processor
        self._most_in_a_row = most_in_a_row
        self.count = 0
        self.in_a_row = 0

    def good(self) -> None:
        """Note that a message was processed."""
        self.in_a_row = 0

    def bury(self, message: Message, error: MessageError) -> Message:
        """The record of dead_letters for a message.

        Raises ``TooMuchPoison`` where it is one bad message in a row too many.
        """
        self.count += 1
        self.in_a_row += 1
        if self.in_a_row >= self._most_in_a_row:
            raise TooMuchPoison(
                f"{self._processor}: {self.in_a_row} bad messages in a row, the last at {message.topic} partition "
                f"{message.partition} offset {message.offset}: {type(error).__name__}: {error}. Nothing of them is "
                "committed: mend the producer, or this processor, and start it again"
            ) from error
        return dead_letter(message, error, self._processor)


def dead_letter(message: Message, error: MessageError, processor: str) -> Message:
    """The record of dead_letters that keeps ``message`` and why ``processor`` refused it."""
    row = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "key": _clip(message.key),
        "headers": [(name, _clip(value)) for name, value in message.headers.items()],
        "value": message.value,
        "schema": _clip(message.headers["schema"]) if "schema" in message.headers else None,
        "processor": processor,
        "error": type(error).__name__,
        "reason": _clip(str(error)),
        "code_version": _code_version(),
        "at_ns": max(message.timestamp_ns, 0),
    }
    try:
        return _record(row, message)
    except MessageTooLarge:
        reason = f"{row['reason']} (its {len(message.value or b'')} bytes {_LEFT_OUT}"
        return _record({**row, "value": b"", "reason": reason}, message)


def revived(letters: Message) -> Iterator[Message]:
    """The original messages of a record of dead_letters, ready to be sent again.

    Raises ``MessageError`` where the record is not one of dead_letters.
    """
    for row in decode(letters, catalogue.DEAD_LETTERS).to_pylist():
        yield message_of(row)


def message_of(row: Mapping[str, Any]) -> Message:
    """The message that a row of dead_letters keeps."""
    return Message(
        topic=row["topic"],
        key=row["key"] or "",
        value=row["value"],
        headers=dict(row["headers"]),
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ns=row["at_ns"],
    )


def is_left_out(row: Mapping[str, Any]) -> bool:
    """Whether a row of dead_letters lacks the message's bytes, which were too many."""
    return row["value"] == b"" and str(row["reason"]).endswith(_LEFT_OUT)


def _record(row: dict[str, object], message: Message) -> Message:
    batch = catalogue.DEAD_LETTERS.from_rows([row])
    job = _clip(message.job) or _NO_JOB
    return encode(catalogue.DEAD_LETTERS, batch, job=job, key=message.topic, watermark_ns=max(message.timestamp_ns, 0))


def _clip(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."


@cache
def _code_version() -> str:
    return version("offbeat")
