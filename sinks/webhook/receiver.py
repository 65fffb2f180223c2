"""What a receiver is: the module that knows one service's form of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sinks.webhook.page import Page


@dataclass(frozen=True, slots=True)
class Request:
    """The body of a POST and the headers that say what it is."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Receiver(Protocol):
    """Turns pages into one service's requests.

    ``request`` is a pure function of the page, so that a repeated page is the same bytes under the same id.
    What identifies the incident there must be the same in every revision.
    """

    name: str

    def request(self, page: Page) -> Request: ...
