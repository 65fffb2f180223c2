"""Puts the parts of answers to requests for logs together (Holmes 4.3.3: what progressive fetching gets)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from schemas.log_answers import AnswerHeaders
from schemas.message import Message

MOST_BYTES = 1 << 30
"""What parts that wait for others may take, as they travelled: some gigabytes once they are decoded."""

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class WholeAnswer(Generic[Part]):
    """What all parts of an answer say, what is held of each in their order, and how many bytes travelled."""

    headers: AnswerHeaders
    parts: tuple[Part, ...]
    bytes: int


@dataclass
class AnswerParts(Generic[Part]):
    """Parts that wait for others of their answer, up to ``most_bytes``; beyond them the oldest answers are let go of.

    An answer to a request is given out once. What nobody asked for may be told again under the same headers.
    """

    most_bytes: int = MOST_BYTES
    _waiting: dict[_Whose, dict[int, tuple[Part, int]]] = field(default_factory=dict)
    _waiting_bytes: int = 0
    _given: set[_Whose] = field(default_factory=set)

    def __contains__(self, message: Message) -> bool:
        """Whether ``add`` would pass over a message. Raises ``WrongSchema``."""
        return self._has(*_whose(message))

    def add(self, message: Message, part: Part) -> WholeAnswer[Part] | None:
        """Take ``part``, which is what to hold of a message; give out the answer that it makes whole.

        A part that has come before is passed over. Raises ``WrongSchema`` where the message does not say which it is.
        """
        whose, number = _whose(message)
        if self._has(whose, number):
            return None
        size = len(message.value or b"")
        parts = self._waiting.setdefault(whose, {})
        parts[number] = (part, size)
        self._waiting_bytes += size
        if len(parts) == whose.answer.parts:
            if whose.answer.request_id:
                self._given.add(whose)
            return WholeAnswer(whose.answer, tuple(parts[n][0] for n in sorted(parts)), self._let_go(whose))
        while self._waiting_bytes > self.most_bytes:
            self._let_go(next(iter(self._waiting)))
        return None

    def _has(self, whose: _Whose, number: int) -> bool:
        return whose in self._given or number in self._waiting.get(whose, ())

    def _let_go(self, whose: _Whose) -> int:
        """Hold an answer's parts no longer; how many bytes they were."""
        size = sum(size for _, size in self._waiting.pop(whose).values())
        self._waiting_bytes -= size
        return size


class _Whose(NamedTuple):
    """Which answer a part belongs to: an agent that starts or is asked again may cut the same rows differently."""

    topic: str
    producer: str
    watermark: str
    answer: AnswerHeaders


def _whose(message: Message) -> tuple[_Whose, int]:
    """Which answer a message belongs to, and the number of its part. Raises ``WrongSchema``."""
    headers = AnswerHeaders.of(message)
    producer, watermark = (message.headers.get(name, "") for name in ("producer", "watermark_ns"))
    return _Whose(message.topic, producer, watermark, headers.answer), headers.part
