"""The jobs that control.jobs knows, for the processors of a worker.

In process it is fed like any other processor; under Kafka it reads the topic whole before the worker starts, and
follows it. A record of a job that is not known makes it catch up once, and is then poison.

Jobs stay known after their end, since records of them may come late. As an object a job takes 1 kB a rank, many times
its record: of those that have ended, records alone are kept.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from diagnosis.job import Job
from schemas import catalogue
from schemas.errors import ImpossibleValue, MessageError, UnknownJob, WrongSchema
from schemas.message import Message, decode
from schemas.topic import Topic

log = logging.getLogger(__name__)

MOST_RANKS_AT_HAND = 1 << 16
"""Ranks of all jobs that are at hand as objects. More than a large cluster has: nothing that runs is read twice."""

MOST_ENDED_AT_HAND = 4
"""Jobs among them that have ended."""

_ASK_AGAIN_S = 1.0


class Jobs(Mapping[str, Job]):
    """The jobs by id; itself a processor that reads control.jobs and publishes nothing.

    Looking up a job that is not known raises ``UnknownJob``, which is poison and a ``KeyError``. Those that were looked
    up last are at hand; another one is made from its record again. Any thread may look up.
    """

    name = "jobs"
    reads: tuple[Topic, ...] = (catalogue.JOBS,)
    writes: tuple[Topic, ...] = ()

    def __init__(self) -> None:
        self._records: dict[str, Message] = {}
        self._at_hand: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, job: str) -> Job:
        with self._lock:
            if job in self._at_hand:
                self._at_hand.move_to_end(job)
                return self._at_hand[job]
            if job not in self._records:
                raise UnknownJob(f"job {job!r} is not in {catalogue.JOBS.name}: publish it before its records")
            known = job_of(self._records[job])
            self._put_at_hand(known)
            return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def at_hand(self) -> list[str]:
        """The jobs that are kept as objects, the one looked up last at the end."""
        with self._lock:
            return list(self._at_hand)

    def process(self, message: Message) -> Iterable[Message]:
        """Take a record of control.jobs; a tombstone drops the job. Raises ``MessageError`` for a bad one."""
        job = message.key if message.value is None else job_of(message).job
        with self._lock:
            self._at_hand.pop(job, None)
            if message.value is None:
                self._records.pop(job, None)
            else:
                self._records[job] = _kept(message)
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def _put_at_hand(self, job: Job) -> None:
        """Make a job the newest at hand, and let go of the oldest beyond the bounds."""
        self._at_hand[job.job] = job
        ended = [name for name, known in self._at_hand.items() if known.ended_ns is not None]
        for name in ended[:-MOST_ENDED_AT_HAND]:
            del self._at_hand[name]
        ranks = sum(len(known.places) for known in self._at_hand.values())
        while ranks > MOST_RANKS_AT_HAND and len(self._at_hand) > 1:
            ranks -= len(self._at_hand.popitem(last=False)[1].places)


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
        if job not in self._records and self._clock() - self._asked.get(job, -math.inf) >= _ASK_AGAIN_S:
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


def _kept(message: Message) -> Message:
    """A record without what is told of its way."""
    return replace(message, headers={name: message.headers[name] for name in ("schema", "job")})


def job_of(message: Message) -> Job:
    """The job that a record of control.jobs describes. Raises ``MessageError`` for a bad one."""
    rows = decode(message, catalogue.JOBS).to_pylist()
    if len(rows) != 1:
        raise WrongSchema(f"{message.topic}: {len(rows)} rows in a record, expected one job")
    try:
        return Job.from_row(rows[0])
    except ValueError as error:
        raise ImpossibleValue(f"{message.topic}: job {rows[0]['job']!r}: {error}") from error
