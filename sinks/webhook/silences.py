"""Silences: what nobody wants to be paged for, until when. They are records of control.silences."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Self

from schemas.catalogue import SILENCES
from schemas.errors import MessageError, SettingsError, WrongSchema
from schemas.message import Message, decode, encode

log = logging.getLogger(__name__)

_ANY = "*"


@dataclass(frozen=True, slots=True)
class Silence:
    """No pages about a ``job``, about a ``device``, or (both) about a device as far as it concerns a job.

    Both may hold ``*`` and ``?``, as in ``gpu:host7/*``; ``*:host7/*`` is a whole host, its CPU and NVLinks too. Times
    are nanoseconds since the epoch. Raises ``SettingsError`` where neither is given: nobody silences everything.
    """

    id: str
    until_ns: int
    made_ns: int
    job: str | None = None
    device: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.job and not self.device:
            raise SettingsError("a silence needs a job or a device")

    def covers(self, job: str, row: Mapping[str, Any]) -> bool:
        """Whether an incident (a row of analysis.incidents) is what nobody wants to hear of.

        An incident that names several devices is covered only where all of them are: the others may be at fault.
        """
        devices = [device["device"] for device in row["devices"]]
        return (not self.job or _matches(job, self.job)) and (
            not self.device or (bool(devices) and all(_is_of(device, self.device) for device in devices))
        )

    def to_message(self) -> Message:
        """The record of control.silences that makes it."""
        batch = SILENCES.from_rows([asdict(self)])
        return encode(SILENCES, batch, job=self.job or _ANY, key=self.id, watermark_ns=self.made_ns)

    @classmethod
    def from_message(cls, message: Message) -> Self:
        """Read the record that ``to_message`` made; raises ``MessageError``."""
        rows = decode(message, SILENCES).to_pylist()
        if len(rows) != 1:
            raise WrongSchema(f"{message.topic}: {len(rows)} rows in a record, expected one silence")
        try:
            return cls(**rows[0])
        except SettingsError as error:
            raise WrongSchema(f"{message.topic}: {error}") from error


def _matches(name: str, pattern: str) -> bool:
    """``*`` and ``?`` alone are wild: a job may bear brackets, which ``fnmatch`` takes for a choice of characters."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _is_of(device: str, pattern: str) -> bool:
    """Whether a pattern is about a device: what ends in ``/*`` is so about a host's parts and about what is the host's
    as a whole, ``cpu:host7`` and ``nvlink:host7``.
    """
    return _matches(device, pattern) or _matches(f"{device}/", pattern)


class Silences:
    """The silences by id, as control.silences tells of them."""

    def __init__(self, silences: Iterable[Silence] = ()) -> None:
        self._by_id = {silence.id: silence for silence in silences}

    def take(self, messages: Iterable[Message]) -> None:
        """Take records of the topic; a tombstone ends a silence, and what cannot be read is logged and passed over."""
        for message in messages:
            if message.value is None:
                self._by_id.pop(message.key, None)
                continue
            try:
                silence = Silence.from_message(message)
            except MessageError as error:
                log.warning("control.silences partition %d offset %d: %s", message.partition, message.offset, error)
            else:
                self._by_id[silence.id] = silence

    def over(self, now_ns: int) -> list[Silence]:
        """Those that are over and were not ended: nobody needs their records any more."""
        return [silence for silence in self._by_id.values() if silence.until_ns <= now_ns]

    def lasting(self, now_ns: int) -> list[Silence]:
        """Those that are not over, the ones that end first first."""
        return sorted((s for s in self._by_id.values() if s.until_ns > now_ns), key=lambda s: (s.until_ns, s.id))


def ended(silence_id: str) -> Message:
    """The record of control.silences that ends a silence."""
    headers = {"schema": SILENCES.schema_id, "job": _ANY}
    return Message(SILENCES.name, silence_id, None, headers)
