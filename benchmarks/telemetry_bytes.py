"""How many bytes of telemetry travel on the bus, and how many would if every log were published.

What travels is what the log agents send: summaries of all ranks, the pivots' logs, and what was asked for. Requests for
it count as well. Holmes counts the answers alone (5.2: 0.84 of 24.36 GB).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job
from producers.log_agent import agents
from schemas import catalogue
from schemas.log_answers import REQUEST_ID
from schemas.message import Message
from schemas.topic import Topic

SAMPLED = 5
"""Iterations that tell how many bytes a row takes on the bus."""


@dataclass
class TelemetryBytes:
    """Counts messages as they pass; a processor that reads everything and publishes nothing."""

    name: str = "telemetry-bytes"
    reads: tuple[Topic, ...] = (
        catalogue.ITERATION_SUMMARIES,
        catalogue.COMM_OPS,
        catalogue.OPERATOR_WINDOWS,
        catalogue.LOG_REQUESTS,
    )
    writes: tuple[Topic, ...] = ()
    summaries: int = 0
    pivots: int = 0
    answers: int = 0
    requests: int = 0

    def process(self, message: Message) -> Iterable[Message]:
        """Count a record; one of another topic is no telemetry."""
        size = len(message.value or b"")
        if message.topic == catalogue.ITERATION_SUMMARIES.name:
            self.summaries += size
        elif message.topic == catalogue.LOG_REQUESTS.name:
            self.requests += size
        elif message.topic in {catalogue.COMM_OPS.name, catalogue.OPERATOR_WINDOWS.name}:
            if REQUEST_ID in message.headers:
                self.answers += size
            else:
                self.pivots += size
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    @property
    def unasked(self) -> int:
        """What the agents sent of their own accord."""
        return self.summaries + self.pivots

    @property
    def fetched(self) -> int:
        """Answers, and the requests for them."""
        return self.answers + self.requests


def everything(job: Job, table: pa.Table) -> int:
    """Bytes of all ranks' logs and summaries, were they all published; told from a few iterations by their rows."""
    iteration = table.column("iteration")
    first = pc.max(iteration).as_py() // 2
    sample = table.filter(pc.is_in(iteration, pa.array(range(first, first + SAMPLED), iteration.type)))
    counted = TelemetryBytes()
    for agent in agents(job, sample, job.ranks):
        while (messages := agent.advance()) is not None:
            for message in messages:
                counted.process(message)
    return int(counted.unasked * table.num_rows / sample.num_rows)
