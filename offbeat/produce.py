"""Log agents against Kafka: they tell of a job's iterations, answer requests, and linger for the last of them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Protocol

import pyarrow as pa

from diagnosis.job import Job
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import JobSource
from producers.log_agent import LogAgent
from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message
from streams import topics
from streams.bus import Bus, Outbox
from streams.control_view import FollowedJobs
from streams.follower import Follower
from streams.in_process import Source

log = logging.getLogger(__name__)

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
    table: pa.Table,
    settings: Settings,
    *,
    linger_s: float | None,
    stopped: Event,
    on_round: Callable[[int], None] = lambda _: None,
    elsewhere: Collection[str] = (),
) -> Produced:
    """Publish a job's log as its hosts' agents would, as fast as Kafka takes it.

    Once the log has ended, requests are answered until none came for ``linger_s`` seconds (None: for ever), or
    ``stopped`` is set. The agents of hosts ``elsewhere`` run by themselves. Raises ``BusError`` or ``DeliveryError``.
    """
    bus = wiring.bus(settings.kafka)
    topics.check(bus, LogAgent.writes, (catalogue.JOBS, *LogAgent.reads), within_s=_BROKER_WITHIN_S)
    ended_before = _has_ended(bus, job.job)
    agents = [agent for agent in wiring.log_agents(job, table, settings) if agent.host not in elsewhere]
    publisher = wiring.publisher(settings.kafka, "log-agents")
    # A request may have been made while no agent was there to answer it.
    since_ns = time.time_ns() - settings.search.answer_within_ns
    with Follower(bus, catalogue.LOG_REQUESTS.name, since_ns=since_ns) as requests:
        desk = Desk(agents, requests.poll, publisher)
        sources: deque[Source] = deque([JobSource(job, agents), *agents])
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
        desk.linger(linger_s, stopped)
    return Produced(job.job, publisher.delivered, desk.answers, ended_before)


def _has_ended(bus: Bus, job: str) -> bool:
    """Whether control.jobs has told of a job's end."""
    with Follower(bus, catalogue.JOBS.name, within_s=_BROKER_WITHIN_S) as follower:
        known = FollowedJobs(follower).get(job)  # looks further for one that it does not know: not on a closed follower
    return known is not None and known.ended_ns is not None


class Answering(Protocol):
    """What answers a request for logs, for its own ranks."""

    def process(self, message: Message) -> Iterable[Message]: ...


class Desk:
    """Where requests are answered: ``poll`` brings what has been asked since the last time."""

    def __init__(self, agents: Sequence[Answering], poll: Callable[[], Iterable[Message]], outbox: Outbox) -> None:
        self._agents = agents
        self._poll = poll
        self._outbox = outbox
        self.answers = 0

    def serve(self) -> bool:
        """Answer what has been asked meanwhile; whether anything was."""
        asked = False
        for message in self._poll():
            asked = True
            try:
                answers = [answer for agent in self._agents for answer in agent.process(message)]
            except MessageError as error:  # every agent of every host reads it: not a dead letter of each
                log.warning("%s partition %d offset %d: %s", message.topic, message.partition, message.offset, error)
                continue
            for answer in answers:
                self._outbox.send(answer)
            self.answers += len(answers)
        if asked:
            self._outbox.flush()
        return asked

    def linger(self, linger_s: float | None, stopped: Event) -> None:
        """Answer until nothing was asked for a while."""
        asked_at = time.monotonic()
        while not stopped.wait(_LOOK_EVERY_S):
            if self.serve():
                asked_at = time.monotonic()
            elif linger_s is not None and time.monotonic() - asked_at >= linger_s:
                return
