"""The one Faust loop: every processor goes through it when the bus is Kafka.

What it rests on, measured with Faust 0.15.3 and aiokafka 0.14 on Kafka 4.3:

- Nothing is ever acknowledged: acks and auto-commit pass failures by, or stall at gaps of offsets. Offsets are
  committed explicitly, after everything that came of the messages is safe, through a private method that a test pins.
- After a rebalance events of the old assignment still come: they carry another generation and are skipped. A new
  generation starts anew from the committed offsets and the saved states.
- Records that are fetched amid a rebalance are dropped, and read again from the committed offset; but aiokafka seeks no
  offset that is 0 or was never committed, so that the first records of a partition would be lost (``_Consumer``).
- One task takes batches and a timer delivers and commits, under one lock. Each does its work in one call on one
  other thread, or heartbeats, timers and probes would freeze.
- All inputs are one topic object, hence one stream and one committed offset an input and group.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import faust
import mode
from faust.transport.drivers import aiokafka
from faust.types import TP, TransportT
from faust.types.auth import CredentialsT

from schemas import catalogue
from schemas.errors import BusError
from schemas.message import Message
from streams.bus import Bus
from streams.health import Position, Progress
from streams.lag import NO_LAG, Lags
from streams.metrics import Metrics
from streams.received import received
from streams.share import Place, Share
from streams.steady_clock import SteadyClock

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
"""A session time-out may not be longer, or the client refuses to start."""

_APPEND_TIME = 1  # aiokafka's number of the timestamp type
_BUFFERED = 64
_WATCH_EVERY_S = 5.0
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Pace:
    """How a worker goes about its work. Messages are taken in batches; ``cycle_s`` lies between two commits.

    A message waits for others of its batch for ``batch_within_s`` at most, and an idle worker looks as often.
    """

    batch_messages: int = 100
    batch_within_s: float = 0.01
    cycle_s: float = 1.0
    session_timeout_s: float = 6.0


def make_app(bus: Bus, group: str, pace: Pace, *, instance: str | None = None) -> faust.App:
    """A Faust app for one consumer group; ``instance`` names this member for good, so that it may come back.

    A restarted member with a name has its partitions at once; without one, after the session time-out.
    """
    return _App(
        group,
        broker=[f"kafka://{server.strip()}" for server in bus.bootstrap_servers.split(",")],
        broker_credentials=_credentials(bus),
        broker_check_crcs=False,  # as librdkafka: the brokers have checked them; in Python it halves the throughput
        broker_session_timeout=pace.session_timeout_s,
        broker_heartbeat_interval=pace.session_timeout_s / 6,
        broker_request_timeout=REQUEST_TIMEOUT_S,
        broker_max_poll_records=500,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=instance,
        consumer_max_fetch_size=8 << 20,
        datadir=tempfile.gettempdir(),
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        stream_buffer_maxsize=_BUFFERED,
        stream_wait_empty=False,
        table_standby_replicas=1,  # with 0 Faust takes an assignor that does not keep topics together
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
    )


class _App(faust.App):
    """Faust's app, with a consumer that reads again what nothing was committed of."""

    def _new_transport(self) -> TransportT:
        transport: Any = super()._new_transport()  # the class variable is Faust's way to give another one
        transport.Consumer = _Consumer
        return cast("TransportT", transport)


class _Consumer(aiokafka.Consumer):
    """Faust's consumer, which also reads again what nothing was committed of."""

    async def perform_seek(self) -> None:
        """Seek all partitions to where they are read from."""
        await super().perform_seek()
        unread = [tp for tp in self.assignment() if not self._committed_offset.get(tp)]
        begins = await self.earliest_offsets(*unread) if unread else {}
        for tp, offset in begins.items():
            await self.seek(tp, offset)


class FaustLoop:
    """Ties one processor to a Faust app: its inputs, its loop, its timers.

    ``begin`` makes the share of a new assignment; ``follow`` is called before each batch. ``at_once``: an assignment
    is begun before its first message, for a processor that has to do without one. What went wrong, and stopped the
    worker, is in ``failure``.
    """

    def __init__(
        self,
        app: faust.App,
        topics: Sequence[str],
        pace: Pace,
        *,
        begin: Callable[[], Share],
        follow: Callable[[], None],
        on_failure: Callable[[], None],
        metrics: Metrics,
        progress: Progress,
        at_once: bool = False,
    ) -> None:
        self.failure: BaseException | None = None
        self._app = app
        self._topics = tuple(topics)
        self._pace = pace
        self._begin = begin
        self._follow = follow
        self._on_failure = on_failure
        self._metrics = metrics
        self._progress = progress
        self._at_once = at_once
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="processor")
        self._generation: int | None = None
        self._share: Share | None = None
        self._lags = Lags()
        self._now_ns = SteadyClock()
        app.agent(app.topic(*topics), concurrency=1, supervisor_strategy=mode.CrashingSupervisor)(self._take_all)
        app.timer(pace.cycle_s)(self._tick)
        app.timer(_WATCH_EVERY_S)(self._look)

    async def _take_all(self, stream: Any) -> None:
        batches = stream.noack().noack_take(self._pace.batch_messages, within=self._pace.batch_within_s)
        async for events in batches:
            await self._told(self._take(events))

    async def _tick(self) -> None:
        await self._told(self._cycle())

    async def _look(self) -> None:
        await self._told(self._watch())

    async def _told(self, work: Awaitable[None]) -> None:
        """Do a part of the work; keep what stops the worker, which Faust only logs."""
        try:
            await work
        except Exception as error:
            self.failure = self.failure or error
            self._on_failure()
            raise

    async def _take(self, events: Sequence[Any]) -> None:
        async with self._lock:
            generation = self._app.consumer_generation_id
            of_it = [event.message for event in events if event.message.generation_id == generation]
            fresh = [_message(record, self._now_ns()) for record in of_it]
            if not fresh:
                return
            started = time.monotonic()
            await self._on_thread(self._process, generation, fresh)
            self._metrics.batch_seconds.observe(time.monotonic() - started)

    def _process(self, generation: int, messages: list[Message]) -> None:
        share = self._share_of(generation)
        self._follow()
        share.take(messages)

    def _share_of(self, generation: int) -> Share:
        if self._share is None or generation != self._generation:
            _check_together(self._app.consumer.assignment(), self._topics)
            self._share, self._generation = self._begin(), generation
            self._metrics.rebalances.inc()
        return self._share

    def _open(self, generation: int, partitions: frozenset[int]) -> None:
        self._share_of(generation).open(partitions)

    async def _cycle(self) -> None:
        async with self._lock:
            assigned = frozenset(tp.partition for tp in self._app.consumer.assignment())
            if self._at_once and assigned and self.failure is None and not self._app.rebalancing and self._stale():
                await self._on_thread(self._open, self._app.consumer_generation_id, assigned)
            share = self._share
            if share is not None and self.failure is None and not self._stale():
                started = time.monotonic()
                offsets = await self._on_thread(share.deliver, self._now_ns())
                self._metrics.delivery_seconds.observe(time.monotonic() - started)
                if offsets and not self._stale() and await self._commit(offsets):
                    await self._on_thread(share.committed, offsets)
            self._progress.cycled()

    async def _commit(self, offsets: dict[Place, int]) -> bool:
        consumer: Any = self._app.consumer  # the method is private
        done = await consumer._commit_offsets({TP(*place): offset for place, offset in offsets.items()})
        if done:
            self._metrics.commits.inc()
        return bool(done)

    async def _watch(self) -> None:
        """Compare where the inputs end with what is processed and committed of them."""
        assigned = self._app.consumer.assignment()
        if self._app.rebalancing:
            return
        share = None if self._stale() else self._share  # none before the first message of an assignment
        reached = {} if share is None else share.reached.copy()
        try:
            ends = await self._app.consumer.highwaters(*assigned) if assigned else {}
            silent = [tp for tp in assigned if _place(tp) not in reached]
            starts = await self._app.consumer.earliest_offsets(*silent) if silent else {}
        except Exception as error:  # noqa: BLE001 - a broker that is away heals; the next look tells
            log.warning("the ends of the inputs are not known: %s", error)
            self._progress.looked({})  # nothing can move, and a restart would not bring it back
            return
        if share is not None:
            check_ends({_place(tp): end for tp, end in ends.items()}, share.counted)
        positions: dict[Place, Position] = {}
        for tp, end in ends.items():
            place = _place(tp)
            if share is not None and place in reached:
                positions[place] = Position(
                    end, reached[place].following, share.committed_offset(place), share.held.get(place)
                )
            else:
                begins = self._begins_at(tp, starts.get(tp, 0))
                positions[place] = Position(end, begins, begins)
        self._progress.looked(positions)
        lags = self._lags.looked(positions, reached, time.time())
        for topic in self._topics:
            lag = lags.get(topic, NO_LAG)
            self._metrics.lag(topic, lag.messages, lag.seconds, lag.uncommitted)

    def _begins_at(self, tp: TP, earliest: int) -> int:
        """Where an input that has brought nothing yet is read from: what was committed, if it is still there."""
        consumer: Any = self._app.consumer  # the mapping is private
        return max(consumer._committed_offset.get(tp) or 0, earliest)

    def _stale(self) -> bool:
        return self._generation != self._app.consumer_generation_id or bool(self._app.rebalancing)

    async def _on_thread(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _message(record: Any, taken_ns: int) -> Message:
    if record.timestamp_type != _APPEND_TIME:
        raise BusError(
            f"{record.topic}: its records carry the producers' time, not the broker's: run `offbeat topics apply`"
        )
    return received(
        record.topic,
        record.partition,
        record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp_ns=round(record.timestamp * 1000) * 1_000_000,
        taken_ns=taken_ns,
    )


def _place(tp: TP) -> Place:
    return tp.topic, tp.partition


def check_ends(ends: Mapping[Place, int], counted: Mapping[Place, int]) -> None:
    """Make sure that inputs hold what saved states have counted in, or all that comes would be skipped without a word.

    Raises ``BusError`` where one ends before: its topic was made anew.
    """
    for place, most in sorted(counted.items()):
        end = ends.get(place)
        if end is not None and end < most:
            raise BusError(
                f"{place[0]} partition {place[1]} ends at {end}, and saved states have counted in what was before "
                f"{most}: the topic was made anew. Stop all roles, delete {catalogue.STATE.name} as well, run "
                "`offbeat topics apply`, and start them"
            )


def _check_together(assigned: Iterable[TP], topics: Iterable[str]) -> None:
    """Make sure that a partition number was given with all inputs, or one job's records would go two ways."""
    numbers: dict[str, set[int]] = {topic: set() for topic in topics}
    for tp in assigned:
        numbers.setdefault(tp.topic, set()).add(tp.partition)
    if len({frozenset(given) for given in numbers.values()}) > 1:
        listed = "; ".join(f"{topic}: {sorted(given)}" for topic, given in sorted(numbers.items()))
        raise BusError(
            f"partitions of topics that are read together were given to different workers ({listed}): "
            "let all workers of this consumer group read the same topics"
        )


def _credentials(bus: Bus) -> CredentialsT | None:
    context = _tls(bus) if bus.encrypted else None
    if bus.authenticated:
        return faust.SASLCredentials(
            username=bus.username, password=bus.password, mechanism=bus.sasl_mechanism, ssl_context=context
        )
    return faust.SSLCredentials(context=context) if context is not None else None


def _tls(bus: Bus) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=bus.ca_file)
    if bus.certificate_file is not None:
        context.load_cert_chain(bus.certificate_file, bus.key_file)
    return context
