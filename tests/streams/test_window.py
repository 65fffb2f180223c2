"""A window of a topic: what it holds, of whom, and what is no longer there."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from producers.publisher import Publisher
from schemas.message import Message
from schemas.topic import Topic
from streams import topics, window
from streams.bus import Bus
from streams.follower import Follower
from streams.window import Held
from tests.streams.examples import TOPICS, number, value_of

pytestmark = pytest.mark.kafka

FOR_EVER = 1 << 62


@pytest.fixture
def bus(kafka: str) -> Bus:
    return Bus(kafka)


@pytest.fixture
def topic(bus: Bus) -> Topic:
    topic = replace(TOPICS.numbers, name=f"t{uuid4().hex[:8]}", partitions=1)
    topics.apply(bus, [topic])
    publisher = Publisher(bus.librdkafka(), "test")
    for value in range(6):
        publisher.send(number(topic, "ab"[value % 2], value))
        publisher.flush()
    return topic


def values(messages: Sequence[Message], topic: Topic) -> list[int]:
    return [value_of(message, topic) for message in messages]


def held(
    bus: Bus, topic: Topic, since_ns: int, until_ns: int, jobs: Sequence[str] = (), *, now_ns: int = 0
) -> tuple[list[Message], int | None]:
    """All of a window, and before when there is no more."""
    whole = Held(bus, topic, since_ns, until_ns, jobs, now_ns=now_ns)
    messages = list(whole)
    return messages, whole.gone_before_ns


def test_a_window_holds_what_was_appended_in_it(bus: Bus, topic: Topic) -> None:
    whole, gone = held(bus, topic, 0, FOR_EVER)
    assert (values(whole, topic), gone) == ([0, 1, 2, 3, 4, 5], None)
    assert values(held(bus, topic, 0, FOR_EVER, ["b"])[0], topic) == [1, 3, 5]
    first, last = whole[0].timestamp_ns, whole[-1].timestamp_ns
    between = [message for message in whole if first < message.timestamp_ns < last]
    assert values(held(bus, topic, first + 1, last)[0], topic) == values(between, topic)


def test_what_came_after_a_window_is_not_read(bus: Bus, topic: Topic) -> None:
    whole, _ = held(bus, topic, 0, FOR_EVER)
    for until_ns in (whole[3].timestamp_ns, whole[3].timestamp_ns + 1):
        with Follower(bus, topic.name, since_ns=0) as follower:
            [end] = follower.ends(until_ns).values()
        within = [message for message in whole if message.timestamp_ns < until_ns]
        assert end == len(within)
        assert values(held(bus, topic, 0, until_ns)[0], topic) == values(within, topic)
    with Follower(bus, topic.name, since_ns=0) as follower:
        assert list(follower.ends(FOR_EVER).values()) == [6]


def test_partitions_are_merged_by_time_and_none_runs_ahead(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_AHEAD", 4)
    topic = replace(TOPICS.numbers, name=f"t{uuid4().hex[:8]}", partitions=3)
    topics.apply(bus, [topic])
    publisher = Publisher(bus.librdkafka(), "test")
    for value in range(60):
        publisher.send(number(topic, "abcdefgh"[value % 8], value))
        if value % 10 == 9:  # in between all have the same time
            publisher.flush()
    publisher.flush()
    found, _ = held(bus, topic, 0, FOR_EVER)
    assert sorted(values(found, topic)) == list(range(60))
    assert len({message.partition for message in found}) > 1
    times = [message.timestamp_ns for message in found]
    assert times == sorted(times)
    for partition in range(3):
        offsets = [message.offset for message in found if message.partition == partition]
        assert offsets == sorted(offsets)


def test_what_was_deleted_is_known_to_be_gone(bus: Bus, topic: Topic) -> None:
    whole, _ = held(bus, topic, 0, FOR_EVER)
    admin = AdminClient(bus.librdkafka())
    [deleted] = admin.delete_records([TopicPartition(topic.name, 0, 4)]).values()
    deleted.result()
    left, gone = held(bus, topic, 0, FOR_EVER)
    assert (values(left, topic), gone) == ([4, 5], whole[4].timestamp_ns)
    assert held(bus, topic, 0, 10) == ([], 10)  # something came later
    [deleted] = admin.delete_records([TopicPartition(topic.name, 0, 6)]).values()
    deleted.result()
    assert held(bus, topic, 10, 20, now_ns=11) == ([], None)  # whatever there was may have been older
    assert held(bus, topic, 10, 20, now_ns=FOR_EVER) == ([], 20)
