"""The one way to write to Kafka."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from producers.publisher import MAX_MESSAGE_BYTES, Publisher
from schemas.errors import DeliveryError
from schemas.message import Message

PARTITIONS = 5
JAVA_MURMUR2 = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
"""Hashes that Kafka's own Java client has of these keys."""


@pytest.fixture
def topic(kafka: str) -> str:
    name = f"t{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})
    [future] = admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)]).values()
    future.result()
    return name


@pytest.fixture
def publisher(kafka: str) -> Publisher:
    return Publisher({"bootstrap.servers": kafka}, "agent")


def message(topic: str, key: str = "a", value: bytes | None = b"1") -> Message:
    return Message(topic, key, value, {"schema": "test/1", "job": "a"})


def received(kafka: str, topic: str) -> Iterator[tuple[int, str, bytes | None, dict[str, str]]]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ends = 0
    while ends < PARTITIONS:
        record = consumer.poll(30)
        assert record is not None, f"{topic} was not read within 30 s"
        if record.error() is not None:
            ends += 1
            continue
        headers = {str(name): _text(value) for name, value in list(record.headers() or ())}
        yield record.partition() or 0, (record.key() or b"").decode(), record.value(), headers
    consumer.close()


def _text(value: object) -> str:
    assert isinstance(value, bytes)
    return value.decode()


@pytest.mark.kafka
def test_messages_are_stamped_numbered_and_counted(kafka: str, topic: str, publisher: Publisher) -> None:
    for value in (b"1", b"2", None):
        publisher.send(message(topic, value=value))
    publisher.flush()
    found = list(received(kafka, topic))
    assert [value for _, _, value, _ in found] == [b"1", b"2", None]
    assert [headers["seq"] for _, _, _, headers in found] == ["0", "1", "2"]
    assert {headers["producer"] for _, _, _, headers in found} == {publisher.producer}
    assert all(int(headers["produced_ns"]) > 0 for _, _, _, headers in found)
    assert all(headers["job"] == "a" for _, _, _, headers in found)
    assert (publisher.delivered, publisher.failed) == (3, 0)


@pytest.mark.kafka
def test_what_was_given_up_leaves_a_gap_in_the_numbers(kafka: str, topic: str, publisher: Publisher) -> None:
    publisher.skip(topic, "a", 2)  # a reader cannot tell a first number from having begun in the middle
    publisher.send(message(topic))
    assert not publisher.gaps
    publisher.send(message(topic))
    assert publisher.gaps == {(topic, "a"): 2}
    publisher.skip(topic, "a", 1)
    publisher.skip(topic, "a", 3)
    publisher.send(message(topic))
    assert publisher.gaps == {(topic, "a"): 5}
    publisher.flush()
    assert [headers["seq"] for _, _, _, headers in received(kafka, topic)] == ["0", "3", "7"]


@pytest.mark.kafka
def test_the_messages_of_a_key_are_numbered_by_themselves(kafka: str, topic: str, publisher: Publisher) -> None:
    for key in "abba":
        publisher.send(message(topic, key))
    publisher.flush()
    numbers = [(key, headers["seq"]) for _, key, _, headers in received(kafka, topic)]
    assert sorted(numbers) == [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1")]


@pytest.mark.kafka
def test_each_start_has_an_id_of_its_own(kafka: str) -> None:
    starts = {Publisher({"bootstrap.servers": kafka}, "agent").producer for _ in range(3)}
    assert len(starts) == 3
    assert all(start.startswith("agent/") for start in starts)


@pytest.mark.kafka
def test_keys_go_where_every_other_client_sends_them(kafka: str, topic: str, publisher: Publisher) -> None:
    for key in JAVA_MURMUR2:
        publisher.send(message(topic, key))
    publisher.flush()
    assert {key: partition for partition, key, _, _ in received(kafka, topic)} == {
        key: (hashed & 0x7FFFFFFF) % PARTITIONS for key, hashed in JAVA_MURMUR2.items()
    }


@pytest.mark.kafka
def test_a_full_queue_slows_the_sender_down_and_loses_nothing(kafka: str, topic: str) -> None:
    publisher = Publisher({"bootstrap.servers": kafka, "queue.buffering.max.messages": 5}, "agent")
    for number in range(200):
        publisher.send(message(topic, value=str(number).encode()))
    publisher.flush()
    assert [value for _, _, value, _ in received(kafka, topic)] == [str(number).encode() for number in range(200)]


@pytest.mark.kafka
def test_what_failed_is_counted_and_told_by_the_next_flush(kafka: str, topic: str) -> None:
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka, "topic.metadata.propagation.max.ms": 100}
    publisher = Publisher(client, "agent")
    publisher.send(message(topic))
    publisher.send(message("nowhere"))
    with pytest.raises(DeliveryError, match=r"1 failed so far, refused: nowhere: .*Unknown topic"):
        publisher.flush()
    assert (publisher.delivered, publisher.failed) == (1, 1)
    publisher.send(message(topic))
    publisher.flush()
    assert publisher.delivered == 2


@pytest.mark.kafka
def test_what_no_topic_takes_is_refused_at_once(topic: str, publisher: Publisher) -> None:
    with pytest.raises(DeliveryError, match=f"{topic}: a record of {MAX_MESSAGE_BYTES} bytes was refused"):
        publisher.send(message(topic, value=bytes(MAX_MESSAGE_BYTES)))


def test_a_broker_that_is_away_is_told_in_time() -> None:
    publisher = Publisher({"bootstrap.servers": "127.0.0.1:1"}, "agent", flush_within_s=0.3)
    publisher.send(message("t"))
    with pytest.raises(DeliveryError, match="agent/"):
        publisher.flush()


def test_a_full_queue_and_no_broker_end_in_an_error_and_not_in_waiting() -> None:
    client: dict[str, str | int | float | bool] = {
        "bootstrap.servers": "127.0.0.1:1",
        "queue.buffering.max.messages": 1,
    }
    publisher = Publisher(client, "agent", flush_within_s=0.3)
    for _ in range(3):
        publisher.send(message("t"))
    with pytest.raises(DeliveryError, match=r"t: Local: Message timed out"):
        publisher.flush()
    assert publisher.delivered == 0


def test_no_setting_of_the_connection_makes_it_lose_repeat_or_scatter(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []

    def producer(properties: dict[str, object], **_: object) -> object:
        made.append(properties)
        return object()

    monkeypatch.setattr("producers.publisher.Producer", producer)
    Publisher({"enable.idempotence": False, "acks": 0, "partitioner": "random", "linger.ms": 50}, "agent")
    [properties] = made
    promised = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random", "compression.type": "zstd"}
    assert properties | promised == properties
    assert properties["linger.ms"] == 50
