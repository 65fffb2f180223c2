"""A worker process: one processor, one consumer group, from the checks before its start to its bounded end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import faust
from prometheus_client import CollectorRegistry

from schemas import catalogue
from schemas.errors import BusError, SettingsError
from schemas.processor import Processor
from schemas.topic import Topic
from streams import topics
from streams.bus import GROUP_PREFIX, Bus, Outbox
from streams.checkpoints import Checkpoints
from streams.control_view import FollowedJobs
from streams.faust_loop import REQUEST_TIMEOUT_S, FaustLoop, Pace, make_app
from streams.follower import Follower
from streams.health import Progress, serve
from streams.metrics import Metrics
from streams.share import Context, Share

log = logging.getLogger(__name__)

_FAILED = 1

_GUESSES = (
    "Has not committed",
    "Aiokafka has not ",
    "Stream has not started",
    "Stream stopped processing",
    "Thread keepalive is not responding",  # its own loop was busy for three seconds; it does not look at the thread
)
"""How those begin that Faust logs about workers that it takes for stuck; /live tells which are."""

_OF_A_SERVICE = re.compile(r"\s*(\[\^[^]]*\]: )?\s*")
"""What Faust's services put before what they log: where they are in its tree."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How one worker runs.

    ``instance`` names it within its group and is the same after a restart (a pod's name): it then resumes at once.
    ``stop_within_s`` bounds its end, ``stuck_after_s`` is when /live begins to ask for a restart.
    ``health_port`` None: no page.
    """

    group_prefix: str = GROUP_PREFIX
    instance: str | None = None
    pace: Pace = field(default_factory=Pace)
    stop_within_s: float = 20.0
    stuck_after_s: float = 300.0
    health_port: int | None = None
    health_host: str = "127.0.0.1"


def run_worker(
    make_processor: Callable[[Context], Processor],
    *,
    name: str,
    reads: tuple[Topic, ...],
    writes: tuple[Topic, ...],
    bus: Bus,
    outbox: Outbox,
    settings: WorkerSettings | None = None,
    registry: CollectorRegistry | None = None,
    command: str | None = None,
    at_once: bool = False,
    before_batch: Callable[[], None] = lambda: None,
) -> None:
    """Run a processor until SIGTERM or SIGINT; in the main thread, once a process.

    ``make_processor`` makes an instance for a partition number; its name and topics are those given here. What was
    not committed when it stopped is processed again by the next one. ``command`` is what people know it by.
    ``at_once``: instances are made, from their saved states, before their first message. ``before_batch`` is called
    before messages are taken, on the thread that takes them.

    Raises ``BusError`` or ``SettingsError`` before the start where the bus or a setting would not do, and later
    whatever stopped the processor.
    """
    settings = WorkerSettings() if settings is None else settings
    known_as = command or f"worker {name}"
    ending = _Ending(known_as, settings.stop_within_s)
    with ExitStack() as stack:
        stack.enter_context(ending.on_signals())
        topics.check(bus, writes, (catalogue.JOBS, catalogue.STATE, catalogue.DEAD_LETTERS), read_together=reads)
        _check_session(bus, settings.pace.session_timeout_s)
        metrics = Metrics(name, registry)
        progress = Progress(within_s=settings.stuck_after_s)
        metrics.stuck.set_function(lambda: float(progress.stuck() is not None))
        jobs_follower = stack.enter_context(Follower(bus, catalogue.JOBS.name))
        states_follower = stack.enter_context(Follower(bus, catalogue.STATE.name))
        jobs = FollowedJobs(jobs_follower)
        jobs.catch_up()
        group = f"{settings.group_prefix}.{name}"
        # other groups read the same inputs to other offsets: each has states of its own
        saved_as = name if settings.group_prefix == GROUP_PREFIX else group
        states = _States(states_follower, saved_as)

        def follow() -> None:
            jobs.follow()
            before_batch()

        app = make_app(bus, group, settings.pace, instance=settings.instance)
        loop = FaustLoop(
            app,
            [topic.name for topic in reads],
            settings.pace,
            begin=lambda: Share(
                make_processor,
                jobs=jobs,
                saved=states.caught_up,
                outbox=outbox,
                metrics=metrics,
                saved_as=saved_as,
            ),
            follow=follow,
            on_failure=ending.due,
            metrics=metrics,
            progress=progress,
            at_once=at_once,
        )
        if settings.health_port is not None:
            serve(settings.health_port, metrics.registry, progress, host=settings.health_host)
        log.info("%s reads %s as group %s", known_as, ", ".join(topic.name for topic in reads), group)
        stopped_by = _run(app, ending)
        if stopped_by is not None:
            raise loop.failure or stopped_by
    log.info("%s has stopped", known_as)


def _check_session(bus: Bus, session_timeout_s: float) -> None:
    """A session time-out that the brokers refuse would leave the worker waiting for ever, without a word."""
    try:
        least, greatest = topics.session_bounds_s(bus)
    except BusError as error:
        log.warning("the brokers do not tell which session time-outs they accept: %s", error)
        return
    greatest = min(greatest, REQUEST_TIMEOUT_S)
    if not least <= session_timeout_s <= greatest:
        raise SettingsError(
            f"OFFBEAT_WORKER__SESSION_TIMEOUT_S is {session_timeout_s:g}: "
            f"these brokers and this client take {least:g} to {greatest:g} s"
        )


class _States:
    """The saved states of one processor, as control.state holds them when asked."""

    def __init__(self, follower: Follower, processor: str) -> None:
        self._follower = follower
        self._follower.rest()  # until an assignment asks, which may be days away
        self._checkpoints = Checkpoints(processor)

    def caught_up(self) -> Checkpoints:
        for message in self._follower.catch_up():
            self._checkpoints.take(message)
        self._follower.rest()
        return self._checkpoints


class _Ending:
    """Bounds how long a worker may take to end: a broker that is away would keep Faust waiting for ever."""

    def __init__(self, known_as: str, within_s: float) -> None:
        self._known_as = known_as
        self._within_s = within_s
        self._timer: threading.Timer | None = None

    def due(self) -> None:
        """The worker is to end; from now on its time is counted."""
        if self._timer is None:
            self._timer = threading.Timer(self._within_s, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def _give_up(self) -> None:
        log.error(
            "%s did not stop within %g s and is ended; what is uncommitted comes again",
            self._known_as,
            self._within_s,
        )
        _exit(_FAILED)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Until Faust meets them itself, SIGTERM and SIGINT end the worker as they do once it runs: with code 0."""
        of_worker = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, lambda *_: self.before_its_start()) for number in of_worker}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def before_its_start(self) -> None:
        """End at once: nothing has been taken yet, and Faust may wait for ever when stopped as it joins its group."""
        log.info("%s has stopped", self._known_as)
        _exit(os.EX_OK)


def _exit(code: int) -> NoReturn:
    logging.shutdown()
    os._exit(code)


class _Worker(faust.Worker):
    """Faust's worker process, whose end is bounded."""

    def __init__(self, app: faust.App, ending: _Ending, **options: Any) -> None:
        super().__init__(app, **options)
        self.spinner = None
        self._ending = ending
        self._started_up = False

    async def on_startup_finished(self) -> None:
        """The worker has joined its group, and reads."""
        self._started_up = True
        await super().on_startup_finished()

    def _on_sigterm(self) -> None:
        self._end()
        super()._on_sigterm()

    def _on_sigint(self) -> None:
        self._end()
        super()._on_sigint()

    def _end(self) -> None:
        if not self._started_up:
            self._ending.before_its_start()
        self._ending.due()


def _run(app: faust.App, ending: _Ending) -> BaseException | None:
    """Run until the end; what stopped it as far as Faust knows, None after a signal."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    _quieten()
    worker = _Worker(app, ending, loop=loop, override_logging=False, redirect_stdouts=False, quiet=True)
    try:
        worker.execute_from_commandline()
    except SystemExit as ended:
        if not ended.code:
            return None
    ending.due()
    return worker.crash_reason or BusError("the consumer stopped; the log says why")


class _Seldom(logging.Filter):
    """Lets one record through in a while."""

    def __init__(self, every_s: float) -> None:
        super().__init__()
        self._every_s = every_s
        self._next_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created < self._next_at:
            return False
        self._next_at = record.created + self._every_s
        return True


def _no_guess(record: logging.LogRecord) -> bool:
    """Whether a record is no guess of Faust's that a worker is stuck: it takes those that are idle for stuck."""
    return not _OF_A_SERVICE.sub("", str(record.msg), count=1).startswith(_GUESSES)


def _quieten() -> None:
    """Leave of the libraries' logs what is worth reading."""
    for name in ("aiokafka", "faust", "mode"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mode.timers").setLevel(logging.ERROR)  # a sink may take longer than a cycle
    for name in ("faust.agents.actor", "faust.worker"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # a crash, which is raised in the end as well
    logging.getLogger("faust.transport.drivers.aiokafka").addFilter(_no_guess)
    while_away = [name for name in logging.Logger.manager.loggerDict if f"{name}.".startswith("aiokafka.")]
    for name in (*while_away, "librdkafka"):
        logging.getLogger(name).addFilter(_Seldom(30.0))  # together 70 errors a second while a broker is away
