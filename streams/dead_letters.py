"""What happens to a bad message: it goes to dead_letters, whole and with the reason, and the stream goes on.

The one path for every processor under both runners: a ``MessageError``, or a failure of the processor's own
(``FAILURES``), becomes a record of dead_letters, delivered before the offsets are committed. Too many in a row of one
input raise ``TooMuchPoison``, however good the processor's other inputs are: then the fault is not the messages', and
going on would empty a topic into dead_letters. How many there were in a row is saved beside the states
(checkpoints.py), or a worker that is started again and again would do so bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Self

from schemas import catalogue
from schemas.errors import MessageError, MessageTooLarge, TooMuchPoison
from schemas.message import Message, encode
from schemas.processor import SavedState

FAILURES = (ValueError, ArithmeticError, LookupError)
"""What a processor raises where telemetry that no check foresaw is too much for it. It must not stop the other jobs; it
would be met again at each restart.
"""

MOST_IN_A_ROW = 50
"""Bad messages of one input, however many restarts, commits and messages of other inputs lie between them."""

_FORMAT = "bad_in_a_row/1"

_NO_JOB = "unknown"
_MOST_CHARACTERS = 4000
_LEFT_OUT = "exceed what dead_letters carries and are left out)"


@dataclass(slots=True)
class _Input:
    """How many messages of a topic were bad ``in_a_row``, those before the offset ``counted_in`` included.

    ``saved`` is what of both was saved last.
    """

    in_a_row: int
    counted_in: int
    saved: tuple[int, int]
    begun: bool = False

    @classmethod
    def of(cls, topic: str, saved: SavedState | None) -> Self:
        in_a_row = 0 if saved is None else saved.read(_FORMAT, _number)
        counted_in = 0 if saved is None else saved.offsets.get(topic, 0)
        return cls(in_a_row, counted_in, (in_a_row, counted_in))


class DeadLetters:
    """Turns the bad messages of one processor instance into records of dead_letters.

    ``count`` is how many there were. How many in a row is counted for each input, by topic, those included that an
    instance before this one has ``saved``. Raises ``MessageError`` where these cannot be read.
    """

    def __init__(
        self, processor: str, *, most_in_a_row: int = MOST_IN_A_ROW, saved: Mapping[str, SavedState] | None = None
    ) -> None:
        self._processor = processor
        self._most_in_a_row = most_in_a_row
        self.count = 0
        self._inputs = {topic: _Input.of(topic, state) for topic, state in (saved or {}).items()}

    def meet(self, message: Message) -> None:
        """Note which message comes next, before it is processed.

        An input that begins behind what was counted in was passed by: who did so has seen to what was bad in it.
        """
        met = self._input(message)
        if not met.begun and message.offset > met.counted_in:
            met.in_a_row = 0
        met.begun = True

    def good(self, message: Message) -> None:
        """Note that a message was processed."""
        met = self._input(message)
        if message.offset >= met.counted_in:
            met.in_a_row = 0

    def bury(self, message: Message, error: MessageError) -> Message:
        """The record of dead_letters for a message; one that comes again after a restart is counted no second time.

        Raises ``TooMuchPoison`` where it is one bad message of its input in a row too many.
        """
        met = self._input(message)
        self.count += 1
        met.in_a_row += message.offset >= met.counted_in
        if met.in_a_row >= self._most_in_a_row:
            raise TooMuchPoison(
                f"{self._processor}: {met.in_a_row} bad messages in a row, the last at {message.topic} partition "
                f"{message.partition} offset {message.offset}: {type(error).__name__}: {error}. It is not "
                "committed, so that a start comes to it again: mend this processor, or the producer, and pass by what "
                "it told with --reset-offsets (docs/operations.md, Too many bad messages in a row)"
            ) from error
        return dead_letter(message, error, self._processor)

    def changed(self, following: Mapping[str, int]) -> dict[str, SavedState]:
        """How many there were in a row before the offsets that follow, by topic, as far as it is not saved already.

        While there are none it is not saved anew with every offset.
        """
        states = {}
        for topic, met in self._inputs.items():
            now = met.in_a_row, max(following.get(topic, 0), met.counted_in)
            if now != met.saved and (met.in_a_row or met.saved[0]):
                met.saved = now
                states[topic] = SavedState({topic: now[1]}, _FORMAT, str(now[0]).encode())
        return states

    def _input(self, message: Message) -> _Input:
        if message.topic not in self._inputs:
            self._inputs[message.topic] = _Input.of(message.topic, None)
        return self._inputs[message.topic]


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
