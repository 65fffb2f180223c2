"""Dead letters sent again once what refused them is mended: each original message once, under its key and headers.

The sender's headers are those of whoever replays, because numbers of the old sender would look like a loss.
``REPLAYED_FROM`` says where the message first came from: what is buried a second time is known by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schemas import catalogue
from schemas.errors import MessageError, UnknownJob
from schemas.message import Message, decode
from streams.bus import Outbox
from streams.dead_letters import is_left_out, message_of

REPLAYED_FROM = "replayed_from"
"""The header of a replayed message: topic, partition and offset of the original, with slashes."""

_OF_ITS_SENDER = frozenset({"producer", "seq", "produced_ns"})


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the message as it was, who refused it and why; ``at_ns`` is the message's time."""

    message: Message
    job: str
    processor: str
    error: str
    reason: str
    at_ns: int
    left_out: bool = False

    @property
    def origin(self) -> str:
        """Where the message first came from, however often it was replayed."""
        message = self.message
        return message.headers.get(REPLAYED_FROM, f"{message.topic}/{message.partition}/{message.offset}")

    @property
    def replayed_before(self) -> bool:
        return REPLAYED_FROM in self.message.headers


def letters_of(messages: Iterable[Message], tell: Callable[[str], None]) -> Iterator[Letter]:
    """The letters that records of dead_letters hold; a record that is none of them is told in a line, and left out."""
    for message in messages:
        try:
            rows = decode(message, catalogue.DEAD_LETTERS).to_pylist()
        except MessageError as error:  # anybody may have written it: it must not hide the others while it is kept
            where = f"{message.topic} partition {message.partition} offset {message.offset}"
            tell(f"{where} cannot be read: {type(error).__name__}: {error}")
            continue
        for row in rows:
            yield _letter(row, message.job)


def _letter(row: Mapping[str, Any], job: str) -> Letter:
    return Letter(
        message=message_of(row),
        job=job,
        processor=row["processor"],
        error=row["error"],
        reason=row["reason"],
        at_ns=row["at_ns"],
        left_out=is_left_out(row),
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters; None: all. Times are the messages' own, ns since the epoch, ``until_ns`` excluded."""

    topic: str | None = None
    error: str | None = None
    job: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None

    def __contains__(self, letter: Letter) -> bool:
        return (
            self.topic in {None, letter.message.topic}
            and self.error in {None, letter.error}
            and self.job in {None, letter.job}
            and (self.since_ns is None or letter.at_ns >= self.since_ns)
            and (self.until_ns is None or letter.at_ns < self.until_ns)
        )


@dataclass(frozen=True, slots=True)
class Failing:
    """A letter whose message would be refused again, and why. ``sent``: it was sent all the same."""

    letter: Letter
    reason: str
    sent: bool


@dataclass(slots=True)
class Redelivered:
    """What became of the wanted letters: ``sent`` messages by topic, ``repeated`` letters of one message.

    Several roles bury one message, and a replayed one may be buried again: it is sent once.
    """

    sent: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    failing: list[Failing] = field(default_factory=list)


def redeliver(
    letters: Iterable[Letter], jobs: Mapping[str, object], outbox: Outbox | None, *, force: bool = False
) -> Redelivered:
    """Send the messages of letters again; those that would be refused only with ``force``.

    ``jobs`` are those that control.jobs knows now. Without an ``outbox`` nothing is sent, only counted. Returns once
    all is safe on the bus; raises ``DeliveryError`` otherwise.
    """
    found, seen = Redelivered(), set[str]()
    for letter in letters:
        if letter.origin in seen:
            found.repeated += 1
            continue
        seen.add(letter.origin)
        refused = _refused(letter, jobs)
        sent = refused is None or (force and not letter.left_out)
        if refused is not None:
            found.failing.append(Failing(letter, refused, sent))
        if sent:
            found.sent[letter.message.topic] += 1
            if outbox is not None:
                outbox.send(_again(letter))
    if outbox is not None:
        outbox.flush()
    return found


def _refused(letter: Letter, jobs: Mapping[str, object]) -> str | None:
    """Why this build would bury the message again, as far as its topic tells; None: it reads it."""
    topic = catalogue.TOPICS.get(letter.message.topic)
    if topic is None:
        return f"{letter.message.topic} is no topic of this build"
    if letter.left_out:
        return "the message was too large for dead_letters, which kept the reason alone"
    try:
        decode(letter.message, topic)
        if letter.error == UnknownJob.__name__:
            jobs[letter.message.job]
    except MessageError as error:
        return f"{type(error).__name__}: {error}"
    except KeyError:
        return f"{UnknownJob.__name__}: {catalogue.JOBS.name} does not know job {letter.message.job!r}"
    return None


def _again(letter: Letter) -> Message:
    headers = {name: text for name, text in letter.message.headers.items() if name not in _OF_ITS_SENDER}
    return replace(letter.message, headers={**headers, REPLAYED_FROM: letter.origin})
