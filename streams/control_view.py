"""The jobs that control.jobs knows, for the processors of a worker.

In process it is fed like any other processor; under Kafka it reads the topic whole before the worker starts, and
follows it. A record of a job that is not known makes it catch up once, and is then poison.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from diagnosis.job import Job
from schemas import catalogue
from schemas.errors import ImpossibleValue, MessageError, UnknownJob, WrongSchema
from schemas.message import Message, decode
from schemas.topic import Topic

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 1.0


class Jobs(Mapping[str, Job]):
    """The jobs by id; itself a processor that reads control.jobs and publishes nothing.

    Looking up a job that is not known raises ``UnknownJob``, which is poison and a ``KeyError``.
    """

    name = "jobs"
    reads: tuple[Topic, ...] = (catalogue.JOBS,)
    writes: tuple[Topic, ...] = ()

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def __getitem__(self, job: str) -> Job:
        try:
            return self._jobs[job]
        except KeyError:
            raise UnknownJob(f"job {job!r} is not in {catalogue.JOBS.name}: publish it before its records") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def process(self, message: Message) -> Iterable[Message]:
        """Take a record of control.jobs; a tombstone drops the job. Raises ``MessageError`` for a bad one."""
        if message.value is None:
            self._jobs.pop(message.key, None)
        else:
            job = _job(message)
            self._jobs[job.job] = job
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


class Followed(Protocol):
    """What brings the records of a broker's topic; streams/follower.py is the one there is."""

    def catch_up(self) -> Iterable[Message]: ...

    def poll(self) -> Iterable[Message]: ...


class FollowedJobs(Jobs):
    """The jobs of a broker's control.jobs: ``catch_up`` before the start, ``follow`` now and then, once unasked.

    A look-up of an unknown job catches up first, but for one id not more than once a second: a producer that never
    publishes its job must not slow the others' records down.
    """

    def __init__(self, follower: Followed, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._follower = follower
        self._clock = clock
        self._asked: dict[str, float] = {}

    def __getitem__(self, job: str) -> Job:
        if job not in self._jobs and self._clock() - self._asked.get(job, -math.inf) >= _ASK_AGAIN_S:
            self.catch_up()
            self._asked[job] = self._clock()
        return super().__getitem__(job)

    def catch_up(self) -> None:
        """Take everything that control.jobs holds by now."""
        self._feed(self._follower.catch_up())

    def follow(self) -> None:
        """Take what has arrived meanwhile; does not wait."""
        self._feed(self._follower.poll())
        now = self._clock()
        self._asked = {job: at for job, at in self._asked.items() if now - at < _ASK_AGAIN_S}

    def _feed(self, messages: Iterable[Message]) -> None:
        for message in messages:
            try:
                self.process(message)
            except MessageError as error:  # every worker reads it at every start: not a dead letter each time
                log.warning("control.jobs partition %d offset %d: %s", message.partition, message.offset, error)


def _job(message: Message) -> Job:
    rows = decode(message, catalogue.JOBS).to_pylist()
    if len(rows) != 1:
        raise WrongSchema(f"{message.topic}: {len(rows)} rows in a record, expected one job")
    try:
        return Job.from_row(rows[0])
    except ValueError as error:
        raise ImpossibleValue(f"{message.topic}: job {rows[0]['job']!r}: {error}") from error
