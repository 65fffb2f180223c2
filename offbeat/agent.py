"""The log agent of a host whose processes train now: one thread at the rings, one at Kafka, a spool between them.

Kafka never holds up the reading of the rings: what is told waits in the spool until Kafka has it. A request does for as
long as one rank's rows are read from disk.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self

from diagnosis.job import Job, pivots
from offbeat import wiring
from offbeat.agent_figures import AgentFigures
from offbeat.collecting import Collecting
from offbeat.exposition import registry
from offbeat.produce import Answering, Desk
from offbeat.settings import Settings
from producers.collectors.edge import Edge
from producers.collectors.host import HostCollector
from producers.live.host import Host
from producers.log_agent import LogAgent
from producers.publisher import Publisher
from producers.spool import Spool
from schemas import catalogue
from schemas.errors import BusError, DeliveryError, MessageError, SettingsError, StoreError
from schemas.message import Message, TopicKey
from streams import topics
from streams.bus import Outbox
from streams.control_view import Jobs
from streams.follower import Follower
from streams.health import Progress, serve

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.05
_AGAIN_S = 1.0
"""How long Kafka is left alone after a failure."""
_WITHIN_S = 10.0
"""How long Kafka may take to answer, or to acknowledge."""
_AT_ONCE = 256
"""Messages that are sent before their acknowledgements are awaited."""
_STUCK_AFTER_S = 30.0
_TELL_EVERY_S = 60.0
"""What the spool drops while Kafka is away is told of together."""


def run_agent(settings: Settings, given: Job | None, *, stopped: threading.Event, until_ended: bool) -> None:
    """Tell of this host's jobs, and answer for them, until ``stopped`` is set, or with ``until_ended`` all have ended.

    ``given`` is the description of a job; others come from control.jobs, or, where a job runs on this host alone,
    from its processes. Raises ``StoreError`` where the disk is full.
    """
    live, jobs = settings.live, Jobs()

    def described(name: str) -> Job | None:
        return given if given is not None and given.job == name else jobs.get(name)

    def published(job: Job) -> Sequence[int]:
        return job.ranks if settings.publish_all else pivots(job, settings.pivots)

    try:
        spool = Spool(live.folder / "spool", live.spool_bytes)
    except OSError as error:
        raise StoreError(f"{live.folder}: {error}: name another folder with OFFBEAT_LIVE__FOLDER") from error
    host = Host(live.rings, live.folder / "jobs", live.keep_bytes, described, published, name=live.host)
    collecting = Collecting(settings, described)
    line = Line(settings, spool, jobs, host, collecting)
    progress = Progress(within_s=_STUCK_AFTER_S)
    if settings.worker.health_port is not None:
        figures = registry("agent")
        figures.register(AgentFigures(host, spool, line, collecting))
        serve(settings.worker.health_port, figures, progress, host=settings.worker.health_host)
    with line, collecting:
        while not stopped.is_set():
            _into(spool, _stepped(host))
            if collecting.take_turn():
                _into(spool, collecting.step(time.time_ns()))
            progress.cycled()
            line.check()
            if until_ended and host.ended and not len(spool):
                break
            stopped.wait(live.look_every_s)


def _stepped(host: Host) -> Iterator[Message]:
    try:
        yield from host.step()
    except PermissionError as error:
        raise SettingsError(
            f"{error.filename}: permission denied: run the agent as the user that trains, or as root"
        ) from error


def _into(spool: Spool, messages: Iterable[Message]) -> None:
    for message in messages:
        try:
            spool.append(message)
        except OSError as error:
            raise StoreError(
                f"{message.topic} cannot be spooled: {error}: make room, or set a lower OFFBEAT_LIVE__SPOOL_BYTES"
            ) from error


class Line:
    """The way to Kafka, in a thread of its own for as long as it is entered.

    It sends what the spool holds, answers requests, and learns of jobs and of where others' ranks are met; where Kafka
    is away it says so once, tells now and then of what the spool drops meanwhile, and tries again.
    """

    def __init__(self, settings: Settings, spool: Spool, jobs: Jobs, host: Host, collecting: Collecting) -> None:
        self.connected = False
        self._settings = settings
        self._spool, self._jobs, self._host = spool, jobs, host
        self._drops = Drops(spool)
        self._collector, self._edge = collecting.collector, collecting.edge
        self._answering: list[Answering] = [host] if collecting.edge is None else [host, collecting.edge]
        self._stopped = threading.Event()
        self._executor = ThreadPoolExecutor(1, "kafka")
        self._running: Future[None] = Future()

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._running.done():
            self._running.result()

    def __enter__(self) -> Self:
        self._running = self._executor.submit(self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._executor.shutdown()

    def _run(self) -> None:
        said = ""
        while not self._stopped.is_set():
            try:
                self._serve()
            except (BusError, DeliveryError) as error:
                if self.connected or str(error) != said:
                    log.warning("%d messages wait for Kafka: %s", len(self._spool), error)
                self.connected, said = False, str(error)
                self._drops.tell()
                self._stopped.wait(_AGAIN_S)

    def _serve(self) -> None:
        bus = wiring.bus(self._settings.kafka)
        reads = (catalogue.JOBS, *LogAgent.reads, *HostCollector.reads)
        writes = (*LogAgent.writes, *HostCollector.writes, *(() if self._edge is None else Edge.writes))
        topics.check(bus, reads, writes, within_s=_WITHIN_S)
        # Each connection has a publisher of its own: what failed would leave gaps in the numbers of the last one.
        name = self._settings.live.host or os.uname().nodename
        publisher = Publisher(bus.librdkafka(), f"log-agent-{name}", flush_within_s=_WITHIN_S)
        since_ns = time.time_ns() - self._settings.search.answer_within_ns
        with (
            Follower(bus, catalogue.JOBS.name, within_s=_WITHIN_S) as described,
            Follower(bus, catalogue.ADDRESSES.name, within_s=_WITHIN_S) as addresses,
            Follower(bus, catalogue.LOG_REQUESTS.name, since_ns=since_ns, within_s=_WITHIN_S) as requests,
        ):
            _learn(self._jobs.process, described.catch_up())
            _learn(self._collector.process, addresses.catch_up())
            desk = Desk(self._answering, requests.poll, publisher)
            log.info("connected to %s", bus.bootstrap_servers)
            self.connected = True
            while not self._stopped.is_set():
                _learn(self._jobs.process, described.poll())
                _learn(self._collector.process, addresses.poll())
                sent = send_spooled(self._spool, publisher)
                desk.serve(0.0 if sent else _LOOK_EVERY_S)
                desk.give(self._host.late())


def _learn(take: Callable[[Message], object], messages: Iterable[Message]) -> None:
    for message in messages:
        try:
            take(message)
        except MessageError as error:  # every agent reads it: not a dead letter of each
            log.warning("%s partition %d offset %d: %s", message.topic, message.partition, message.offset, error)


class Drops:
    """What a spool drops, for the log: ``tell`` may be called all the time, and tells once in ``every_s``."""

    def __init__(
        self, spool: Spool, *, every_s: float = _TELL_EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spool = spool
        self._every_s = every_s
        self._clock = clock
        self._told_at = -math.inf

    def tell(self) -> None:
        """Log what was dropped since it was last told, unless that was just now."""
        now = self._clock()
        if now - self._told_at >= self._every_s and _tell_dropped(self._spool):
            self._told_at = now


def _tell_dropped(spool: Spool) -> bool:
    """Log what was dropped since the last time, and say whether anything was."""
    dropped = spool.newly_dropped()
    for (topic, key), messages in dropped.items():
        log.warning("the spool is full: %d of the oldest messages of %s, key %s, were dropped", messages, topic, key)
    return bool(dropped)


class Numbered(Outbox, Protocol):
    """An outbox that numbers what it sends, and leaves gaps for what was lost; ``gaps`` counts what it has left out."""

    gaps: Counter[TopicKey]

    def skip(self, topic: str, key: str, messages: int) -> None: ...


def send_spooled(spool: Spool, publisher: Numbered) -> int:
    """Send what waits, oldest first, and forget it once it is acknowledged; how many messages that were.

    What was dropped is told, and leaves a gap in the numbers of its topic and key, as what waits does: it is noted once
    it is acknowledged. Raises ``DeliveryError``, or ``StoreError`` where the disk is full; then all of it waits on.
    """
    _tell_dropped(spool)
    messages, last = spool.waiting(_AT_ONCE)
    for (topic, key), dropped in (spool.untold - publisher.gaps).items():
        publisher.skip(topic, key, dropped)
    if messages:
        try:
            for message in messages:
                publisher.send(message)
            publisher.flush()
        except DeliveryError:
            spool.undelivered()
            raise
        try:
            spool.delivered(last, publisher.gaps)
        except OSError as error:
            raise StoreError(f"what Kafka has cannot be noted, and will be sent again: {error}: make room") from error
        publisher.gaps.clear()
    return len(messages)
