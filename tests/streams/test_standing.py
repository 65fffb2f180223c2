"""Groups as they are seen from outside, on a real broker."""

from __future__ import annotations

import time
from contextlib import suppress
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.errors import BusError
from streams.bus import Bus
from streams.standing import Standing, newest_ns, standings
from tests.streams.stage import WITHIN_S, awaited

pytestmark = pytest.mark.kafka

RECORDS = 4
"""In each of two partitions."""


@pytest.fixture
def topic(kafka: str) -> str:
    """A topic whose brokers stamp the records, as all of the catalogue's do."""
    name = f"t{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})
    stamped = {"message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(name, 2, 1, config=stamped)], operation_timeout=30)[name].result()
    return name


def produce(kafka: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(2 * RECORDS):
        producer.produce(topic, b"x", partition=number % 2, timestamp=1_000)  # ours, which the broker ignores
    assert producer.flush(60) == 0


def commit(kafka: str, group: str, topic: str, *offsets: int) -> None:
    """Commit as soon as the brokers can: new ones have yet to make the topic that holds what groups commit."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    admin = AdminClient({"bootstrap.servers": kafka})

    def done() -> bool:
        [asked] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
        with suppress(KafkaException):
            return all(place.error is None for place in asked.result().topic_partitions)
        return False

    awaited(done, "coordinator")


def standing_of(bus: Bus, topic: str, *groups: str) -> list[Standing]:
    found = standings(bus, {group: [topic] for group in groups}, within_s=WITHIN_S)
    return [found[group] for group in groups]


def test_what_waits_is_counted_and_dated(kafka: str, topic: str) -> None:
    bus, group = Bus(kafka), f"g{uuid4().hex[:8]}"
    assert newest_ns(bus, [topic]) is None
    assert standing_of(bus, topic, group) == [Standing(members=0, behind=0)]
    before_s = time.time()
    produce(kafka, topic)
    after_s = time.time()
    newest = newest_ns(bus, [topic])
    assert newest is not None
    assert before_s - 0.001 <= newest / 1e9 <= after_s + 0.001

    [never] = standing_of(bus, topic, group)
    assert (never.members, never.behind, never.has_run) == (0, 2 * RECORDS, False)
    assert never.oldest_ns is not None
    assert before_s - 0.001 <= never.oldest_ns / 1e9 <= newest / 1e9

    commit(kafka, group, topic, RECORDS, RECORDS - 1)
    assert [standing.behind for standing in standing_of(bus, topic, group)] == [1]
    commit(kafka, group, topic, RECORDS, RECORDS)
    assert standing_of(bus, topic, group) == [Standing(members=0, behind=0, has_run=True)]


def test_groups_are_told_apart(kafka: str, topic: str) -> None:
    bus, here, there = Bus(kafka), f"g{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
    produce(kafka, topic)
    commit(kafka, here, topic, RECORDS, RECORDS)
    assert [standing.behind for standing in standing_of(bus, topic, here, there)] == [0, 2 * RECORDS]


def test_a_topic_that_is_missing_is_said(kafka: str) -> None:
    with pytest.raises(BusError, match="missing: not-there: run `offbeat topics apply`"):
        standings(Bus(kafka), {"g": ["not-there"]})
    assert standings(Bus(kafka), {}) == {}
