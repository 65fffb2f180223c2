"""Reading a topic whole, outside every consumer group."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from producers.publisher import Publisher
from schemas.errors import BusError
from schemas.message import Message
from schemas.topic import Topic
from streams import topics
from streams.bus import Bus
from streams.follower import Follower
from tests.streams.examples import TOPICS, number

pytestmark = pytest.mark.kafka


@pytest.fixture
def bus(kafka: str) -> Bus:
    return Bus(kafka)


@pytest.fixture
def topic(bus: Bus) -> Topic:
    topic = replace(TOPICS.numbers, name=f"t{uuid4().hex[:8]}")
    topics.apply(bus, [topic])
    return topic


@pytest.fixture
def publisher(bus: Bus) -> Iterator[Publisher]:
    publisher = Publisher(bus.librdkafka(), "test")
    yield publisher
    publisher.flush()


def places(messages: list[Message]) -> list[tuple[int, int]]:
    return sorted((message.partition, message.offset) for message in messages)


def test_it_reads_everything_once_and_goes_on(bus: Bus, topic: Topic, publisher: Publisher) -> None:
    def send(count: int) -> None:
        for value in range(count):
            publisher.send(number(topic, f"job{value}", value))
        publisher.flush()

    with Follower(bus, topic.name) as follower:
        assert list(follower.catch_up()) == []
        send(20)
        first = list(follower.catch_up())
        assert len(set(places(first))) == 20
        assert list(follower.catch_up()) == []
        send(5)
        second = list(follower.catch_up())
        assert len(set(places(first + second))) == 25
    with Follower(bus, topic.name) as another:
        assert places(list(another.catch_up())) == places(first + second)


def test_while_it_rests_nothing_is_fetched_and_then_it_goes_on(bus: Bus, topic: Topic, publisher: Publisher) -> None:
    def send(value: int) -> None:
        publisher.send(number(topic, f"job{value}", value))
        publisher.flush()

    with Follower(bus, topic.name) as follower, Follower(bus, topic.name) as another:
        send(1)
        first = list(follower.catch_up())
        follower.rest()
        send(2)
        assert len(list(another.catch_up())) == 2
        assert list(follower.poll()) == []
        second = list(follower.catch_up())
        assert len(set(places(first + second))) == len(first + second) == 2


def test_a_poll_waits_for_what_comes(bus: Bus, topic: Topic, publisher: Publisher) -> None:
    def send() -> None:
        publisher.send(number(topic, "late", 1))
        publisher.flush()

    with Follower(bus, topic.name) as follower, ThreadPoolExecutor(1) as executor:
        sending = executor.submit(send)
        polled = (message for _ in range(5) for message in follower.poll(60))  # one may only tell of a partition's end
        assert next(polled).key == "late"
        sending.result()


def test_messages_come_as_they_were_sent_with_the_brokers_time(bus: Bus, topic: Topic, publisher: Publisher) -> None:
    sent = number(topic, "a", 7)
    publisher.send(sent)
    publisher.send(replace(sent, value=None))
    publisher.flush()
    with Follower(bus, topic.name) as follower:
        one, two = follower.catch_up()
    assert (one.topic, one.key, one.value) == (sent.topic, sent.key, sent.value)
    assert sent.headers.items() <= one.headers.items()
    assert two.value is None
    assert two.timestamp_ns >= one.timestamp_ns > int(sent.headers["watermark_ns"])


def test_it_starts_where_it_is_told(bus: Bus, topic: Topic, publisher: Publisher) -> None:
    publisher.send(number(topic, "a", 1))
    publisher.flush()
    with Follower(bus, topic.name) as follower:
        [message] = follower.catch_up()
    with Follower(bus, topic.name, since_ns=message.timestamp_ns) as follower:
        assert len(list(follower.catch_up())) == 1
    with Follower(bus, topic.name, since_ns=message.timestamp_ns + 1_000_000) as follower:
        assert list(follower.catch_up()) == []


def test_a_missing_topic_is_said_at_once(bus: Bus) -> None:
    with pytest.raises(BusError, match=r"topic nowhere is missing: run `offbeat topics apply`"):
        Follower(bus, "nowhere")
