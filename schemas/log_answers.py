"""The headers of an answer to a request for logs: to which, by whom, for whom, how complete, and which part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from schemas.errors import WrongSchema
from schemas.message import Message

REQUEST_ID = "request_id"
"""The header that tells an answer from what nobody asked for."""

COMPLETE, PARTIAL, OVERWRITTEN, UNREACHABLE = OUTCOMES = ("complete", "partial", "overwritten", "unreachable")
"""How far an answer answers: all rows asked for, some, none because the ring wrote over them, nobody answered."""


@dataclass(frozen=True, slots=True)
class AnswerHeaders:
    """What the headers of a part say; ``part`` counts from 0, and all parts of an answer say the same but for it.

    Logs that were published unasked have parts as well, but no ``request_id``, ``ranks`` or ``outcome``.
    """

    request_id: str
    host: str
    ranks: tuple[int, ...]
    outcome: str
    part: int = 0
    parts: int = 1

    @property
    def answer(self) -> Self:
        """What all parts of the answer share."""
        return replace(self, part=0)

    def to_headers(self) -> dict[str, str]:
        """The headers of an answer's record."""
        return {
            REQUEST_ID: self.request_id,
            "host": self.host,
            "ranks": ",".join(map(str, self.ranks)),
            "outcome": self.outcome,
            **numbered(self.part, self.parts),
        }

    @classmethod
    def of(cls, message: Message) -> Self:
        """What a record says. Raises ``WrongSchema`` where that is not what an answer has to say."""
        headers = message.headers
        request_id = headers.get(REQUEST_ID, "")
        try:
            ranks = tuple(int(rank) for rank in headers["ranks"].split(",") if rank) if request_id else ()
            outcome = headers["outcome"] if request_id else ""
            part, parts = int(headers.get("part", "0")), int(headers.get("parts", "1"))
        except (KeyError, ValueError) as error:
            raise WrongSchema(
                f"{message.topic}: an answer needs the headers ranks, outcome, part and parts: {error!r}"
            ) from error
        if request_id and outcome not in OUTCOMES:
            raise WrongSchema(f"{message.topic}: outcome is {outcome!r}; known are {', '.join(OUTCOMES)}")
        if not 0 <= part < parts:
            raise WrongSchema(f"{message.topic}: part {part} of {parts}")
        return cls(request_id, headers.get("host", ""), ranks, outcome, part, parts)


def numbered(part: int, parts: int) -> dict[str, str]:
    """The headers of a part of what is too large for one record, whoever asked for it."""
    return {"part": str(part), "parts": str(parts)}
