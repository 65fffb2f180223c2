"""The deployed pipeline by its commands: Kafka, a Faust worker a step, ClickHouse, a webhook, each a process."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from schemas.catalogue import TOPICS
from tests.offbeat.command_line import EXAMPLE, ROOT, command, offbeat, own_environment, refusal
from tests.services import settings_of
from tests.sinks.webhook.local_receiver import LocalReceiver, Received

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse]

ROLES = (("worker", "monitor"), ("worker", "search"), ("worker", "incidents"), ("sink",), ("alert",))
PRODUCE = ("produce", "--recording", EXAMPLE, "--follow", "--json")
WITHIN_S = 120.0
TOLD = {
    "worker-monitor": {"offbeat worker monitor reads telemetry.iteration_summaries as group offbeat.monitor"},
    "worker-incidents": {"incident opened", "incident resolved", "offbeat worker incidents has stopped"},
    "sink": {"rows stored", "offbeat sink has stopped"},
    "alert": {"page delivered", "offbeat alert reads analysis.incidents as group offbeat.page"},
}
"""What roles say while all goes well."""

Settings = dict[str, str]
T = TypeVar("T")


@pytest.fixture
def receiver() -> Iterator[LocalReceiver]:
    receiver = LocalReceiver()
    yield receiver
    receiver.away()


@pytest.fixture
def settings(local_kafka: LocalKafka, local_clickhouse: LocalClickHouse, receiver: LocalReceiver) -> Settings:
    return {
        **settings_of(local_kafka, local_clickhouse),
        "OFFBEAT_WEBHOOK__URL": receiver.url,
        "OFFBEAT_WEBHOOK__SECRETS": "one,two",
    }


@contextmanager
def running(
    settings: Settings, folder: Path, wanted: Sequence[tuple[str, ...]] = ROLES
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Roles, each with a log in the folder; SIGTERM ends them in order."""
    roles = {}
    try:
        for role in wanted:
            with (folder / f"{'-'.join(role)}.log").open("wb") as log:
                roles[" ".join(role)] = subprocess.Popen(
                    command(*role), env=own_environment(settings), cwd=ROOT, stdout=log, stderr=log
                )
        yield roles
        for process in roles.values():
            process.send_signal(signal.SIGTERM)
        for process in roles.values():
            process.wait(WITHIN_S)
    finally:
        for process in roles.values():
            process.kill()
            process.wait()


@contextmanager
def producing(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    """The recording's log agents, which answer until they are ended."""
    environment = own_environment(settings)
    with subprocess.Popen(command(*PRODUCE), env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as producer:
        try:
            yield producer
        finally:
            producer.kill()


def is_resolved(page: Received) -> bool:
    return bool(page.json["status"] == "resolved")


def awaited(look: Callable[[], T], enough: Callable[[T], bool], roles: dict[str, subprocess.Popen[bytes]]) -> T:
    """What there is once it is enough; fails where it never is, or a role has ended."""
    deadline = time.monotonic() + WITHIN_S
    while not enough(found := look()):
        ended = {name: process.poll() for name, process in roles.items() if process.poll() is not None}
        assert not ended, f"ended: {ended}"
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.2)
    return found


def asked(settings: Settings, query: str) -> list[dict[str, Any]]:
    result = offbeat("sql", query, "--json", settings=settings)
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_the_answer_is_that_of_one_process(settings: Settings, receiver: LocalReceiver, tmp_path: Path) -> None:
    assert refusal(offbeat("worker", "monitor", settings=settings)).endswith("run `offbeat topics apply`")
    assert refusal(offbeat(*PRODUCE, settings=settings)).endswith("run `offbeat topics apply`")
    assert refusal(offbeat("sink", settings=settings)).endswith("run `offbeat store migrate`")
    would = offbeat("topics", "apply", "--dry-run", settings=settings).stdout
    assert offbeat("topics", "apply", settings=settings).stdout == would.replace("would apply ", "")
    assert offbeat("topics", "apply", settings=settings).stdout == f"{len(TOPICS)} topics are as they should be\n"
    assert offbeat("store", "migrate", settings=settings).exit_code == 0
    with running(settings, tmp_path) as roles, producing(settings) as producer:
        stored = awaited(
            lambda: asked(settings, "SELECT * FROM incidents FINAL"),
            lambda rows: [row["state"] for row in rows] == ["resolved"],
            roles,
        )
        awaited(lambda: receiver.received, lambda pages: bool(pages) and is_resolved(pages[-1]), roles)
        producer.terminate()
        produced = json.loads(producer.communicate(timeout=WITHIN_S)[0])
    assert {name: process.returncode for name, process in roles.items()} == dict.fromkeys(roles, 0)
    for role, said in TOLD.items():
        assert said <= {json.loads(line)["event"] for line in (tmp_path / f"{role}.log").read_text().splitlines()}
    assert produced["job"] == EXAMPLE.name
    assert 0 < produced["answers"] < produced["messages"]
    assert not produced["ended_before"]
    again = offbeat("produce", "--recording", EXAMPLE, "--linger", 0, settings=settings)
    assert again.stdout.startswith(f"{EXAMPLE.name}: published ")
    assert f"{EXAMPLE.name} had ended before: running workers pass over what comes of it again" in again.stderr
    [incident] = json.loads(offbeat("diagnose", EXAMPLE, "--json").stdout)["incidents"]
    for name in ("id", "cause", "level", "ranks", "pattern", "confidence", "methods", "explanation"):
        assert stored[0][name] == incident[name]
    assert [stored[0]["first_iteration"], stored[0]["last_iteration"]] == incident["iterations"]
    assert {page.json["groupLabels"]["incident"] for page in receiver.received} == {incident["id"]}
    assert json.loads(offbeat("rank", "--json", settings=settings).stdout)[0]["device"] == incident["devices"][0]
    assert json.loads(offbeat("dead-letters", "list", "--json", settings=settings).stdout) == []


def test_poison_is_listed(settings: Settings, local_kafka: LocalKafka, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    producer = Producer({"bootstrap.servers": local_kafka.bootstrap_servers})
    producer.produce("analysis.findings", value=b"nonsense", headers=[("schema", b"findings/1"), ("job", b"j")])
    producer.flush()
    del producer  # or it would tell of the broker's end
    assert offbeat("store", "migrate", settings=settings).exit_code == 0
    with running(settings, tmp_path, [("worker", "incidents"), ("sink",)]) as roles:
        letters = awaited(
            lambda: json.loads(offbeat("dead-letters", "list", "--json", settings=settings).stdout),
            lambda letters: len(letters) == 2,
            roles,
        )
    assert {letter["processor"] for letter in letters} == {"incidents", "store"}
    assert {(letter["topic"], letter["error"]) for letter in letters} == {("analysis.findings", "UndecodableMessage")}
    told = offbeat("dead-letters", "list", settings=settings).stdout
    assert re.search(
        r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ job j, incidents: analysis.findings partition ", told, re.MULTILINE
    )
    assert {letter["job"] for letter in letters} == {"j"}
