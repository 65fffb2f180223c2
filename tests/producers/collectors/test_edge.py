"""Segmentation at the edge: the rows that the step of the stream makes, and raw epochs for whoever asks."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from diagnosis.job import Job
from diagnosis.traffic.host import StepRules
from producers.collectors import edge as edge_module
from producers.collectors.edge import Edge
from producers.job_source import job_message
from producers.log_agent import agents
from producers.simulation.nic import NicRun, simulate_nics
from schemas.catalogue import ADDRESSES, LOG_REQUESTS, NIC_EPOCHS, OPERATORS, TOPICS, TRAFFIC_METRICS
from schemas.errors import StoreError
from schemas.message import Message, decode, encode
from streams import in_process
from streams.control_view import Jobs
from streams.segment import Segment
from tests.streams.examples import Listener
from tests.streams.traffic_cases import runs

RULES = StepRules(step_ns=40_000_000)
ROOMY = 1 << 30
FOUND = (OPERATORS, TRAFFIC_METRICS)


@cache
def simulated() -> NicRun:
    """A poll every 40 ms."""
    return simulate_nics(replace(runs()[0].scenario, iterations=24, poll_s=0.04))


@cache
def told() -> dict[str, list[Message]]:
    """What each host's collector tells."""
    by_host: dict[str, list[Message]] = {}
    for message in simulated().messages():
        by_host.setdefault(message.headers["host"], []).append(message)
    return by_host


def rows(messages: Iterable[Message]) -> dict[tuple[str, str, int], str]:
    """What is said on a topic of a host up to a time: told twice it counts once, if it is the same."""
    said: dict[tuple[str, str, int], str] = {}
    for message in messages:
        topic = next(topic for topic in FOUND if topic.name == message.topic)
        place = (message.topic, message.headers["host"], message.watermark_ns)
        text = json.dumps([message.job, message.key, decode(message, topic).to_pylist()])
        assert said.setdefault(place, text) == text
    return said


@cache
def in_stream() -> dict[tuple[str, str, int], str]:
    heard, jobs = Listener(FOUND), Jobs()
    sources = [job_message(simulated().job), *simulated().messages()]
    in_process.run([in_process.Recorded(sources)], [jobs, Segment(jobs, RULES), heard])
    return rows(heard.heard)


def known(name: str) -> Job | None:
    return simulated().job if name == simulated().job.job else None


def at_edge(folder: Path, messages: Iterable[Message], **other: Any) -> Edge:
    made = Edge(folder, other.get("keep_bytes", ROOMY), RULES, known)
    list(made.step(messages))
    return made


def request(**asked: Any) -> Message:
    row = {"request_id": "r", "iteration_from": 0, "iteration_to": 0, "what": "epochs", "deadline_ns": 1 << 62, **asked}
    return encode(LOG_REQUESTS, LOG_REQUESTS.from_rows([row]), job=simulated().job.job)


def polls(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [row for m in messages if m.topic == NIC_EPOCHS.name for row in decode(m, NIC_EPOCHS).to_pylist()]


def test_rows_are_those_of_the_stream(tmp_path: Path) -> None:
    assert len(in_stream()) > 20
    found = [
        message
        for host, messages in told().items()
        for message in Edge(tmp_path / host, ROOMY, RULES, known).step(messages)
    ]
    assert rows(found) == in_stream()


@pytest.mark.parametrize("every", [1, 2, 7])
def test_an_agent_that_is_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setattr(edge_module, "SAVE_EVERY_NS", 100_000_000)

    def restarted(host: str, messages: list[Message]) -> Iterator[Message]:
        for first in range(0, len(messages), every):
            yield from Edge(tmp_path / host, ROOMY, RULES, known).step(messages[first : first + every])

    assert rows(chain.from_iterable(restarted(*one) for one in told().items())) == in_stream()
    assert bool(list(tmp_path.glob("*/*/state.json"))) == (every > 1), "saved once what was told is safe"


def test_a_job_that_is_not_described_yet_waits(tmp_path: Path) -> None:
    jobs: dict[str, Job] = {}
    waiting = Edge(tmp_path, ROOMY, RULES, jobs.get)
    messages = told()["h1"]
    assert list(waiting.step(messages[:9])) == []
    jobs[simulated().job.job] = simulated().job
    expected = {place: text for place, text in in_stream().items() if place[1] == "h1"}
    assert rows(waiting.step(messages[9:])) == expected


def test_other_messages_pass(tmp_path: Path) -> None:
    other = encode(ADDRESSES, ADDRESSES.from_rows([]), job="j", key="j/h1")
    assert list(Edge(tmp_path, ROOMY, RULES, known).step([other])) == [other]


def test_epochs_are_given_to_whoever_asks(tmp_path: Path) -> None:
    made = at_edge(tmp_path, told()["h1"])
    given = sorted(polls(told()["h1"]), key=lambda row: row["poll_from_ns"])
    answers = made.process(request(ranks=[0, 1, 2]))
    assert polls(answers) == given
    headers = [dict(answer.headers) for answer in answers]
    assert {(h["request_id"], h["outcome"], h["host"], h["ranks"]) for h in headers} == {("r", "complete", "h1", "1")}
    assert [(int(h["part"]), int(h["parts"])) for h in headers] == [(n, len(given)) for n in range(len(given))]
    assert made.process(request(ranks=[0, 2, 3])) == []
    assert made.process(request(ranks=[1], nic="mlx5_7")) == []
    assert made.process(request(ranks=[1], what="rows")) == []


def test_a_stretch_of_time_is_enough(tmp_path: Path) -> None:
    made = at_edge(tmp_path, told()["h1"])
    one = polls(told()["h1"])[2]
    offset = one["host_minus_nic_ns"]
    from_ns, to_ns = one["poll_from_ns"] + offset + 1_000_000, one["poll_to_ns"] + offset - 1_000_000
    answers = made.process(request(ranks=[1], nic="mlx5_0", from_ns=from_ns, to_ns=to_ns))
    assert polls(answers) == [one]
    assert answers[0].headers["outcome"] == "complete"


def test_what_is_kept_is_bounded_and_what_went_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    messages = told()["h1"]
    made = at_edge(tmp_path, messages, keep_bytes=12_000)
    [job] = made.jobs
    assert job.ring.total_bytes < 30_000
    assert job.dropped > 0
    assert "OFFBEAT_COLLECT__KEEP_BYTES" in caplog.text
    partial = made.process(request(ranks=[1], from_ns=1))
    assert 0 < len(polls(partial)) < len(polls(messages))
    assert {answer.headers["outcome"] for answer in partial} == {"partial"}
    oldest = polls(messages)[0]
    ended_ns = oldest["poll_to_ns"] + oldest["host_minus_nic_ns"]
    [gone] = made.process(request(ranks=[1], from_ns=ended_ns - 2, to_ns=ended_ns - 1))
    assert (gone.headers["outcome"], polls([gone])) == ("overwritten", [])


def test_answers_are_no_telemetry_to_the_stream(tmp_path: Path) -> None:
    answers = at_edge(tmp_path, told()["h1"]).process(request(ranks=[1]))
    heard, jobs = Listener(FOUND), Jobs()
    segment = Segment(jobs, RULES)
    in_process.run([in_process.Recorded([job_message(simulated().job), *answers])], [jobs, segment, heard])
    assert heard.heard == []
    assert segment.safe_offsets() == {}


def test_log_agents_leave_requests_for_epochs_alone() -> None:
    [agent, *_] = agents(simulated().job, simulated().operators, ())
    assert list(agent.process(request(ranks=[0, 1, 2, 3]))) == []


def test_what_is_kept_of_a_silent_job_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = at_edge(tmp_path, told()["h1"])
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(edge_module, "FORGOTTEN_AFTER_S", -1.0)
    list(made.step([]))
    assert list(tmp_path.iterdir()) == []
    at_edge(tmp_path, told()["h2"][:3]).step([])
    Edge(tmp_path, ROOMY, RULES, known)
    assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_an_answer_after_its_deadline(tmp_path: Path) -> None:
    assert at_edge(tmp_path, told()["h1"]).process(request(ranks=[1], deadline_ns=1)) == []


def test_an_agent_that_starts_gives_what_was_kept_before(tmp_path: Path) -> None:
    given = at_edge(tmp_path, told()["h1"]).process(request(ranks=[1]))
    (tmp_path / "stray").write_text("")
    (tmp_path / "empty").mkdir()
    again = Edge(tmp_path, ROOMY, RULES, known)
    assert polls(again.process(request(ranks=[1]))) == polls(given)
    assert len(again.jobs) == 1


def outcome(folder: Path, messages: Iterable[Message], **asked: Any) -> str:
    return at_edge(folder, messages).process(request(ranks=[1], **asked))[0].headers["outcome"]


def test_polls_that_lack_another_are_not_all_of_them(tmp_path: Path) -> None:
    of_polls = [at for at, message in enumerate(told()["h1"]) if message.topic == NIC_EPOCHS.name]
    lacking = [message for at, message in enumerate(told()["h1"]) if at != of_polls[2]]
    assert outcome(tmp_path / "hole", lacking) == "partial"
    assert outcome(tmp_path / "none", [m for m in told()["h1"] if m.topic != NIC_EPOCHS.name]) == "overwritten"


def test_an_answer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = at_edge(tmp_path, told()["h1"])
    monkeypatch.setattr(edge_module, "_MOST_ASKED_BYTES", 10_000)
    answers = made.process(request(ranks=[1]))
    newest = sorted(polls(told()["h1"]), key=lambda row: row["poll_from_ns"])[-len(answers) :]
    assert 1 <= len(answers) < len(polls(told()["h1"]))
    assert polls(answers) == newest
    assert {answer.headers["outcome"] for answer in answers} == {"partial"}


def test_a_record_that_can_no_longer_be_read_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [first, *later] = told()["h1"]
    broken = replace(first, value=b"nothing")
    made = at_edge(tmp_path, [first])
    made.jobs[0].ring.append(broken, decode(first, TOPICS[first.topic]))
    found = list(Edge(tmp_path, ROOMY, RULES, known).step(later))
    assert found
    assert "passed over" in caplog.text


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        at_edge(tmp_path / "file", told()["h1"])
