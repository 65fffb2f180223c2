"""Log agents against Kafka: how requests are answered, and when the answering ends. (The rest: test_deployed.py.)"""

import logging
from collections import deque
from collections.abc import Iterator
from threading import Event, Thread
from typing import Self

import pytest

from diagnosis.job import pivots
from offbeat.produce import Desk, _has_ended, _Traffic, produce
from offbeat.settings import Settings
from producers.log_agent import LogAgent, agents
from producers.simulation import Scenario, simulate
from schemas import catalogue
from schemas.errors import DeliveryError
from schemas.message import Message, encode
from streams.bus import Bus
from tests.offbeat.command_line import offbeat, refusal


class Outbox:
    """Takes messages; ``safe`` are those that a flush has covered."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.safe = 0

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def flush(self) -> None:
        self.safe = len(self.sent)


class Requests:
    """Requests that arrive poll by poll; where none does, the poll takes its time."""

    def __init__(self, *polls: list[Message]) -> None:
        self.polls = deque(polls)

    def poll(self, within_s: float) -> Iterator[Message]:
        if not self.polls:
            Event().wait(within_s)
        yield from self.polls.popleft() if self.polls else []


@pytest.fixture(scope="module")
def hosts() -> list[LogAgent]:
    """The agents of two hosts, whose log is told to its end."""
    run = simulate(Scenario(seed=1, tp=2, pp=2, dp=1, layers=2, iterations=3, gpus_per_host=2))
    hosts = agents(run.job, run.table, pivots(run.job, 1))
    while any(agent.advance() is not None for agent in hosts):
        pass
    return hosts


def request(*ranks: int, job: str = "sim-1") -> Message:
    row = {
        "request_id": f"for {ranks}",
        "ranks": list(ranks),
        "iteration_from": 1,
        "iteration_to": 1,
        "what": "rows",
        "deadline_ns": 10**19 - 10**18,
    }
    return encode(catalogue.LOG_REQUESTS, catalogue.LOG_REQUESTS.from_rows([row]), job=job)


def test_every_agent_answers_for_its_own_ranks(hosts: list[LogAgent]) -> None:
    outbox = Outbox()
    desk = Desk(hosts, Requests([request(0, 1, 3)]).poll, outbox)
    assert desk.serve()
    assert [answer.headers["ranks"] for answer in outbox.sent] == ["0,1", "3"]
    assert outbox.safe == desk.answers == 2
    assert not desk.serve()


def test_answers_that_had_to_wait_are_safe_once_they_are_given(hosts: list[LogAgent]) -> None:
    outbox = Outbox()
    desk = Desk(hosts, Requests().poll, outbox)
    desk.give(hosts[0].process(request(0)))
    desk.give([])
    assert (outbox.safe, desk.answers) == (1, 1)


def test_a_bad_request_is_told_once_and_passed_over(hosts: list[LogAgent], caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox()
    bad = Message(catalogue.LOG_REQUESTS.name, "sim-1", b"nonsense", {"schema": "log_requests/1", "job": "sim-1"})
    with caplog.at_level(logging.WARNING):
        assert Desk(hosts, Requests([bad, request(0)]).poll, outbox).serve()
    assert len(outbox.sent) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_it_ends_once_nothing_was_asked_for_a_while(hosts: list[LogAgent]) -> None:
    outbox = Outbox()
    Desk(hosts, Requests([], [request(0)], [request(1)]).poll, outbox).linger(0.2, Event())
    assert outbox.safe == 2


def test_without_an_end_it_answers_until_it_is_stopped(hosts: list[LogAgent]) -> None:
    stopped, outbox = Event(), Outbox()
    thread = Thread(target=Desk(hosts, Requests().poll, outbox).linger, args=(None, stopped))
    thread.start()
    assert thread.is_alive()
    stopped.set()
    thread.join(60)
    assert not thread.is_alive()


def test_what_kafka_does_not_take_ends_it(hosts: list[LogAgent]) -> None:
    class Refusing(Outbox):
        def flush(self) -> None:
            raise DeliveryError("no broker")

    with pytest.raises(DeliveryError):
        Desk(hosts, Requests([request(0)]).poll, Refusing()).serve()


def test_what_nics_sent_is_told_a_second_after_the_other() -> None:
    told = [Message(catalogue.NIC_EPOCHS.name, "a/h0", b"", {"watermark_ns": f"{second}000000000"}) for second in "112"]
    traffic = _Traffic(iter(told))
    assert [traffic.advance() for _ in range(3)] == [told[:2], told[2:], None]


@pytest.mark.parametrize("arguments", [(), ("--recording", "x", "--simulate", "tp=2")])
def test_either_a_recording_or_a_simulation(arguments: tuple[str, ...]) -> None:
    assert "give either --recording or --simulate" in refusal(offbeat("produce", *arguments))


class Followed:
    """A topic that others write to all the time; not to be read once it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def catch_up(self) -> list[Message]:
        assert not self.closed
        return []

    def poll(self, within_s: float) -> list[Message]:
        return []


def test_a_job_that_nobody_knows_is_looked_for_while_the_topic_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offbeat.produce.Follower", lambda *_, **__: Followed())
    assert not _has_ended(Bus("nowhere:1"), "new")


def test_topics_that_other_workers_read_may_have_other_numbers_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    job = simulate(Scenario(seed=1, tp=1, pp=1, dp=2, layers=1, iterations=1)).job
    counts = {name: count for count, name in enumerate(catalogue.TOPICS, start=1)}
    monkeypatch.setattr("streams.topics.admin_client", lambda *_: None)
    monkeypatch.setattr("streams.topics._partition_counts", lambda *_: counts)
    monkeypatch.setattr("offbeat.produce.Follower", lambda *_, **__: Followed())
    stopped = Event()
    stopped.set()
    produced = produce(job, None, Settings(), linger_s=0.0, stopped=stopped, traffic=[])
    assert produced.messages == 0
