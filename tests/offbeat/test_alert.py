"""`offbeat alert` between a real Kafka and a real Alertmanager: one notification, whatever is killed in between."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from local.alertmanager import LocalAlertmanager
from local.kafka import LocalKafka
from producers.publisher import Publisher
from schemas.catalogue import INCIDENTS
from tests.offbeat.command_line import ROOT, command, offbeat, own_environment
from tests.services import skipped_where_unavailable
from tests.sinks.webhook.incidents import incident, record
from tests.sinks.webhook.local_receiver import LocalReceiver

pytestmark = pytest.mark.kafka

WITHIN_S = 90.0
JOB = "llama"
TOKEN = "hush-hush"
T = TypeVar("T")


@pytest.fixture
def told() -> Iterator[LocalReceiver]:
    receiver = LocalReceiver()
    yield receiver
    receiver.away()


@pytest.fixture
def alertmanager(told: LocalReceiver) -> Iterator[LocalAlertmanager]:
    with ExitStack() as stack:
        with skipped_where_unavailable():
            service = stack.enter_context(LocalAlertmanager(told.url))
        yield service


@contextmanager
def alerting(kafka: LocalKafka, alertmanager: LocalAlertmanager, log: Path) -> Iterator[None]:
    """The role as a process, which is killed in the end."""
    settings = {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "OFFBEAT_WEBHOOK__RECEIVER": "alertmanager",
        "OFFBEAT_WEBHOOK__URL": f"{alertmanager.url}?token={TOKEN}",
        "OFFBEAT_WEBHOOK__AUTHORIZATION": f"Bearer {TOKEN}",
        "OFFBEAT_WEBHOOK__SECRETS": TOKEN,
        "OFFBEAT_LOG_LEVEL": "debug",
    }
    environment = {**own_environment(settings), "NO_PROXY": "127.0.0.1"}
    with log.open("ab") as out:
        role = subprocess.Popen(
            command("alert", "--instance", "alert"), env=environment, cwd=ROOT, stdout=out, stderr=out
        )
    try:
        yield
        assert role.poll() is None, log.read_text()[-2000:]
    finally:
        role.kill()
        role.wait()


def publish(kafka: LocalKafka, revision: int, state: str) -> None:
    publisher = Publisher({"bootstrap.servers": kafka.bootstrap_servers}, "test")
    publisher.send(record(incident(revision=revision, state=state), job=JOB))
    publisher.flush()


def awaited(look: Callable[[], T], enough: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + WITHIN_S
    while not enough(found := look()):
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.1)
    return found


def shown(alertmanager: LocalAlertmanager) -> list[str]:
    """The incidents that Alertmanager holds for active."""
    answer = httpx.get(f"{alertmanager.url}/api/v2/alerts").raise_for_status()
    return [alert["labels"]["incident"] for alert in answer.json()]


def committed(kafka: LocalKafka) -> int:
    """Records of incidents that the role has committed."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "offbeat.page"})
    try:
        places = [TopicPartition(INCIDENTS.name, number) for number in range(INCIDENTS.partitions)]
        return sum(max(place.offset, 0) for place in consumer.committed(places, timeout=10))
    finally:
        consumer.close()


def test_an_incident_outlives_alertmanager_and_the_role_and_is_notified_once(
    local_kafka: LocalKafka,
    alertmanager: LocalAlertmanager,
    told: LocalReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    settings = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": local_kafka.bootstrap_servers}
    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    log = tmp_path / "alert.log"
    name = incident()["id"]
    publish(local_kafka, 1, "open")
    with alerting(local_kafka, alertmanager, log):
        awaited(lambda: shown(alertmanager), lambda names: names == [name])
        awaited(lambda: committed(local_kafka), lambda records: records == 1)
        awaited(lambda: len(told.received), bool)
    alertmanager.restart()
    assert shown(alertmanager) == []
    with alerting(local_kafka, alertmanager, log):  # no record comes: it tells what it has saved
        awaited(lambda: shown(alertmanager), lambda names: names == [name])
        publish(local_kafka, 2, "resolved")
        awaited(lambda: shown(alertmanager), lambda names: names == [])
        awaited(lambda: [note.json["status"] for note in told.received], lambda notes: "resolved" in notes)
    assert [note.json["status"] for note in told.received] == ["firing", "resolved"]
    assert "page delivered" in log.read_text()
    assert TOKEN not in log.read_text()
