"""Targets: what comes by the bus. The wire form of every topic, and the steps that take what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from offbeat import wiring
from producers.log_agent import LogAgent
from schemas import catalogue
from schemas.errors import MessageError, Unprocessable
from schemas.message import Message, decode
from schemas.processor import SavedState
from schemas.tables import TABLES
from schemas.topic import Topic
from sinks.clickhouse.native import native_block
from sinks.clickhouse.sink import ClickHouseSink
from sinks.webhook.alertmanager import Alertmanager
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.ledger import Ledger
from sinks.webhook.pagerduty import PagerDuty
from sinks.webhook.receiver import Receiver, Request
from sinks.webhook.silences import Silences
from sinks.webhook.sink import WebhookSink
from sinks.webhook.slack import Slack
from streams.checkpoints import Checkpoints, state_record
from streams.control_view import Jobs
from streams.dead_letters import dead_letter
from streams.incidents import Incidents
from streams.log_fetch import Fetch
from streams.monitor import Monitor
from streams.redelivery import letters_of
from streams.step import Step
from tests.fuzz.published import SETTINGS, jobs_of_run, line_of, lines, messages_of, of, record, run
from tests.fuzz.target import Target, Trial
from tests.schemas.samples import JOB, good_samples, message_of
from tests.schemas.used import use


def targets() -> Iterator[Target]:
    """Every topic as bytes, every reader of control topics and of answers, every step."""
    for topic in catalogue.TOPICS.values():
        yield Target(f"decode {topic.name}", partial(_decode, topic), weight=20)
    yield Target("headers", weight=10, make=_headers)
    yield Target("control.jobs as a worker reads it", weight=10, make=_control_jobs)
    yield Target("control.silences as page reads it", weight=10, make=_silences)
    yield Target("control.state as a worker reads it", weight=10, make=_checkpoints)
    yield Target("dead letters sent again", weight=10, make=_dead_letters)
    yield Target("answers to a search", weight=10, make=_answers)
    yield Target("headers of answers", weight=10, make=_answer_headers)
    yield Target("requests to an agent", weight=10, make=_requests)
    yield Target("state of monitor", partial(_state, Monitor, catalogue.ITERATION_SUMMARIES))
    yield Target("state of incidents", partial(_state, Incidents, catalogue.FINDINGS))
    yield Target("state of page", _ledger)
    yield Target("monitor", weight=1, make=partial(_step, "monitor", catalogue.ITERATION_SUMMARIES))
    yield Target("search", weight=1, make=_search)
    yield Target("incidents", weight=1, make=partial(_step, "incidents", catalogue.FINDINGS))
    yield Target("store", _store)
    yield Target("page", weight=1, make=_page)


def _decode(topic: Topic, _: Path) -> Trial:
    batches = [topic.from_rows(sample.rows) for sample in good_samples() if sample.topic is topic]
    seeds = [message_of(topic, [batch], compression=way).value or b"" for batch in batches for way in ("zstd", None)]
    headers = {"schema": topic.schema_id, "job": JOB}
    return Trial(seeds, lambda data: use(decode(Message(topic.name, JOB, data, headers), topic)))


def _headers(_: Path) -> Trial:
    [whole, *_rest] = of(catalogue.ITERATIONS)

    def feed(data: bytes) -> None:
        lines = (line.partition("=") for line in data.decode(errors="replace").split("\n"))
        message = replace(whole, headers={name: value for name, _, value in lines})
        decode(message, catalogue.ITERATIONS)
        assert isinstance(message.watermark_ns, int)

    return Trial(["\n".join(f"{name}={value}" for name, value in whole.headers.items()).encode()], feed)


def _control_jobs(_: Path) -> Trial:
    described = run().job.to_row()
    batch = catalogue.JOBS.from_rows([described])
    seeds = [message_of(catalogue.JOBS, [batch], compression=way).value or b"" for way in ("zstd", None)]
    seeds.append(json.dumps(described).encode())

    def feed(data: bytes) -> None:
        jobs = Jobs()
        jobs.process(record(catalogue.JOBS, data))
        for job in jobs.values():
            assert job.to_row()["job"]

    return Trial(seeds, feed)


def _silences(_: Path) -> Trial:
    rows = [
        {"id": "1", "job": "llama*", "device": None, "until_ns": 10**18, "reason": "moved", "made_ns": 0},
        {"id": "2", "job": None, "device": "gpu:host7/*", "until_ns": 10**18, "reason": "", "made_ns": 0},
    ]
    topic = catalogue.SILENCES
    seeds = [message_of(topic, [topic.from_rows([row])], compression=None).value or b"" for row in rows]
    seeds += [json.dumps(row).encode() for row in rows]
    [incident] = decode(of(catalogue.INCIDENTS)[0], catalogue.INCIDENTS).to_pylist()

    def feed(data: bytes) -> None:
        silences = Silences()
        silences.take([record(topic, data)])
        for silence in silences.lasting(0):
            silence.covers("llama-1", incident)

    return Trial(seeds, feed)


def _checkpoints(_: Path) -> Trial:
    saved = SavedState({catalogue.ITERATION_SUMMARIES.name: 7}, "monitor/5", b'{"pending": {}}')
    record = state_record("monitor", "j", 3, saved)
    [row] = decode(record, catalogue.STATE).to_pylist()
    plain = message_of(catalogue.STATE, [catalogue.STATE.from_rows([row])], compression=None)

    def feed(data: bytes) -> None:
        checkpoints = Checkpoints("monitor")
        checkpoints.take(record)
        checkpoints.take(replace(record, value=data))
        checkpoints.of(3)

    return Trial([record.value or b"", plain.value or b""], feed)


def _dead_letters(_: Path) -> Trial:
    letter = dead_letter(of(catalogue.ITERATIONS)[0], MessageError("bad"), "search")
    plain = message_of(catalogue.DEAD_LETTERS, [decode(letter, catalogue.DEAD_LETTERS)], compression=None)

    def feed(data: bytes) -> None:
        told: list[str] = []
        for one in letters_of([replace(letter, value=data)], told.append):
            assert isinstance(one.message.headers, dict)
        if told:
            raise MessageError(told[0])

    return Trial([letter.value or b"", plain.value or b""], feed)


class StrictStep(Step):
    """A step that does not go on where its processor fails on what passed every check."""

    def take(self, message: Message) -> list[Message]:
        outputs = super().take(message)
        for letter in outputs:
            if letter.topic == catalogue.DEAD_LETTERS.name:
                [row] = decode(letter, catalogue.DEAD_LETTERS).to_pylist()
                assert row["error"] != Unprocessable.__name__, row["reason"]
        return outputs


@cache
def _first_question() -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """What leads a search to its first request, and what answers that."""
    searching = StrictStep(wiring.step("search", jobs_of_run(), SETTINGS))
    before = []
    for message in of(catalogue.ITERATIONS):
        before.append(message)
        asked = [m for m in searching.take(message) if m.topic == catalogue.LOG_REQUESTS.name]
        if asked:
            [row, *_rest] = decode(asked[0], catalogue.LOG_REQUESTS).to_pylist()
            break
    answers = (m for m in of(catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS))
    return tuple(before), tuple(m for m in answers if m.headers.get("request_id") == row["request_id"])


def _plain(message: Message) -> bytes:
    topic = catalogue.TOPICS[message.topic]
    return message_of(topic, [decode(message, topic)], compression=None).value or b""


def _answers(_: Path) -> Trial:
    windows = next(m for m in of(catalogue.OPERATOR_WINDOWS) if "request_id" in m.headers)
    needs = _needs()

    def feed(data: bytes) -> None:
        fetch = Fetch(windows.headers["request_id"], windows.job, needs, 0)
        fetch.take(replace(windows, value=data))
        fetch.answer()

    return Trial([windows.value or b"", _plain(windows)], feed)


def _needs() -> Any:
    from diagnosis.operator_graph.needs import Need

    return (Need((0, 1, 2, 3), (7, 8)), Need((0, 1, 2, 3), (7, 8), what="statistics"))


def _answer_headers(_: Path) -> Trial:
    answer, *_rest = _first_question()[1]
    names = ("ranks", "part", "parts", "outcome", "host", "producer")

    def feed(data: bytes) -> None:
        lines = data.decode(errors="replace").split("\n")
        fetch = Fetch(answer.headers["request_id"], answer.job, _needs(), 0)
        fetch.take(replace(answer, headers={**answer.headers, **dict(zip(names, lines, strict=False))}))
        fetch.answer()

    return Trial(["\n".join(answer.headers[name] for name in names).encode(), b"0,1\n1\n2\npartial\nh\np"], feed)


def _requests(_: Path) -> Trial:
    [agent] = wiring.log_agents(run().job, run().table, SETTINGS)
    while agent.advance() is not None:
        pass
    asked = of(catalogue.LOG_REQUESTS)
    rows = [decode(message, catalogue.LOG_REQUESTS).to_pylist() for message in asked]
    seeds = [line_of(catalogue.LOG_REQUESTS, each, {}) for each in rows] + [_plain(asked[0])]

    def feed(data: bytes) -> None:
        step = StrictStep(LogAgent(agent._store, agent.host, ()))
        messages = messages_of(data) if data.startswith(b"{") else [record(catalogue.LOG_REQUESTS, data)]
        for message in messages:
            step.take(message)

    return Trial(seeds, feed)


def _state(kind: Callable[[Jobs], Monitor | Incidents], topic: Topic, _: Path) -> Trial:
    """Saved states as they were after each message."""
    messages = of(topic)
    saving, states = kind(jobs_of_run()), []
    for message in messages:
        list(saving.process(message))
        states += [saved for saved in saving.changed_states().values() if saved is not None]

    def feed(data: bytes) -> None:
        kind(jobs_of_run()).restore({messages[0].job: replace(states[-1], state=data)})

    return Trial([saved.state for saved in states[-4:]], feed)


def _step(name: str, topic: Topic, _: Path) -> Trial:
    """A step that takes several records, of which any may be damaged; what is bad becomes a dead letter."""
    jobs = jobs_of_run()

    def feed(data: bytes) -> None:
        step = StrictStep(wiring.step(name, jobs, SETTINGS))
        for message in messages_of(data):
            step.take(message)
        step.changed_states()

    return Trial([lines(of(topic)[-7:])], feed)


def _search(_: Path) -> Trial:
    """A search that gets a damaged answer, or is sent to search in damaged iterations, and then ends."""
    before, answers = _first_question()
    jobs = jobs_of_run()
    seeds = [lines(before[-2:]), *(_plain(answer) for answer in answers), *(a.value or b"" for a in answers)]

    def feed(data: bytes) -> None:
        searching = wiring.step("search", jobs, SETTINGS)
        step = StrictStep(searching)
        if data.startswith(b"{"):
            for message in messages_of(data):
                step.take(message)
        else:
            for message in before:
                step.take(message)
            step.take(replace(answers[0], value=data))
        for _round in range(4):
            for message in step.tick(1 << 62):
                step.take(message)

    return Trial(seeds, feed)


def _store(_: Path) -> Trial:
    topics = [table.topic for table in TABLES.values() if table.topic is not catalogue.COMM_OPS]
    rows = [sample for sample in good_samples() if sample.topic in topics]
    seeds = [message_of(s.topic, [s.topic.from_rows(s.rows)], compression=None) for s in rows]
    by_value = [message.topic.encode() + b"\n" + (message.value or b"") for message in seeds]

    def feed(data: bytes) -> None:
        name, _, value = data.partition(b"\n")
        topic = catalogue.TOPICS.get(name.decode(errors="replace"))
        if topic in topics:
            sink = ClickHouseSink(_Written())
            list(sink.process(record(topic, value)))
            sink.flush()

    return Trial(by_value, feed)


class _Written:
    """A store that writes what it is given as a server would get it."""

    def insert(self, table: str, data: pa.Table | pa.RecordBatch, token: str) -> None:
        stored = (column for column in TABLES[table].columns if column.materialized is None)
        for part in native_block(data, [(column.name, column.type) for column in stored]):
            assert part is not None

    def execute(self, *_: object) -> None: ...
    def query(self, *_: object) -> pa.Table: ...
    def close(self) -> None: ...


def _page(_: Path) -> Trial:
    receivers: tuple[Receiver, ...] = (
        AlertmanagerWebhook(labels={}),
        Alertmanager(labels={}),
        PagerDuty(routing_key="0" * 32, severity="critical"),
        Slack(),
    )
    jobs = jobs_of_run()

    def refused(message: Message, error: Exception) -> None:
        raise AssertionError(message) from error

    def feed(data: bytes) -> None:
        messages = list(messages_of(data))
        for receiver in receivers:
            sink = WebhookSink(receiver, _Posted(), refused, jobs=jobs, now_ns=lambda: 10**18)
            step = StrictStep(sink)
            for message in messages:
                step.take(message)
            step.flush()
            step.changed_states()

    return Trial([lines(of(catalogue.INCIDENTS))], feed)


class _Posted:
    def post(self, request: Request, key: str) -> None:
        assert request.body
        assert key


def _ledger(_: Path) -> Trial:
    sink = WebhookSink(AlertmanagerWebhook(labels={}), _Posted(), lambda *_: None, jobs=jobs_of_run(), now_ns=lambda: 0)
    seeds = []
    for message in of(catalogue.INCIDENTS):
        list(sink.process(message))
        sink.flush()
        seeds += [saved.state for saved in sink.changed_states().values() if saved is not None]

    def feed(data: bytes) -> None:
        ledger = Ledger.from_bytes(data)
        ledger.to_bytes()

    return Trial(seeds, feed)
