"""A small job with a fault and all that it publishes: what targets damage, and the forms in which they do."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa

from offbeat import wiring
from offbeat.settings import Settings
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from streams.control_view import Jobs
from tests.streams.examples import Listener

SETTINGS = Settings()
_NOT_A_RECORD = (
    ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, pa.ArrowException, MessageError
)  # fmt: skip
"""What becomes of a line that no sender could make a record of."""


@cache
def run() -> SimulatedRun:
    fault = Fault(Kind.GPU_SLOW, 1, (10, 11, 12, 13), slowdown=1.6)
    return simulate(Scenario(3, tp=2, pp=1, dp=2, layers=2, microbatches=2, iterations=16, faults=(fault,)))


@cache
def published() -> tuple[Message, ...]:
    """All that a small job with a fault publishes, in order."""
    listener = Listener(tuple(catalogue.TOPICS.values()))
    wiring.run_in_process(run().job, run().table, SETTINGS, [listener])
    return tuple(listener.heard)


def of(*topics: Topic) -> list[Message]:
    names = {topic.name for topic in topics}
    return [message for message in published() if message.topic in names]


def jobs_of_run() -> Jobs:
    jobs = Jobs()
    for message in of(catalogue.JOBS):
        jobs.process(message)
    return jobs


def record(topic: Topic, data: bytes) -> Message:
    """Bytes as a topic's record; of JSON, the record of that row."""
    job = run().job.job
    headers = {"schema": topic.schema_id, "job": job}
    if data.startswith(b"{"):
        try:
            return replace(encode(topic, topic.from_rows([json.loads(data)]), job=job), offset=0)
        except _NOT_A_RECORD:
            data = b""
    return Message(topic.name, job, data, headers, offset=0)


_WATERMARK = ("watermark_ns",)


def lines(messages: Iterable[Message], headers: Collection[str] = _WATERMARK) -> bytes:
    """Messages as lines of JSON, in which values can be damaged while the form stays whole; with these ``headers``."""
    topics = catalogue.TOPICS
    return b"\n".join(
        line_of(topics[m.topic], decode(m, topics[m.topic]).to_pylist(), m.headers, headers) for m in messages
    )


def line_of(
    topic: Topic, rows: list[dict[str, Any]], headers: Mapping[str, str], wanted: Collection[str] = _WATERMARK
) -> bytes:
    known = [{name: value for name, value in row.items() if value is not None} for row in rows]
    own = {name: headers[name] for name in wanted if name in headers}
    return json.dumps({"topic": topic.name, "headers": own, "rows": known}).encode()


def messages_of(data: bytes) -> Iterator[Message]:
    """The messages of lines, of those that are any."""
    for offset, line in enumerate(data.split(b"\n")):
        try:
            said = json.loads(line)
            topic = catalogue.TOPICS[said["topic"]]
            headers = {_text(name): _text(value) for name, value in said["headers"].items()}
            made = encode(topic, topic.from_rows(said["rows"]), job=run().job.job, headers=headers)
        except _NOT_A_RECORD:
            continue
        yield replace(made, offset=offset)


def _text(value: Any) -> str:
    """A header as it comes from a broker: bytes that were decoded."""
    return str(value).encode(errors="replace").decode()
