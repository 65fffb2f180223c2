"""What a receiver is: the module that knows one service's form of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sinks.webhook.page import Page


@dataclass(frozen=True, slots=True)
class Request:
    """The body of a POST and the headers that say what it is.

    ``blames_settings`` are words by which an answer that reads like a refused page (400) says that the set-up is at
    fault, so that every page would fare the same; in lower case.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    blames_settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resending:
    """How a receiver that forgets what it does not hear again is kept informed, in seconds.

    An open incident is sent again ``every_s``; a resolved one too, until ``linger_s`` after it was first delivered.
    """

    every_s: float
    linger_s: float


class Receiver(Protocol):
    """Turns pages into one service's requests.

    ``request`` is a pure function of the page and, where the service wants to hear again, of the time at which it
    is sent (ns since the epoch): a repeated page is the same bytes under the same id. What identifies the incident
    there is the same in every revision, and what it groups by is the job. ``resending`` is None for a service that
    remembers what it was told.
    """

    name: str
    resending: Resending | None

    def request(self, page: Page, now_ns: int) -> Request: ...


def clipped(text: str, most: int) -> str:
    """Text of at most so many characters; what is cut off is shown to be."""
    return text if len(text) <= most else text[: most - 4] + " ..."
