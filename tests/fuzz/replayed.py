"""A target: what `offbeat replay` takes from the topics, and what it answers from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from producers.kept_answers import KeptAnswers
from producers.kept_logs import KeptLogs
from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message, decode, encode
from tests.fuzz.published import lines, messages_of, of, run
from tests.fuzz.target import Target, Trial

_HEADERS = ("watermark_ns", "request_id", "part", "parts", "ranks", "outcome", "host", "producer")
_MOST_ROWS = 4
"""Of an answer: more of the same kind would only be long."""


def targets() -> Iterator[Target]:
    """What was kept in topics."""
    yield Target("kept logs of a replay", _kept)


def _kept(_: Path) -> Trial:
    """Records of a job, damaged; the diagnosis asks for all of it, and for what was asked then."""
    asked = of(catalogue.LOG_REQUESTS)[:1]
    ids = {row["request_id"] for message in asked for row in decode(message, catalogue.LOG_REQUESTS).to_pylist()}
    answers = [m for m in of(catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS) if m.headers.get("request_id") in ids][:4]
    unasked = [m for m in of(catalogue.COMM_OPS) if "request_id" not in m.headers][:1]
    summaries = of(catalogue.ITERATION_SUMMARIES)[:3]
    job = run().job

    def feed(data: bytes) -> None:
        logs = KeptLogs(job)
        for message in messages_of(data):
            with suppress(MessageError):
                if message.topic == catalogue.ITERATION_SUMMARIES.name:
                    logs.take_summaries(decode(message, catalogue.ITERATION_SUMMARIES))
                else:
                    logs.take(message)
        answering = KeptAnswers({job.job: logs})
        for message in (*asked, *(each for each in messages_of(data) if each.topic == catalogue.LOG_REQUESTS.name)):
            with suppress(MessageError):
                for answer in answering.process(replace(message, offset=0)):
                    decode(answer, catalogue.TOPICS[answer.topic])

    short = [_shortened(message) for message in (*asked, *summaries, *unasked, *answers)]
    return Trial([lines(short, _HEADERS), lines(short[: len(asked) + len(summaries)], _HEADERS)], feed, ())


def _shortened(message: Message) -> Message:

    topic = catalogue.TOPICS[message.topic]
    return encode(topic, decode(message, topic).slice(0, _MOST_ROWS), job=message.job, headers=message.headers)
