"""Counting what travels on the bus."""

import pytest

from benchmarks.telemetry_bytes import TelemetryBytes, everything
from producers.log_agent import agents
from schemas.catalogue import COMM_OPS, FINDINGS, ITERATION_SUMMARIES, LOG_REQUESTS, OPERATOR_WINDOWS
from schemas.message import Message
from schemas.processor import Processor
from tests.streams.searched_jobs import SearchedJob

JOB = SearchedJob()


def record(topic: str, size: int, **headers: str) -> Message:
    return Message(topic, "j", b"x" * size, headers)


def test_every_byte_of_telemetry_counts_as_what_it_is() -> None:
    counted = TelemetryBytes()
    for message in (
        record(ITERATION_SUMMARIES.name, 1),
        record(COMM_OPS.name, 20),
        record(COMM_OPS.name, 300, request_id="r"),
        record(OPERATOR_WINDOWS.name, 4000, request_id="r"),
        record(LOG_REQUESTS.name, 50000),
        record(FINDINGS.name, 7),
        Message(COMM_OPS.name, "j", None, {}),
    ):
        assert list(counted.process(message)) == []
    assert (counted.summaries, counted.pivots, counted.answers, counted.requests) == (1, 20, 4300, 50000)
    assert (counted.unasked, counted.fetched) == (21, 54300)
    assert isinstance(counted, Processor)


def test_everything_is_what_all_ranks_would_publish() -> None:
    """A part of the iterations tells it, to within what they differ by."""
    counted = TelemetryBytes()
    for agent in agents(JOB.job, JOB.table, JOB.job.ranks):
        while (messages := agent.advance()) is not None:
            for message in messages:
                counted.process(message)
    assert counted.answers == counted.requests == 0
    assert everything(JOB.job, JOB.table) == pytest.approx(counted.unasked, rel=0.02)
