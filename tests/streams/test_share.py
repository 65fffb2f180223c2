"""What a worker does between two rebalances, and in which order."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from schemas import catalogue
from schemas.errors import DeliveryError, ReceiverError, TooMuchPoison
from schemas.message import Message
from schemas.processor import SavedState
from streams.checkpoints import Checkpoints, counted_record, state_record
from streams.control_view import Jobs
from streams.metrics import Metrics
from streams.share import Context, Share
from tests.streams.examples import END, TOPICS, Asker, Sums, number

NUMBERS, SUMS, STATE = TOPICS.numbers.name, TOPICS.sums.name, catalogue.STATE.name
SAVED = (f"send {STATE}", "flush")


class FakeOutbox:
    """Notes what happens in ``events``; fails to flush while ``broken``, or once it was sent what it ``breaks_on``."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.sent: list[Message] = []
        self.broken = False
        self.breaks_on = ""

    def send(self, message: Message) -> None:
        self.broken = self.broken or message.topic == self.breaks_on
        self.sent.append(message)
        self.events.append(f"send {message.topic}" + (" tombstone" if message.value is None else ""))

    def flush(self) -> None:
        if self.broken:
            raise DeliveryError("broken")
        self.events.append("flush")


class SinkOfSums(Sums):
    """Saves its state and delivers to the outside."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events = events
        self._waiting: set[str] = set()
        self.failing = False

    def process(self, message: Message) -> Iterable[Message]:
        self._waiting.add(message.job)
        return super().process(message)

    def flush(self) -> None:
        self._events.append("sink flush")
        self._changed |= self._waiting & self._sums.keys()  # what was delivered is part of the state
        self._waiting.clear()
        if self.failing:
            raise ReceiverError("away")


def at(partition: int, offset: int, value: int = 1, job: str = "a") -> Message:
    return replace(number(TOPICS.numbers, job, value), partition=partition, offset=offset)


class World:
    """A share whose outside is visible."""

    def __init__(self, saved: Mapping[str, SavedState] | None = None) -> None:
        self.events: list[str] = []
        self.made: list[int] = []
        self.outbox = FakeOutbox(self.events)
        self.checkpoints = Checkpoints("sums")
        for job, state in (saved or {}).items():
            self.checkpoints.take(state_record("sums", job, 0, state))
        self.metrics = Metrics("sums")
        self.share = Share(self.make, jobs=Jobs(), saved=self.saved, outbox=self.outbox, metrics=self.metrics)

    def saved(self) -> Checkpoints:
        return self.checkpoints

    def make(self, context: Context) -> Sums:
        self.made.append(context.partition)
        self.sink = SinkOfSums(self.events)
        return self.sink

    def happened(self) -> Iterable[str]:
        events = list(self.events)
        self.events.clear()
        return events


def test_the_order_of_a_commit_is_outputs_states_sinks_offsets_tombstones() -> None:
    world = World()
    world.share.take([at(0, 0), at(0, 1, END), at(0, 2, job="b")])
    assert world.happened() == [f"send {SUMS}"] * 3
    offsets = world.share.deliver(now_ns=0)
    assert offsets == {(NUMBERS, 0): 3}
    assert world.happened() == ["flush", *SAVED, "sink flush", *SAVED]
    world.share.committed(offsets)
    assert world.happened() == [f"send {STATE} tombstone"]


def test_what_saved_states_have_counted_in_is_known() -> None:
    world = World({"a": SavedState({NUMBERS: 7}, "sums/1", b"{}"), "b": SavedState({NUMBERS: 5000}, "sums/1", b"{}")})
    assert world.share.counted == {}
    world.share.open([0, 1])
    assert world.share.counted == {(NUMBERS, 0): 5000}


def test_states_are_saved_as_those_of_their_group() -> None:
    outbox = FakeOutbox([])
    share = Share(
        lambda _: Sums(),
        jobs=Jobs(),
        saved=lambda: Checkpoints("trial.sums"),
        outbox=outbox,
        metrics=Metrics("sums"),
        saved_as="trial.sums",
    )
    share.take([at(0, 0), replace(at(0, 1), value=b"?")])
    share.deliver(now_ns=0)
    of_group, of_default = Checkpoints("trial.sums"), Checkpoints("sums")
    for record in outbox.sent:
        if record.topic == STATE:
            of_group.take(record)
            of_default.take(record)
    assert (list(of_group.of(0)), of_default.of(0)) == (["a"], {})
    assert of_group.bad_in_a_row(0)
    assert not of_default.bad_in_a_row(0)


def test_nothing_may_be_committed_when_outputs_are_not_safe() -> None:
    world = World()
    world.share.take([at(0, 0)])
    world.outbox.broken = True
    with pytest.raises(DeliveryError):
        world.share.deliver(now_ns=0)
    assert "sink flush" not in world.events


def test_what_a_sink_delivered_is_saved_though_it_failed_in_the_end() -> None:
    world = World()
    world.share.take([at(0, 0)])
    world.sink.failing = True
    with pytest.raises(ReceiverError):
        world.share.deliver(now_ns=0)
    assert world.happened() == [f"send {SUMS}", "flush", *SAVED, "sink flush", *SAVED]


def test_a_sink_delivers_nothing_that_could_not_be_saved() -> None:
    world = World()
    world.share.take([at(0, 0)])
    world.outbox.breaks_on = STATE
    with pytest.raises(DeliveryError):
        world.share.deliver(now_ns=0)
    assert "sink flush" not in world.events


def test_an_instance_that_is_opened_works_without_a_message() -> None:
    world = World(saved={"a": SavedState({NUMBERS: 5}, "sums/1", b"{}")})
    world.share.open([3, 1])
    world.share.open([1])
    assert sorted(world.made) == [1, 3]
    assert world.share.deliver(now_ns=0) == {}
    assert world.happened() == ["flush", "sink flush", "sink flush"]


def test_an_instance_a_partition_number_and_offsets_of_each() -> None:
    world = World()
    world.share.take([at(0, 0), at(2, 7), at(0, 1)])
    assert world.made == [0, 2]
    assert world.share.deliver(now_ns=0) == {(NUMBERS, 0): 2, (NUMBERS, 2): 8}


def test_what_is_committed_is_not_committed_again() -> None:
    world = World()
    world.share.take([at(0, 0)])
    world.share.committed(world.share.deliver(now_ns=0))
    assert world.share.deliver(now_ns=0) == {}
    world.share.take([at(0, 1)])
    assert world.share.deliver(now_ns=0) == {(NUMBERS, 0): 2}


def test_a_restart_would_begin_at_what_is_committed_or_was_first() -> None:
    world = World()
    world.share.take([at(0, 7), at(0, 8)])
    assert world.share.reached[NUMBERS, 0].following == 9
    assert world.share.committed_offset((NUMBERS, 0)) == 7
    world.share.committed(world.share.deliver(now_ns=0))
    assert world.share.committed_offset((NUMBERS, 0)) == 9


def test_an_instance_starts_from_what_was_saved() -> None:
    world = World(saved={"a": SavedState({NUMBERS: 5}, "sums/1", b"{}")})
    world.share.take([at(0, 4)])
    assert world.happened() == []
    world.share.take([at(0, 5)])
    assert world.happened() == [f"send {SUMS}"]


def test_an_instance_goes_on_counting_bad_messages_in_a_row() -> None:
    world = World()
    world.checkpoints.take(counted_record("sums", NUMBERS, 2, SavedState({NUMBERS: 5}, "bad_in_a_row/1", b"48")))
    world.share.take([replace(at(2, 5), value=b"?")])
    assert world.share.deliver(now_ns=0) == {(NUMBERS, 2): 6}
    assert f"send {STATE}" in world.happened()
    with pytest.raises(TooMuchPoison, match="50 bad messages in a row"):
        world.share.take([replace(at(2, 6), value=b"?")])
    world.share.take([replace(at(1, 6), value=b"?")])


def test_who_waits_for_an_answer_is_known_to_hold_its_offset() -> None:
    share = Share(
        lambda _: Asker(within_ns=10),
        jobs=Jobs(),
        saved=lambda: Checkpoints("asker"),
        outbox=FakeOutbox([]),
        metrics=Metrics("asker"),
    )
    share.take([at(3, 0), at(3, 1)])
    share.deliver(now_ns=0)
    assert share.held == {(NUMBERS, 3): 0}


def test_ticks_come_with_the_time_and_are_delivered() -> None:
    events: list[str] = []
    share = Share(
        lambda _: Asker(within_ns=10),
        jobs=Jobs(),
        saved=lambda: Checkpoints("asker"),
        outbox=FakeOutbox(events),
        metrics=Metrics("asker"),
    )
    share.take([replace(at(0, 4), taken_ns=100)])
    events.clear()
    assert share.deliver(now_ns=109) == {(NUMBERS, 0): 4}
    assert events == ["flush"]
    assert share.deliver(now_ns=110) == {(NUMBERS, 0): 4}
    assert events == ["flush", f"send {TOPICS.answers.name}", "flush"]


def test_it_counts() -> None:
    world = World()
    world.share.take([at(0, 0), replace(at(0, 1), value=b"?"), at(0, 2)])

    def count(name: str, **labels: str) -> float | None:
        return world.metrics.registry.get_sample_value(name, {"processor": "sums", **labels})

    assert count("offbeat_messages_total", topic=NUMBERS) == 3
    assert count("offbeat_published_total", topic=SUMS) == 2
    assert count("offbeat_published_total", topic="dead_letters") == 1
    assert count("offbeat_dead_letters_total") == 1
    assert count("offbeat_lost_messages_total", topic=NUMBERS) == 0


def test_it_counts_what_never_came_between_messages_of_a_producer() -> None:
    world = World()
    messages = [at(0, offset).stamped("agent/1f", number, 0) for offset, number in enumerate((3, 4, 7, 7))]
    bad = replace(at(0, 4), value=b"?").stamped("agent/1f", 9, 0)
    world.share.take([*messages, bad, at(0, 5).stamped("agent/2c", 40, 0), at(1, 0, job="b").stamped("agent/1f", 1, 0)])
    labels = {"processor": "sums", "topic": NUMBERS}
    assert world.metrics.registry.get_sample_value("offbeat_lost_messages_total", labels) == 2 + 1
