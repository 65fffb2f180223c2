"""The local broker is a real one: records go in and come out, and survive its death."""

import shutil
import socket
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from local.kafka import LocalKafka
from local.kafka.jars import kafka_jars, kafka_version
from local.service import LocalServiceError, ServiceUnavailable


def create_topic(bootstrap_servers: str) -> str:
    topic = f"test-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    return topic


def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failures


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """The first `count` records of the topic."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        messages = [consumer.poll(60) for _ in range(count)]
        assert all(message is not None and message.error() is None for message in messages)
        return [message.value() for message in messages if message is not None]
    finally:
        consumer.close()


@pytest.mark.kafka
def test_a_record_goes_in_and_comes_out(kafka: str) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, b"one")
    assert consume(kafka, topic, 1) == [b"one"]


@pytest.mark.kafka
def test_acknowledged_records_survive_kill_and_restart(local_kafka: LocalKafka) -> None:
    servers = local_kafka.bootstrap_servers
    topic = create_topic(servers)
    produce(servers, topic, b"before")
    local_kafka.kill()
    assert not local_kafka.is_ready()
    local_kafka.start()
    produce(servers, topic, b"between")
    local_kafka.restart()
    produce(servers, topic, b"after")
    assert consume(servers, topic, 3) == [b"before", b"between", b"after"]


def test_the_jars_are_those_of_the_pom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(jars: Path) -> None:
        jars.mkdir()
        (jars / "fetched.jar").touch()

    monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path))
    monkeypatch.setattr("local.kafka.jars._fetch", fetch)
    assert [jar.name for jar in kafka_jars().iterdir()] == ["fetched.jar"]
    (tmp_path / f"kafka-{kafka_version()}" / "recipe").write_text("another pom")
    (kafka_jars() / "fetched.jar").rename(kafka_jars() / "old.jar")
    assert [jar.name for jar in kafka_jars().iterdir()] == ["old.jar"]


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LocalServiceError, match=f"port {port} on 127.0.0.1 is taken"):
            LocalKafka(port=port).start()


def test_without_java_or_maven_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ServiceUnavailable, match="`java` is not on the PATH: install a Java"):
        LocalKafka().start()
