"""The agent of a live host as a process: nothing that was trained is lost while Kafka, or the agent itself, is away."""

import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from local.kafka import LocalKafka
from local.service import free_ports
from offbeat.agent import Drops, Line, send_spooled
from offbeat.collecting import Collecting
from offbeat.operator_log import OperatorLog
from offbeat.settings import Settings
from producers.live.host import Host
from producers.publisher import Publisher
from producers.spool import Spool
from schemas.catalogue import COMM_OPS, ITERATION_SUMMARIES, JOBS, LOG_REQUESTS, NIC_EPOCHS
from schemas.errors import BusError, DeliveryError, StoreError
from schemas.message import Message, TopicKey, decode, encode
from schemas.topic import Topic
from streams import topics
from streams.bus import Bus
from streams.control_view import Jobs
from streams.follower import Follower
from tests.offbeat.command_line import ROOT, command, offbeat, own_environment, refusal

WITHIN_S = 90.0


class Training:
    """Two ranks that train in step."""

    def __init__(self, rings: Path) -> None:
        self.logs = [OperatorLog(rank=rank, job="live", world=2, gpu=rank, folder=rings) for rank in (0, 1)]
        self.iterations = 0

    def train(self, iterations: int) -> None:
        for _ in range(iterations):
            for log in self.logs:
                log.iteration(self.iterations)
                for phase in ("forward", "backward"):
                    log.end(log.begin("tensor", "all_reduce", 1 << 20, phase=phase, microbatch=0))
            self.iterations += 1

    def end(self) -> None:
        for log in self.logs:
            log.close()


class Agent:
    """The agent as a process, and its metrics."""

    def __init__(self, settings: dict[str, str], folder: Path) -> None:
        [port] = free_ports(1)
        self._page = f"http://127.0.0.1:{port}/metrics"
        with (folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                command("agent", "--until-ended", "--health-port", port),
                env=own_environment(settings),
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def figures(self) -> dict[str, float]:
        """The metrics by name; none while it does not answer yet."""
        assert self.process.poll() is None
        try:
            with urllib.request.urlopen(self._page, timeout=5) as page:
                families = list(text_string_to_metric_families(page.read().decode()))
        except OSError:
            return {}
        return {sample.name: sample.value for family in families for sample in family.samples}

    def awaited(self, name: str, enough: Callable[[float], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not enough(self.figures().get(f"offbeat_agent_{name}", -1.0)):
            assert time.monotonic() < deadline, self.figures()
            time.sleep(0.05)


@contextmanager
def running(settings: dict[str, str], folder: Path) -> Iterator[Agent]:
    agent = Agent(settings, folder)
    try:
        yield agent
    finally:
        agent.process.kill()
        agent.process.wait()


def published(kafka: LocalKafka, topic: Topic) -> list[Message]:
    with Follower(Bus(kafka.bootstrap_servers), topic.name) as follower:
        return list(follower.catch_up())


def rows(messages: list[Message], topic: Topic) -> list[dict[str, Any]]:
    return [row for message in messages for row in decode(message, topic).to_pylist()]


def asked(kafka: LocalKafka, request_id: str, last: int) -> None:
    row = {"request_id": request_id, "ranks": [1], "iteration_from": 2, "iteration_to": last, "what": "rows"}
    batch = LOG_REQUESTS.from_rows([{**row, "deadline_ns": time.time_ns() + 60 * 10**9}])
    publisher = Publisher({"bootstrap.servers": kafka.bootstrap_servers}, "search")
    publisher.send(encode(LOG_REQUESTS, batch, job="live"))
    publisher.flush()


def answered(kafka: LocalKafka, request_id: str) -> list[Message]:
    deadline = time.monotonic() + WITHIN_S
    while not (found := [m for m in published(kafka, COMM_OPS) if m.headers.get("request_id") == request_id]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.mark.kafka
def test_nothing_is_lost_while_kafka_or_the_agent_is_away(local_kafka: LocalKafka, tmp_path: Path) -> None:
    settings = {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": local_kafka.bootstrap_servers,
        "OFFBEAT_LIVE__RINGS": str(tmp_path / "rings"),
        "OFFBEAT_LIVE__FOLDER": str(tmp_path / "agent"),
    }
    # Other workers read what NICs sent than what ranks log: their numbers of partitions have nothing to do with them.
    topics.apply(Bus(local_kafka.bootstrap_servers), [replace(NIC_EPOCHS, partitions=3)])
    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    training = Training(tmp_path / "rings")
    training.train(3)
    with running(settings, tmp_path) as agent:
        agent.awaited("connected", lambda value: value == 1)
        agent.awaited("spool_messages", lambda value: value == 0)
        local_kafka.kill()
        training.train(3)
        agent.awaited("closed_iteration", lambda value: value == 4)
        agent.awaited("spool_messages", lambda value: value > 0)
        agent.process.send_signal(signal.SIGKILL)  # what waits outlives it
        agent.process.wait()
    training.train(2)
    with running(settings, tmp_path) as agent:
        agent.awaited("closed_iteration", lambda value: value == 6)
        local_kafka.start()
        agent.awaited("spool_messages", lambda value: value == 0)
        asked(local_kafka, "later", 7)
        asked(local_kafka, "now", 5)
        now = answered(local_kafka, "now")
        training.train(1)
        later = answered(local_kafka, "later")
        training.end()
        assert agent.process.wait(WITHIN_S) == 0, (tmp_path / "agent.log").read_text()
    for [answer], last in ((now, 5), (later, 7)):
        assert answer.headers["outcome"] == "complete"
        assert [(row["rank"], row["iteration"]) for row in rows([answer], COMM_OPS)] == [
            (1, iteration) for iteration in range(2, last + 1) for _ in range(2)
        ]
    summaries = rows(published(local_kafka, ITERATION_SUMMARIES), ITERATION_SUMMARIES)
    first_told = list(dict.fromkeys((row["iteration"], row["rank"]) for row in summaries))  # some may be sent again
    assert first_told == [(iteration, rank) for iteration in range(9) for rank in (0, 1)]
    assert {row["iteration"] for row in summaries if row["last"]} == {8}
    assert {row["lost_lines"] for row in summaries} == {0}
    jobs = rows(published(local_kafka, JOBS), JOBS)
    assert jobs[0]["training"]["tp"] == 2
    assert [job["ended_ns"] is None for job in (jobs[0], jobs[-1])] == [True, False]
    assert list((tmp_path / "rings").iterdir()) == []


class Refusing:
    """Takes messages, until told not to acknowledge them."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.skipped: dict[tuple[str, str], int] = {}
        self.gaps: Counter[TopicKey] = Counter()
        self.away = False
        self.meanwhile: Callable[[], None] = lambda: None

    def send(self, message: Message) -> None:
        self.sent.append(message.key)

    def skip(self, topic: str, key: str, messages: int) -> None:
        self.skipped[topic, key] = messages

    def flush(self) -> None:
        self.meanwhile()
        if self.away:
            raise DeliveryError("no broker")


def test_what_is_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    spool, publisher = Spool(tmp_path, 1 << 20), Refusing()
    for key in "abc":
        spool.append(Message("t", key, b""))
    publisher.away = True
    with pytest.raises(DeliveryError):
        send_spooled(spool, publisher)
    publisher.away = False
    assert (send_spooled(spool, publisher), send_spooled(spool, publisher)) == (3, 0)
    assert publisher.sent == [*"abcabc"]


def test_what_a_full_disk_cannot_note_is_told_and_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    spool, publisher = Spool(tmp_path, 1 << 20), Refusing()
    spool.append(Message("t", "a", b""))
    with monkeypatch.context() as full:
        full.setattr(Spool, "delivered", refused)
        with pytest.raises(StoreError, match=r"will be sent again: .*: make room"):
            send_spooled(spool, publisher)
    assert (send_spooled(spool, publisher), send_spooled(spool, publisher)) == (1, 0)
    assert publisher.sent == [*"aa"]


def test_what_the_spool_dropped_is_told_and_numbered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool, publisher = Spool(tmp_path, 16 * 1000), Refusing()
    for number in range(60):
        spool.append(Message("t", "ab"[number % 2], bytes(400)))
    dropped = 60 - len(spool)
    assert send_spooled(spool, publisher) == 60 - dropped
    assert publisher.skipped == {("t", "a"): (dropped + 1) // 2, ("t", "b"): dropped // 2}
    assert f"{dropped // 2} of the oldest messages of t, key b, were dropped" in caplog.text


@pytest.mark.parametrize("away", [False, True])
def test_what_is_dropped_while_it_is_sent_is_lost_only_where_it_does_not_arrive(tmp_path: Path, away: bool) -> None:
    spool, publisher = Spool(tmp_path, 16 * 1000), Refusing()

    def fill() -> None:
        for _ in range(20):
            spool.append(Message("t", "k", bytes(400)))

    fill()
    publisher.meanwhile, publisher.away = fill, away
    with pytest.raises(DeliveryError) if away else nullcontext():
        send_spooled(spool, publisher)
    waiting = len(spool)
    lost = 40 - waiting if away else 0
    assert sum(spool.dropped.values()) == lost
    publisher.meanwhile, publisher.away = (lambda: None), False
    assert send_spooled(spool, publisher) == waiting
    assert publisher.skipped == ({("t", "k"): lost} if away else {})


def overfilled(spool: Spool) -> int:
    """How many messages the spool drops for those that it is given."""
    before = len(spool)
    for _ in range(60):
        spool.append(Message("t", "k", bytes(400)))
    return before + 60 - len(spool)


def test_what_is_dropped_is_told_of_now_and_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool, clock = Spool(tmp_path, 16 * 1000), [0.0]
    drops = Drops(spool, every_s=60.0, clock=lambda: clock[0])
    drops.tell()
    told: list[int] = []
    untold = 0
    for clock[0], is_due in ((1.0, True), (2.0, False), (60.9, False), (61.0, True), (300.0, True)):
        untold += overfilled(spool)
        drops.tell()
        if is_due:
            told, untold = [*told, untold], 0
        assert [record.message for record in caplog.records] == [
            f"the spool is full: {lost} of the oldest messages of t, key k, were dropped" for lost in told
        ]


def test_what_is_dropped_while_kafka_is_away_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise BusError("no broker")

    monkeypatch.setattr(topics, "check", away)
    spool, host = Spool(tmp_path, 16 * 1000), Host(tmp_path, tmp_path, 1 << 20, lambda _: None, lambda _: [])
    lost = overfilled(spool)
    deadline = time.monotonic() + WITHIN_S
    with Line(Settings(), spool, Jobs(), host, Collecting(Settings(), lambda _: None)):
        while not (told := [record.message for record in caplog.records if "were dropped" in record.message]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert told == [f"the spool is full: {lost} of the oldest messages of t, key k, were dropped"]


def test_a_gap_is_asked_for_until_it_is_left_and_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 * 1000)
    lost = {("t", "k"): overfilled(spool)}

    def skipped_by(publisher: Refusing, spool: Spool) -> dict[TopicKey, int]:
        publisher.skipped = {}
        spool.append(Message("t", "k", b""))
        with pytest.raises(DeliveryError) if publisher.away else nullcontext():
            send_spooled(spool, publisher)
        return publisher.skipped

    failing = Refusing()
    failing.gaps.update(lost)  # by a message that does not arrive
    failing.away = True
    assert skipped_by(failing, spool) == {}
    publisher = Refusing()
    assert skipped_by(publisher, spool) == lost
    assert skipped_by(publisher, Spool(tmp_path, 16 * 1000)) == lost
    publisher.gaps.update(lost)  # by a message of another sender
    spool = Spool(tmp_path, 16 * 1000)
    assert skipped_by(publisher, spool) == {}
    assert not publisher.gaps
    assert skipped_by(publisher, spool) == skipped_by(publisher, Spool(tmp_path, 16 * 1000)) == {}


def test_a_job_folder_without_a_description_is_refused(tmp_path: Path) -> None:
    assert "holds no job.json" in refusal(offbeat("agent", "--job", tmp_path))


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = refusal(offbeat("agent", settings={"OFFBEAT_LIVE__FOLDER": str(tmp_path / "file")}))
    assert "OFFBEAT_LIVE__FOLDER" in told
