"""Questions that a real broker answers late."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.errors import BusError
from streams.brokers import EARLIEST, LATEST, NEWEST, Brokers
from streams.bus import LIBRDKAFKA, Bus

NOBODY = Bus("127.0.0.1:1")

PARTITIONS = 200
"""So many that the broker leads some of them only after it has said that the topic is made."""


@pytest.mark.kafka
def test_a_topic_can_be_asked_of_as_soon_as_it_is_made(kafka: str) -> None:
    bus, topic = Bus(kafka), f"t{uuid4().hex[:8]}"
    places = [(topic, partition) for partition in range(PARTITIONS)]
    admin = AdminClient(bus.librdkafka(), logger=LIBRDKAFKA)
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=30)[topic].result()
        brokers = Brokers(bus, within_s=30.0)
        starts = brokers.offsets(places, EARLIEST)
        assert {place: found.offset for place, found in starts.items()} == dict.fromkeys(places, 0)
        producer = Producer(bus.librdkafka(), logger=LIBRDKAFKA)
        producer.produce(topic, b"x", partition=3)
        assert producer.flush(60) == 0
        ends = brokers.offsets(places, LATEST)
        assert {place: found.offset for place, found in ends.items() if found.offset} == {(topic, 3): 1}
        newest = brokers.offsets(places[3:5], NEWEST)
        assert newest[topic, 3].timestamp > 0
        assert newest[topic, 4].timestamp == -1
    finally:
        admin.delete_topics([topic])[topic].result()


def answered_after(refusals: int, code: int) -> tuple[str, list[AdminClient]]:
    """The answer to a question that is refused so many times before, and whom it was put to each time."""
    asked: list[AdminClient] = []

    def question(admin: AdminClient) -> str:
        asked.append(admin)
        if len(asked) <= refusals:
            raise KafkaException(KafkaError(code))
        return "answer"

    return Brokers(NOBODY, within_s=60.0).ask("group g", question), asked


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_what_passes_is_asked_again_of_brokers_met_anew(code: int) -> None:
    answer, asked = answered_after(2, code)
    assert answer == "answer"
    assert len(set(map(id, asked))) == len(asked) == 3


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._AUTHENTICATION])
def test_what_lasts_is_said_at_once(code: int) -> None:
    with pytest.raises(BusError, match="group g cannot be read"):
        answered_after(1, code)


def test_brokers_that_are_away_are_not_asked_for_ever() -> None:
    with pytest.raises(BusError, match="t cannot be read"):
        Brokers(NOBODY, within_s=0.1).offsets([("t", 0)], LATEST)
    assert Brokers(NOBODY, within_s=0.1).offsets([], LATEST) == {}
