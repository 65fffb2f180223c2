"""The Faust loop against an app that does what it is told: generations, commits, failures; and what Faust must keep."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import faust
import pytest
from faust.streams import Stream
from faust.transport.consumer import Consumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP

from schemas.errors import BusError
from schemas.message import Message
from streams.bus import Bus
from streams.faust_loop import FaustLoop, Pace, _check_together, check_ends, make_app
from streams.health import Progress
from streams.metrics import Metrics
from streams.share import Place, Reached


class FakeConsumer:
    """Takes commits, or refuses them."""

    def __init__(self) -> None:
        self.commits: list[dict[tuple[str, int], int]] = []
        self.takes = True
        self.ends: dict[str, int] = {}
        self.earliest: dict[str, int] = {}
        self.away = False
        self._committed_offset: dict[TP, int | None] = {}

    async def _commit_offsets(self, offsets: dict[TP, int]) -> bool:
        if self.takes:
            self.commits.append({(tp.topic, tp.partition): offset for tp, offset in offsets.items()})
        return self.takes

    def assignment(self) -> set[TP]:
        return {TP("numbers", 0), TP("more_numbers", 0)}

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        if self.away:
            raise ConnectionError("no broker")
        return {tp: self.ends.get(tp.topic, 0) for tp in tps}

    async def earliest_offsets(self, *tps: TP) -> dict[TP, int]:
        return {tp: self.earliest.get(tp.topic, 0) for tp in tps}


class FakeApp:
    """Keeps what the loop registers: its task and its timers by interval."""

    def __init__(self) -> None:
        self.consumer_generation_id = 1
        self.rebalancing = False
        self.consumer = FakeConsumer()
        self.timers: dict[float, Callable[[], Coroutine[Any, Any, None]]] = {}
        self.task: Callable[[Any], Coroutine[Any, Any, None]]

    def topic(self, *names: str) -> tuple[str, ...]:
        return names

    def agent(self, _: object, **__: object) -> Callable[[Any], None]:
        def keep(task: Any) -> None:
            self.task = task

        return keep

    def timer(self, interval: float) -> Callable[[Any], None]:
        def keep(timer: Any) -> None:
            self.timers[interval] = timer

        return keep


class FakeStream:
    """Brings one batch of events."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def noack(self) -> "FakeStream":
        return self

    async def noack_take(self, _: int, within: float) -> Any:
        assert within > 0
        yield self._events


@dataclass
class Record:
    """A record as Faust hands it on."""

    offset: int
    generation_id: int = 1
    topic: str = "numbers"
    partition: int = 0
    key: bytes | None = b"a"
    value: bytes | None = b"1"
    headers: tuple[tuple[str, bytes | None], ...] = (("job", b"x"), ("empty", None), ("job", b"a"))
    timestamp: float = 12.345
    timestamp_type: int = 1


@dataclass
class FakeShare:
    """Passes every message; fails where it is told to."""

    number: int
    taken: list[Message] = field(default_factory=list)
    noted: list[dict[Place, int]] = field(default_factory=list)
    fails_at: int | None = None
    deliveries: int = 0
    while_delivering: Callable[[], None] = lambda: None
    reached: dict[Place, Reached] = field(default_factory=dict)
    held: dict[Place, int] = field(default_factory=dict)
    counted: dict[Place, int] = field(default_factory=dict)
    opened: list[frozenset[int]] = field(default_factory=list)

    def open(self, partitions: frozenset[int]) -> None:
        self.opened.append(partitions)

    def take(self, messages: list[Message]) -> None:
        for message in messages:
            if message.offset == self.fails_at:
                raise RuntimeError("broken")
            self.taken.append(message)
            place = (message.topic, message.partition)
            self.reached[place] = Reached(self.taken[0].offset, message.offset + 1, message.timestamp_ns)

    def committed_offset(self, place: Place) -> int:
        return self.noted[-1][place] if self.noted else self.reached[place].first

    def deliver(self, _: int) -> dict[Place, int]:
        self.deliveries += 1
        self.while_delivering()
        return {("numbers", 0): self.taken[-1].offset + 1} if self.taken else {}

    def committed(self, offsets: dict[Place, int]) -> None:
        self.noted.append(offsets)


class World:
    """A loop between a fake app and fake shares."""

    def __init__(self, fails_at: int | None = None, *, at_once: bool = False) -> None:
        self.app = FakeApp()
        self.shares: list[FakeShare] = []
        self.endings = 0
        self._fails_at = fails_at
        self.metrics = Metrics("sums")
        self.now = 0.0
        self.progress = Progress(within_s=10, clock=lambda: self.now)
        app: Any = self.app
        begin: Any = self._begin
        self.loop = FaustLoop(
            app,
            ["numbers", "more_numbers"],
            Pace(cycle_s=1.0),
            begin=begin,
            follow=lambda: None,
            on_failure=self._ending,
            metrics=self.metrics,
            progress=self.progress,
            at_once=at_once,
        )

    async def bring(self, *records: Record) -> None:
        @dataclass
        class Event:
            message: Record

        await self.app.task(FakeStream([Event(record) for record in records]))

    async def cycle(self) -> None:
        await self.app.timers[1.0]()

    async def look(self) -> None:
        await self.app.timers[5.0]()

    def figure(self, name: str, topic: str = "numbers") -> float | None:
        labels = {"processor": "sums", "topic": topic}
        return self.metrics.registry.get_sample_value(f"offbeat_{name}", labels)

    def _begin(self) -> FakeShare:
        self.shares.append(FakeShare(len(self.shares), fails_at=self._fails_at))
        return self.shares[-1]

    def _ending(self) -> None:
        self.endings += 1


def test_records_become_messages() -> None:
    async def scenario() -> None:
        world = World()
        await world.bring(Record(7, key=b"\xffkey"))
        [message] = world.shares[0].taken
        assert (message.topic, message.partition, message.offset) == ("numbers", 0, 7)
        assert message.key == "\\xffkey"
        assert message.headers == {"job": "a"}
        assert message.timestamp_ns == 12_345_000_000
        assert message.taken_ns > message.timestamp_ns

    asyncio.run(scenario())


def test_events_of_an_assignment_that_is_over_are_skipped() -> None:
    async def scenario() -> None:
        world = World()
        await world.bring(Record(7, generation_id=0), Record(8), Record(9, generation_id=2))
        assert [message.offset for message in world.shares[0].taken] == [8]

    asyncio.run(scenario())


def test_a_new_generation_starts_anew() -> None:
    async def scenario() -> None:
        world = World()
        await world.bring(Record(7))
        world.app.consumer_generation_id = 2
        await world.cycle()
        assert world.app.consumer.commits == [], "what was processed for an assignment that is over was committed"
        await world.bring(Record(7, generation_id=2))
        await world.bring(Record(8, generation_id=2))
        assert [[message.offset for message in share.taken] for share in world.shares] == [[7], [7, 8]]
        await world.cycle()
        assert world.app.consumer.commits == [{("numbers", 0): 9}]

    asyncio.run(scenario())


def test_an_assignment_begins_at_its_first_message() -> None:
    async def scenario() -> None:
        world = World()
        await world.cycle()
        assert world.shares == []

    asyncio.run(scenario())


def test_or_at_once_for_a_processor_that_has_to_do_without_one() -> None:
    async def scenario() -> None:
        world = World(at_once=True)
        world.app.rebalancing = True
        await world.cycle()
        assert world.shares == []
        world.app.rebalancing = False
        for generation in (1, 1, 2):
            world.app.consumer_generation_id = generation
            await world.cycle()
        assert [share.opened for share in world.shares] == [[frozenset({0})]] * 2
        assert [share.deliveries for share in world.shares] == [2, 1]
        await world.bring(Record(7, generation_id=2))
        assert [[message.offset for message in share.taken] for share in world.shares] == [[], [7]]

    asyncio.run(scenario())


def test_nothing_is_committed_while_partitions_move() -> None:
    async def scenario() -> None:
        world = World()
        await world.bring(Record(7))
        world.app.rebalancing = True
        await world.cycle()
        assert world.app.consumer.commits == []
        assert world.shares[0].deliveries == 0

    asyncio.run(scenario())


def test_nothing_is_committed_when_partitions_moved_during_the_delivery() -> None:
    async def scenario() -> None:
        world = World()
        await world.bring(Record(7))
        world.shares[0].while_delivering = lambda: setattr(world.app, "consumer_generation_id", 2)
        await world.cycle()
        assert world.shares[0].deliveries == 1
        assert world.app.consumer.commits == []

    asyncio.run(scenario())


def test_only_what_the_broker_took_counts_as_committed() -> None:
    async def scenario() -> None:
        world = World()
        await world.bring(Record(7))
        world.app.consumer.takes = False
        await world.cycle()
        assert world.shares[0].noted == []
        world.app.consumer.takes = True
        await world.cycle()
        assert world.shares[0].noted == [{("numbers", 0): 8}]

    asyncio.run(scenario())


def test_after_a_failure_nothing_is_committed_any_more() -> None:
    async def scenario() -> None:
        world = World(fails_at=8)
        with pytest.raises(RuntimeError, match="broken"):
            await world.bring(Record(7), Record(8))
        await world.cycle()
        assert world.app.consumer.commits == []
        assert str(world.loop.failure) == "broken"
        assert world.endings == 1

    asyncio.run(scenario())


def test_what_is_processed_and_what_is_committed_is_seen() -> None:
    async def scenario() -> None:
        world = World()
        world.app.consumer.ends = {"numbers": 12}
        await world.bring(Record(7), Record(8))
        await world.look()
        assert (world.figure("lag_messages"), world.figure("uncommitted_messages")) == (3, 2)
        await world.cycle()
        await world.look()
        assert (world.figure("lag_messages"), world.figure("uncommitted_messages")) == (3, 0)
        assert (world.figure("lag_messages", "more_numbers"), world.figure("lag_seconds", "more_numbers")) == (0, 0)

    asyncio.run(scenario())


def test_a_backlog_that_never_arrives_is_seen_though_nothing_was_taken() -> None:
    async def scenario() -> None:
        world = World()
        world.app.consumer.ends = {"numbers": 12, "more_numbers": 30}
        world.app.consumer.earliest = {"more_numbers": 30}  # what it had held is kept no longer
        world.app.consumer._committed_offset[TP("numbers", 0)] = 10
        await world.look()
        assert world.figure("lag_messages") == 2
        world.now = 11
        await world.cycle()
        await world.look()
        assert world.progress.stuck() == "numbers partition 0: messages wait, and none was taken for 11 s"
        await world.bring(Record(10), Record(11))
        await world.look()
        assert world.progress.stuck() is None

    asyncio.run(scenario())


def test_an_offset_that_a_processor_holds_back_is_no_standstill() -> None:
    async def scenario() -> None:
        world = World()
        world.app.consumer.ends = {"numbers": 8}
        await world.bring(Record(7))
        world.app.consumer.takes = False
        for held in ({("numbers", 0): 0}, {}):
            world.shares[-1].held = held
            await world.look()
            world.now += 11
            await world.cycle()
            await world.look()
            assert (world.progress.stuck() is None) == bool(held)

    asyncio.run(scenario())


def test_commits_that_the_broker_refuses_are_no_progress() -> None:
    async def scenario() -> None:
        world = World()
        world.app.consumer.takes = False
        world.app.consumer.ends = {"numbers": 8}
        await world.bring(Record(7))
        await world.look()
        world.now = 11
        await world.cycle()
        await world.look()
        assert "no offset was committed" in str(world.progress.stuck())
        world.app.consumer.takes = True
        await world.cycle()
        await world.look()
        assert world.progress.stuck() is None

    asyncio.run(scenario())


def test_an_input_that_was_made_anew_ends_the_worker() -> None:
    async def scenario() -> None:
        world = World()
        world.app.consumer.ends = {"numbers": 8}
        await world.bring(Record(7))
        world.shares[-1].counted = {("numbers", 0): 5000}
        with pytest.raises(BusError, match="made anew"):
            await world.look()
        assert isinstance(world.loop.failure, BusError)

    asyncio.run(scenario())


def test_that_the_brokers_are_away_is_no_reason_to_restart() -> None:
    async def scenario() -> None:
        world = World()
        world.app.consumer.ends = {"numbers": 12}
        await world.bring(Record(7))
        await world.look()
        world.app.consumer.away = True
        for _ in range(4):
            world.now += 6
            await world.look()
            await world.cycle()
            assert world.progress.stuck() is None
        world.app.consumer.away = False
        await world.look()
        world.now += 11
        await world.cycle()
        await world.look()
        assert world.progress.stuck() is not None, "it goes on by itself, or is restarted now"

    asyncio.run(scenario())


def test_a_record_with_the_producers_time_is_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(BusError, match="producers' time"):
            await World().bring(Record(7, timestamp_type=0))

    asyncio.run(scenario())


def test_a_partition_number_comes_with_all_inputs_or_not_at_all() -> None:
    _check_together([TP("a", 0), TP("b", 0), TP("b", 3), TP("a", 3)], ["a", "b"])
    _check_together([], ["a", "b"])
    with pytest.raises(BusError, match=r"a: \[0, 1\]; b: \[0\]"):
        _check_together([TP("a", 0), TP("b", 0), TP("a", 1)], ["a", "b"])
    with pytest.raises(BusError, match=r"a: \[0\]; b: \[\]"):
        _check_together([TP("a", 0)], ["a", "b"])


def test_credentials_reach_faust() -> None:
    bus = Bus("one:9092,two:9093", "SASL_SSL", sasl_mechanism="SCRAM-SHA-512", username="offbeat", password="secret")
    conf = make_app(bus, "group", Pace()).conf
    assert [str(url) for url in conf.broker] == ["kafka://one:9092", "kafka://two:9093"]
    assert isinstance(conf.broker_credentials, faust.SASLCredentials)
    assert conf.broker_credentials.mechanism.value == "SCRAM-SHA-512"
    assert conf.broker_credentials.ssl_context is not None
    assert isinstance(make_app(Bus("one:9092", "SSL"), "group", Pace()).conf.broker_credentials, faust.SSLCredentials)
    assert make_app(Bus("one:9092"), "group", Pace()).conf.broker_credentials is None
    assert "secret" not in repr(bus)
    assert bus.librdkafka()["sasl.password"] == "secret"


def test_faust_is_the_one_that_was_measured() -> None:
    """The loop rests on parts of Faust that are private. When this fails, measure anew before going on."""
    assert version("faust-streaming") == "0.15.3"
    assert version("aiokafka") == "0.14.0"
    assert str(inspect.signature(Consumer._commit_offsets)) == (
        "(self, offsets: Mapping[faust.types.tuples.TP, int], start_new_transaction: bool = True) -> bool"
    )
    assert inspect.iscoroutinefunction(Consumer._commit_offsets)
    assert "_committed_offset" in Consumer.__annotations__
    assert list(inspect.signature(Stream.noack_take).parameters) == ["self", "max_", "within"]
    assert {"_on_sigterm", "_on_sigint"} <= set(dir(faust.Worker))
    app = make_app(Bus("one:9092"), "group", Pace())
    assert app.consumer_generation_id is not None
    assert app.rebalancing is False


def test_the_assignor_keeps_topics_together() -> None:
    assert make_app(Bus("one:9092"), "group", Pace()).conf.table_standby_replicas == 1
    chosen = inspect.getsource(AIOKafkaConsumerThread._create_worker_consumer)
    assert "if self.app.conf.table_standby_replicas > 0" in chosen


def test_inputs_that_hold_less_than_was_counted_in_were_made_anew() -> None:
    counted = {("numbers", 0): 5000, ("numbers", 1): 20}
    check_ends({("numbers", 0): 5000, ("numbers", 1): 21}, counted)
    check_ends({}, counted)
    with pytest.raises(BusError, match=r"numbers partition 0 ends at 100, .* before 5000: .* made anew"):
        check_ends({("numbers", 0): 100, ("numbers", 1): 21}, counted)


def test_what_nothing_was_committed_of_is_read_from_its_beginning_after_a_rebalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka seeks no offset 0: records that are fetched amid a rebalance, and dropped, would not come again."""
    app = make_app(Bus("127.0.0.1:9"), "group", Pace())
    transport: Any = app._new_transport()
    assert issubclass(transport.Consumer, Consumer)
    offsets = {TP("numbers", 0): 7, TP("numbers", 1): 0, TP("numbers", 2): None, TP("numbers", 3): 0}
    sought: dict[TP, int] = {}
    consumer = object.__new__(transport.Consumer)
    consumer._read_offset, consumer._committed_offset = {}, {}

    async def to_committed() -> dict[TP, int | None]:
        return offsets

    async def earliest(*tps: TP) -> dict[TP, int]:
        return {tp: 5 if tp.partition == 3 else 0 for tp in tps}

    async def seek(tp: TP, offset: int) -> None:
        sought[tp] = offset

    monkeypatch.setattr(consumer, "seek_to_committed", to_committed, raising=False)
    monkeypatch.setattr(consumer, "earliest_offsets", earliest, raising=False)
    monkeypatch.setattr(consumer, "seek", seek, raising=False)
    monkeypatch.setattr(consumer, "assignment", lambda: set(offsets), raising=False)
    asyncio.run(consumer.perform_seek())
    assert sought == {TP("numbers", 1): 0, TP("numbers", 2): 0, TP("numbers", 3): 5}
