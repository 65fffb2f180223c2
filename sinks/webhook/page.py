"""A page: what a person is told, in no service's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Page:
    """One revision of an incident, or of the summary of several, as a receiver is to be told of it.

    ``id`` names it within the ``job``, the same in every revision; ``revision`` rises on changes that a person must
    hear. ``title`` is one line, ``text`` the explanation; ``details`` are read by people, in their order, and
    ``facts`` by programs. ``place`` is the host or device, or the job where neither is known; ``link`` leads to
    more and may be empty. Times are nanoseconds since the epoch; ``ended_ns`` is None while it goes on.
    """

    job: str
    id: str
    revision: int
    title: str
    text: str
    cause: str
    place: str
    opened_ns: int
    ended_ns: int | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    link: str = ""

    @property
    def resolved(self) -> bool:
        """Whether it is over."""
        return self.ended_ns is not None

    @property
    def status(self) -> str:
        """``firing`` or ``resolved``."""
        return "resolved" if self.resolved else "firing"

    @property
    def description(self) -> str:
        """The explanation, then the details, a line each."""
        return "\n".join([self.text, *(f"{name}: {said}" for name, said in self.details.items())])

    @property
    def idempotency_key(self) -> str:
        """``id/revision``: the same however often the page is sent. Safe in a header, whatever the id holds."""
        return f"{quote(self.id, safe='')}/{self.revision}"


def rfc3339(time_ns: int) -> str:
    """A point in time (ns since the epoch) with all its nanoseconds, as ``2026-01-02T03:04:05.123456789Z``."""
    seconds, ns = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"


def minute(time_ns: int) -> str:
    """A point in time (ns since the epoch) as people say it: ``2026-01-02 03:04 UTC``."""
    return f"{datetime.fromtimestamp(time_ns // 1_000_000_000, UTC):%Y-%m-%d %H:%M} UTC"
