"""A page: one revision of an incident, as a receiver is to be told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from diagnosis.job import Job
from schemas.catalogue import INCIDENTS
from schemas.message import Message, decode


@dataclass(frozen=True, slots=True)
class Page:
    """One revision of an incident.

    ``row`` holds the columns of analysis.incidents; ``placement`` says where the ranks run, None where
    control.jobs does not know; ``message`` is the record that it came in.
    """

    row: Mapping[str, Any]
    placement: Job | None
    message: Message

    @property
    def job(self) -> str:
        """The job that is slow or hung."""
        return self.message.job

    @property
    def incident(self) -> str:
        """Id of the incident; the same in every revision."""
        return str(self.row["id"])

    @property
    def revision(self) -> int:
        """Rises on changes that a person must hear."""
        return int(self.row["revision"])

    @property
    def resolved(self) -> bool:
        """Whether the incident is over."""
        return bool(self.row["state"] == "resolved")

    @property
    def ended_ns(self) -> int:
        """When a resolved incident ended; where nobody saw the end, when it was found to be over."""
        return int(self.row["updated_ns"] if self.row["resolved_ns"] is None else self.row["resolved_ns"])

    @property
    def idempotency_key(self) -> str:
        """``id/revision``: the same however often the page is sent. Safe in a header, whatever the id holds."""
        return f"{quote(self.incident, safe='')}/{self.revision}"


def pages(message: Message, placement: Job | None) -> list[Page]:
    """The pages of a record of analysis.incidents, in its order; raises ``MessageError`` for a bad record."""
    return [Page(row, placement, message) for row in decode(message, INCIDENTS).to_pylist()]


def rfc3339(time_ns: int) -> str:
    """A point in time (ns since the epoch) with all its nanoseconds, as ``2026-01-02T03:04:05.123456789Z``."""
    seconds, ns = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"
