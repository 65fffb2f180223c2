"""The catalogue on a broker."""

from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from schemas import catalogue
from schemas.errors import BusError
from schemas.topic import Topic
from streams import topics
from streams.bus import Bus
from tests.streams.examples import TOPICS


def named(topic: Topic) -> Topic:
    return replace(topic, name=f"t{uuid4().hex[:8]}.{topic.name}")


def on_broker(bus: Bus, topic: Topic) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    admin = AdminClient(bus.librdkafka())
    [future] = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result().items()}


def test_settings_follow_the_catalogue() -> None:
    assert topics.settings_of(catalogue.JOBS)["cleanup.policy"] == "compact"
    assert int(topics.settings_of(catalogue.STATE)["min.compaction.lag.ms"]) > 0
    settings = topics.settings_of(catalogue.LOG_REQUESTS)
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("delete", "21600000")
    for topic in catalogue.TOPICS.values():
        settings = topics.settings_of(topic)
        assert settings["message.timestamp.type"] == "LogAppendTime"
        assert int(settings["max.message.bytes"]) > topic.max_bytes


@pytest.mark.kafka
def test_the_second_time_nothing_changes(kafka: str) -> None:
    bus, wanted = Bus(kafka), [named(topic) for topic in catalogue.TOPICS.values()]
    first = topics.apply(bus, wanted)
    assert {change.topic for change in first} == {topic.name for topic in wanted}
    assert all(change.before is None and change.applied for change in first)
    assert topics.apply(bus, wanted) == []
    for topic in wanted:
        found = on_broker(bus, topic)
        assert {name: found[name] for name in topics.settings_of(topic)} == topics.settings_of(topic)


@pytest.mark.kafka
def test_settings_are_adapted_and_partition_counts_are_not(kafka: str) -> None:
    bus, topic = Bus(kafka), named(TOPICS.numbers)
    topics.apply(bus, [topic])
    changed = replace(topic, retention_hours=2.0, max_bytes=1000, partitions=7)
    changes = topics.apply(bus, [changed])
    left = "left as it is, because records would change their partition"
    assert [str(change) for change in changes] == [
        f"{topic.name}: has 3 partitions, the catalogue says 7: {left}",
        f"{topic.name}: max.message.bytes {topic.max_bytes + 65536} -> 66536",
        f"{topic.name}: retention.ms 86400000 -> 7200000",
    ]
    assert on_broker(bus, topic)["retention.ms"] == "7200000"
    assert [(change.before, change.applied) for change in topics.apply(bus, [changed])] == [("3", False)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (topics.Change("one", "partitions", None, "1"), "one: created with 1 partition"),
        (topics.Change("two", "partitions", None, "2"), "two: created with 2 partitions"),
    ],
)
def test_a_topic_of_one_partition_is_told_in_the_singular(change: topics.Change, said: str) -> None:
    assert str(change) == said


@pytest.mark.kafka
def test_check_says_what_is_wrong(kafka: str) -> None:
    bus = Bus(kafka)
    three, seven, missing = named(TOPICS.numbers), replace(named(TOPICS.sums), partitions=7), named(TOPICS.results)
    topics.apply(bus, [three, seven])
    topics.check(bus, [three, seven], [seven], read_together=[three])  # other workers read the others
    with pytest.raises(BusError, match=rf"missing on {kafka}: {missing.name}: run `offbeat topics apply`"):
        topics.check(bus, [three], [missing])
    with pytest.raises(BusError, match=rf"missing on {kafka}: {missing.name}: run"):
        topics.check(bus, read_together=[missing])
    with pytest.raises(BusError, match=rf"{three.name} has 3"):
        topics.check(bus, read_together=[three, seven])


@pytest.mark.kafka
def test_the_brokers_tell_their_bounds_of_the_session_timeout(kafka: str) -> None:
    least, greatest = topics.session_bounds_s(Bus(kafka))
    assert 0 < least < greatest


def test_a_broker_that_is_not_there_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    reason = r"Connect to ipv4#127\.0\.0\.1:1 failed: Connection refused"
    with pytest.raises(BusError, match=rf"^no broker answers at 127\.0\.0\.1:1: {reason}; set OFFBEAT_KAFKA__") as told:
        topics.check(Bus("127.0.0.1:1"), [TOPICS.numbers], within_s=1.0)
    assert "make kafka" in str(told.value)
    assert not caplog.records, "the error tells it all"
