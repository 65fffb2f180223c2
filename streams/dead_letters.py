"""What happens to a bad message: it goes to dead_letters, whole and with the reason, and the stream goes on.

The one path for every processor under both runners: a ``MessageError`` becomes a record of dead_letters,
delivered before the offsets are committed. Too many in a row raise ``TooMuchPoison``: then the fault is not the
messages', and going on would empty a topic into dead_letters. How many there were in a row is saved beside the states
(checkpoints.py), or a worker that is started again and again would do so bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from schemas import catalogue
from schemas.errors import MessageError, MessageTooLarge, TooMuchPoison
from schemas.message import Message, decode, encode
from schemas.processor import SavedState

MOST_IN_A_ROW = 50
"""Bad messages, however many restarts and commits lie between them."""

_FORMAT = "bad_in_a_row/1"

_NO_JOB = "unknown"
_MOST_CHARACTERS = 4000
_LEFT_OUT = "exceed what dead_letters carries and are left out)"


class DeadLetters:
    """Turns the bad messages of one processor instance into records of dead_letters.

    ``count`` is how many there were, ``in_a_row`` how many since the last good one, those included that an instance
    before this one has ``saved``. Raises ``MessageError`` where these cannot be read.
    """

    def __init__(self, processor: str, *, most_in_a_row: int = MOST_IN_A_ROW, saved: SavedState | None = None) -> None:
        self._processor = processor
        self._most_in_a_row = most_in_a_row
        self.count = 0
        self.in_a_row = 0 if saved is None else saved.read(_FORMAT, _number)
        self._counted = {} if saved is None else dict(saved.offsets)
        self._begun: set[str] = set()
        self._saved = self._state({})

    def meet(self, message: Message) -> None:
        """Note which message comes next, before it is processed.

        An input that begins behind what was counted in was passed by: who did so has seen to what was bad in it.
        """
        if message.topic not in self._begun:
            self._begun.add(message.topic)
            if message.offset > self._counted.get(message.topic, message.offset):
                self.in_a_row = 0

    def good(self, message: Message) -> None:
        """Note that a message was processed."""
        if self._is_new(message):
            self.in_a_row = 0

    def bury(self, message: Message, error: MessageError) -> Message:
        """The record of dead_letters for a message; one that comes again after a restart is counted no second time.

        Raises ``TooMuchPoison`` where it is one bad message in a row too many.
        """
        self.count += 1
        self.in_a_row += self._is_new(message)
        if self.in_a_row >= self._most_in_a_row:
            raise TooMuchPoison(
                f"{self._processor}: {self.in_a_row} bad messages in a row, the last at {message.topic} partition "
                f"{message.partition} offset {message.offset}: {type(error).__name__}: {error}. It is not "
                "committed: mend the producer, or this processor, and start it again"
            ) from error
        return dead_letter(message, error, self._processor)

    def changed(self, following: Mapping[str, int]) -> SavedState | None:
        """How many there were in a row before the offsets that follow, by topic; None where that is saved already.

        While there are none it is not saved anew with every offset.
        """
        state = self._state(following)
        if state == self._saved or (not self.in_a_row and state.state == self._saved.state):
            return None
        self._saved = state
        return state

    def _state(self, following: Mapping[str, int]) -> SavedState:
        offsets = dict(self._counted)
        for topic, offset in following.items():
            offsets[topic] = max(offset, offsets.get(topic, 0))
        return SavedState(offsets, _FORMAT, str(self.in_a_row).encode())

    def _is_new(self, message: Message) -> bool:
        return message.offset >= self._counted.get(message.topic, message.offset)


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


def _number(state: bytes) -> int:
    number = int(state)
    if number < 0:
        raise ValueError(f"{number} bad messages in a row")
    return number


def _clip(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."


@cache
def _code_version() -> str:
    return version("offbeat")
