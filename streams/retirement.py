"""Jobs of which nothing is kept any more: control.jobs and control.addresses are compacted, and would hold them for
ever."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message
from streams.control_view import job_of

_HOUR_NS = 3_600_000_000_000

KEPT_NS = int(max(topic.retention_hours for topic in catalogue.TOPICS.values() if not topic.compacted) * _HOUR_NS)
"""How long any topic keeps a record: so long after its end a job may still be asked for (ns)."""


def retired(records: Iterable[Message], now_ns: int, tell: Callable[[str], object] = lambda _: None) -> list[str]:
    """The jobs whose end was told, by the broker's time, so long before ``now_ns`` that nothing else of them is kept.

    ``records`` are all of control.jobs. A job that vanished without an end is not retired: it may run. Nor is one whose
    last record has no broker's time or cannot be read, or of which a record has another key, which its tombstone
    would not drop: ``tell`` gets a line of each such record.
    """
    ended_ns: dict[str, int] = {}
    elsewhere: set[str] = set()
    for record in records:
        ended_ns.pop(record.key, None)
        if record.value is None:
            continue
        where = f"{record.topic} partition {record.partition} offset {record.offset}"
        try:
            job = job_of(record)
        except MessageError as error:
            tell(f"{where}: {error}")
            continue
        if job.job != record.key:
            elsewhere.add(job.job)
            tell(f"{where}: the record's key is {record.key!r} and its job {job.job!r}: it is passed over")
        elif job.ended_ns is not None and record.timestamp_ns <= 0:
            tell(f"{where}: job {job.job!r}: the broker has not stamped when its end was told: it is passed over")
        elif job.ended_ns is not None:
            ended_ns[job.job] = record.timestamp_ns
    return [job for job, at_ns in ended_ns.items() if now_ns - at_ns > KEPT_NS and job not in elsewhere]


def tombstone(job: str) -> Message:
    """The record of control.jobs that drops a job."""
    return Message(catalogue.JOBS.name, job, None, {"schema": catalogue.JOBS.schema_id, "job": job})


def addresses_of(records: Iterable[Message], jobs: Collection[str]) -> list[Message]:
    """The records of control.addresses that drop what hosts told of jobs whose agents have not: they or their hosts
    ended first. ``records`` are all that it holds."""
    newest = {record.key: record for record in records}
    headers = {"schema": catalogue.ADDRESSES.schema_id}
    return [
        Message(catalogue.ADDRESSES.name, key, None, {**headers, "job": record.job})
        for key, record in newest.items()
        if record.value is not None and record.job in jobs
    ]
