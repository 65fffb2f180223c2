"""Raw NIC epochs that agents keep where they find operators themselves: asked for over Kafka, and gathered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa

from offbeat import wiring
from offbeat.settings import Settings
from schemas.answer_parts import AnswerParts
from schemas.catalogue import JOBS, LOG_REQUESTS, NIC_EPOCHS
from schemas.errors import InputError
from schemas.log_answers import REQUEST_ID, AnswerHeaders
from schemas.log_requests import EPOCHS
from schemas.message import Message, decode, encode
from streams import topics
from streams.control_view import FollowedJobs
from streams.follower import Follower

_LOOK_EVERY_S = 0.05
_BROKER_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Epochs of a job's ranks (none: of all), of all their NICs or one, in a stretch of time by the hosts' clocks."""

    job: str
    ranks: Sequence[int] = ()
    nic: str | None = None
    from_ns: int | None = None
    to_ns: int | None = None


@dataclass
class Fetched:
    """Rows of telemetry.nic_epochs with their ``host``, and how complete each host's are; ``silent`` are the ranks for
    which nobody answered."""

    silent: set[int]
    rows: list[dict[str, Any]] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    _parts: AnswerParts[pa.RecordBatch] = field(default_factory=AnswerParts)

    def take(self, answer: Message) -> None:
        """Take a part of an answer; the first whole one of a host counts. Raises ``MessageError`` for a bad one."""
        if AnswerHeaders.of(answer).host in self.outcomes:
            return
        whole = self._parts.add(answer, decode(answer, NIC_EPOCHS))
        if whole is None:
            return
        said = whole.headers
        self.rows += [{**row, "host": said.host} for part in whole.parts for row in part.to_pylist()]
        self.outcomes[said.host] = said.outcome
        self.silent -= set(said.ranks)


def fetch(settings: Settings, asked: Asked, *, within_s: float) -> Fetched:
    """Ask, and wait until all have answered or ``within_s`` seconds have passed.

    Raises ``InputError`` for a job or rank that ``control.jobs`` does not tell of, ``BusError`` without Kafka.
    """
    bus = wiring.bus(settings.kafka)
    topics.check(bus, (LOG_REQUESTS,), (JOBS, NIC_EPOCHS), within_s=_BROKER_WITHIN_S)
    with Follower(bus, JOBS.name, within_s=_BROKER_WITHIN_S) as described:
        job = FollowedJobs(described).get(asked.job)
    if job is None:
        raise InputError(f"{asked.job}: control.jobs tells of no such job")
    if strange := set(asked.ranks) - set(job.ranks):
        raise InputError(f"{asked.job} has no rank {min(strange)}")
    fetched = Fetched(set(asked.ranks or job.ranks))
    now_ns, deadline = time.time_ns(), time.monotonic() + within_s
    request_id = uuid4().hex[:20]
    row = {
        "request_id": request_id,
        "ranks": sorted(fetched.silent),
        "iteration_from": 0,
        "iteration_to": 0,
        "what": EPOCHS,
        "nic": asked.nic,
        "from_ns": asked.from_ns,
        "to_ns": asked.to_ns,
        "deadline_ns": now_ns + round(within_s * 1e9),
    }
    with Follower(bus, NIC_EPOCHS.name, since_ns=now_ns, within_s=_BROKER_WITHIN_S) as answers:
        publisher = wiring.publisher(settings.kafka, "epochs")
        publisher.send(encode(LOG_REQUESTS, LOG_REQUESTS.from_rows([row]), job=job.job))
        publisher.flush()
        while fetched.silent and time.monotonic() < deadline:
            for message in answers.poll(_LOOK_EVERY_S):
                if message.headers.get(REQUEST_ID) == request_id:
                    fetched.take(message)
                if not fetched.silent or time.monotonic() >= deadline:  # others may tell without an end
                    break
    return fetched
