"""Jobs of which nothing is kept any more: control.jobs is compacted, and would hold them for ever."""

from __future__ import annotations

from collections.abc import Iterable

from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message
from streams.control_view import Jobs

_HOUR_NS = 3_600_000_000_000

KEPT_NS = int(max(topic.retention_hours for topic in catalogue.TOPICS.values() if not topic.compacted) * _HOUR_NS)
"""How long any topic keeps a record: so long after its end a job may still be asked for (ns)."""


def retired(records: Iterable[Message], now_ns: int) -> list[str]:
    """The jobs whose end was told, by the broker's time, so long before ``now_ns`` that nothing else of them is kept.

    ``records`` are all of control.jobs; those that cannot be read are passed over. A job that vanished without an end
    is not retired: it may run.
    """
    jobs, told_ns = Jobs(), dict[str, int]()
    for record in records:
        try:
            jobs.process(record)
        except MessageError:
            continue
        told_ns[record.key] = record.timestamp_ns
    return [job for job in jobs if now_ns - told_ns[job] > KEPT_NS and jobs[job].ended_ns is not None]


def tombstone(job: str) -> Message:
    """The record of control.jobs that drops a job."""
    return Message(catalogue.JOBS.name, job, None, {"schema": catalogue.JOBS.schema_id, "job": job})
