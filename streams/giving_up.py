"""That nothing more will come of a job: a record on the step's own input says so, as a time-out alone changes nothing.

A worker that reads it again after a restart waits anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas.message import Message, encode
from schemas.topic import Topic

GONE_NS = 600_000_000_000
"""Of a job that seems to have ended, and of which nothing has come for as long, nothing is waited for."""

_HEADER = "given_up"


def record(topic: Topic, job: str, deadline_ns: int) -> Message:
    """The record, without rows, that whoever reads the topic has waited until ``deadline_ns`` for more of a job."""
    return encode(topic, topic.from_rows([]), job=job, watermark_ns=deadline_ns, headers={_HEADER: "true"})


def overdue(topic: Topic, awaited: Iterable[tuple[str, int]], now_ns: int) -> Iterator[Message]:
    """The records of the jobs, each with until when it is waited for, that this is over for."""
    return (record(topic, job, deadline_ns) for job, deadline_ns in awaited if deadline_ns <= now_ns)


def is_record(message: Message) -> bool:
    """Whether a message is such a record."""
    return _HEADER in message.headers


def in_force(message: Message, heard_ns: int | None) -> bool:
    """Whether it still holds that nothing comes: ``heard_ns`` is when anything came last; None: not known."""
    return heard_ns is not None and message.now_ns >= heard_ns + GONE_NS
