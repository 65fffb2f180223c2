"""Log agents against Kafka: they tell of a job's iterations, answer requests, and linger for the last of them.

What NICs sent is told beside them, or alone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from threading import Event
from typing import Protocol

import pyarrow as pa

from diagnosis.job import Job
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import JobSource, job_message
from producers.log_agent import LogAgent
from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message
from streams import topics
from streams.bus import Bus, Outbox
from streams.control_view import FollowedJobs
from streams.follower import Follower
from streams.in_process import Recorded, Source

log = logging.getLogger(__name__)

_TRAFFIC = (catalogue.NIC_EPOCHS, catalogue.OP_CALLS, catalogue.QUEUE_PAIRS)
_LOOK_EVERY_S = 0.05
_BROKER_WITHIN_S = 10.0
"""How long the brokers may take to answer the first question."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What was sent; ``ended_before``: workers know that the job is over, and pass over what comes of it."""

    job: str
    messages: int
    answers: int
    ended_before: bool


def produce(
    job: Job,
    table: pa.Table | None,
    settings: Settings,
    *,
    linger_s: float | None,
    stopped: Event,
    traffic: Iterable[Message] | None = None,
    on_round: Callable[[int], None] = lambda _: None,
    elsewhere: Collection[str] = (),
) -> Produced:
    """Publish a job's log as its hosts' agents would, as fast as Kafka takes it.

    ``traffic`` are records of what its NICs sent, in the order of their time; None: there are none. Once all is told,
    requests are answered until none came for ``linger_s`` seconds (None: for ever), or ``stopped`` is set; without a
    log there is nothing to ask for. The agents of hosts ``elsewhere`` run by themselves. Raises ``BusError`` or
    ``DeliveryError``.
    """
    bus = wiring.bus(settings.kafka)
    needed = (catalogue.JOBS, *LogAgent.reads, *LogAgent.writes)
    topics.check(bus, needed, () if traffic is None else _TRAFFIC, within_s=_BROKER_WITHIN_S)
    ended_before = _has_ended(bus, job.job)
    hosts = [] if table is None else wiring.log_agents(job, table, settings)
    agents = [agent for agent in hosts if agent.host not in elsewhere]
    publisher = wiring.publisher(settings.kafka, "log-agents")
    # A request may have been made while no agent was there to answer it.
    since_ns = time.time_ns() - settings.search.answer_within_ns
    with Follower(bus, catalogue.LOG_REQUESTS.name, since_ns=since_ns) as requests:
        desk = Desk(agents, requests.poll, publisher)
        sources: deque[Source] = deque(_sources(job, agents, traffic))
        rounds = 0
        while sources and not stopped.is_set():
            for _ in range(len(sources)):
                source = sources.popleft()
                messages = source.advance()
                if messages is not None:
                    for message in messages:
                        publisher.send(message)
                    sources.append(source)
            publisher.flush()
            desk.serve()
            rounds += 1
            on_round(rounds)
        desk.linger(linger_s if agents or linger_s is None else 0.0, stopped)
    return Produced(job.job, publisher.delivered, desk.answers, ended_before)


def _sources(job: Job, agents: Sequence[LogAgent], traffic: Iterable[Message] | None) -> list[Source]:
    """The job, its agents, and its traffic. Traffic does not tell its own end: there the job says it from the start."""
    if traffic is None:
        return [JobSource(job, agents), *agents]
    return [Recorded([job_message(job)]), *agents, _Traffic(traffic)]


class _Traffic:
    """A source of what NICs sent: what all hosts told in one second at a time."""

    name = "traffic"

    def __init__(self, messages: Iterable[Message]) -> None:
        self._seconds = groupby(messages, key=lambda message: message.watermark_ns)

    def advance(self) -> Iterable[Message] | None:
        """What was told in the next second; None after the last."""
        return next((list(told) for _, told in self._seconds), None)


def _has_ended(bus: Bus, job: str) -> bool:
    """Whether control.jobs has told of a job's end."""
    with Follower(bus, catalogue.JOBS.name, within_s=_BROKER_WITHIN_S) as follower:
        known = FollowedJobs(follower).get(job)  # looks further for one that it does not know: not on a closed follower
    return known is not None and known.ended_ns is not None


class Answering(Protocol):
    """What answers a request for logs, for its own ranks."""

    def process(self, message: Message) -> Iterable[Message]: ...


class Desk:
    """Where requests are answered: ``poll`` brings what has been asked since the last time, and waits so many seconds
    for something.
    """

    def __init__(self, agents: Sequence[Answering], poll: Callable[[float], Iterable[Message]], outbox: Outbox) -> None:
        self._agents = agents
        self._poll = poll
        self._outbox = outbox
        self.answers = 0

    def serve(self, within_s: float = 0.0) -> bool:
        """Answer what has been asked meanwhile, or is within so many seconds; whether anything was."""
        asked = False
        for message in self._poll(within_s):
            asked = True
            try:
                answers = [answer for agent in self._agents for answer in agent.process(message)]
            except MessageError as error:  # every agent of every host reads it: not a dead letter of each
                log.warning("%s partition %d offset %d: %s", message.topic, message.partition, message.offset, error)
                continue
            self._send(answers)
        if asked:
            self._outbox.flush()
        return asked

    def give(self, answers: Iterable[Message]) -> None:
        """Send answers that had to wait."""
        if self._send(answers):
            self._outbox.flush()

    def _send(self, answers: Iterable[Message]) -> int:
        sent = 0
        for answer in answers:
            self._outbox.send(answer)
            sent += 1
        self.answers += sent
        return sent

    def linger(self, linger_s: float | None, stopped: Event) -> None:
        """Answer until nothing was asked for a while."""
        asked_at = time.monotonic()
        while not stopped.is_set():
            if self.serve(_LOOK_EVERY_S):
                asked_at = time.monotonic()
            elif linger_s is not None and time.monotonic() - asked_at >= linger_s:
                return
