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
from streams import topics
from streams.bus import Bus
from streams.window import held
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


def test_a_window_holds_what_was_appended_in_it(bus: Bus, topic: Topic) -> None:
    whole = held(bus, topic, 0, FOR_EVER, now_ns=0)
    assert (values(whole.messages, topic), whole.gone_before_ns) == ([0, 1, 2, 3, 4, 5], None)
    assert values(held(bus, topic, 0, FOR_EVER, ["b"], now_ns=0).messages, topic) == [1, 3, 5]
    first, last = whole.messages[0].timestamp_ns, whole.messages[-1].timestamp_ns
    of_window = held(bus, topic, first + 1, last, now_ns=0)
    between = [message for message in whole.messages if first < message.timestamp_ns < last]
    assert values(of_window.messages, topic) == values(between, topic)


def test_what_was_deleted_is_known_to_be_gone(bus: Bus, topic: Topic) -> None:
    whole = held(bus, topic, 0, FOR_EVER, now_ns=0).messages
    admin = AdminClient(bus.librdkafka())
    [deleted] = admin.delete_records([TopicPartition(topic.name, 0, 4)]).values()
    deleted.result()
    left = held(bus, topic, 0, FOR_EVER, now_ns=0)
    assert (values(left.messages, topic), left.gone_before_ns) == ([4, 5], whole[4].timestamp_ns)
    [deleted] = admin.delete_records([TopicPartition(topic.name, 0, 6)]).values()
    deleted.result()
    assert held(bus, topic, 10, 20, now_ns=11).gone_before_ns is None  # whatever there was may have been older
    assert held(bus, topic, 10, 20, now_ns=FOR_EVER).gone_before_ns == 20
