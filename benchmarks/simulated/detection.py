"""What the pipeline says of a run. It is given the telemetry and nothing else; the truth has no way in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.telemetry_bytes import TelemetryBytes
from diagnosis.job import Job
from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.tidy import tidy
from producers.labels import label
from producers.log_agent import LogAgent
from schemas import catalogue
from schemas.log_answers import REQUEST_ID
from schemas.message import Message, decode
from schemas.processor import Processor
from schemas.topic import Topic

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Telemetry:
    """What is known of a run from outside: the job as its cluster describes it, and all ranks' logs."""

    job: Job
    table: pa.Table

    @classmethod
    def of(cls, job: Job, table: pa.Table) -> Telemetry:
        """The logs in order and labelled, as those of a recording are: iterations are inferred where they lack."""
        return cls(job, label(tidy(table).table).table)

    @cached_property
    def rows_of_iterations(self) -> Mapping[int, int]:
        """How many rows all ranks logged in each iteration."""
        counts = pc.value_counts(self.table.column("iteration"))
        return Counter(dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)))


@dataclass
class Detection:
    """What was said: rows of analysis.iterations, findings and incidents, and how many bytes travelled for it.

    ``fetched_rows`` counts the rows that the search of each iteration asked for.
    """

    iterations: dict[int, list[Row]] = field(default_factory=dict)
    findings: list[Row] = field(default_factory=list)
    incidents: dict[str, Row] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    bytes: TelemetryBytes = field(default_factory=TelemetryBytes)
    fetched_rows: Counter[int] = field(default_factory=Counter)

    @property
    def irregular(self) -> frozenset[int]:
        """Iterations that were called irregular."""
        return frozenset(iteration for iteration, rows in self.iterations.items() if rows[0]["irregular"])

    @property
    def searched(self) -> tuple[int, ...]:
        """Iterations that were searched for culprits, ascending."""
        return tuple(sorted({row["iteration"] for row in self.findings if row["active"]}))


def detect(telemetry: Telemetry, settings: Settings) -> Detection:
    """Move a run's telemetry, as encoded messages, through the whole pipeline in this process.

    Raises ``RuntimeError`` where a message was refused: the figures would tell of a part of the telemetry.
    """
    return detect_from(telemetry.job, wiring.log_agents(telemetry.job, telemetry.table, settings), settings)


def detect_from(
    job: Job, hosts: Sequence[LogAgent], settings: Settings, readers: Sequence[Processor] = ()
) -> Detection:
    """The same with what the agents of a job's hosts tell; ``readers`` hear everything, too."""
    listener = _Listener()
    wiring.run_agents_in_process(job, hosts, settings, [listener, *readers])
    heard = listener.heard
    if heard.refused:
        raise RuntimeError(f"{job.job}: {len(heard.refused)} messages were refused: {heard.refused[0]}")
    return heard


class _Listener:
    """Reads all that is published, and publishes nothing."""

    name = "listener"
    reads: tuple[Topic, ...] = (
        catalogue.ITERATION_SUMMARIES,
        catalogue.COMM_OPS,
        catalogue.OPERATOR_WINDOWS,
        catalogue.LOG_REQUESTS,
        catalogue.ITERATIONS,
        catalogue.FINDINGS,
        catalogue.INCIDENTS,
        catalogue.DEAD_LETTERS,
    )
    writes: tuple[Topic, ...] = ()

    def __init__(self) -> None:
        self.heard = Detection()
        self._rows = 0  # of the search under way: they run one after the other

    def process(self, message: Message) -> Iterable[Message]:
        heard = self.heard
        if message.topic == catalogue.ITERATIONS.name:
            for row in decode(message, catalogue.ITERATIONS).to_pylist():
                heard.iterations.setdefault(row["iteration"], []).append(row)
        elif message.topic == catalogue.FINDINGS.name:
            self._found(decode(message, catalogue.FINDINGS).to_pylist())
        elif message.topic == catalogue.INCIDENTS.name:
            for row in decode(message, catalogue.INCIDENTS).to_pylist():
                heard.incidents[row["id"]] = row
        elif message.topic == catalogue.DEAD_LETTERS.name:
            heard.refused += decode(message, catalogue.DEAD_LETTERS).column("reason").to_pylist()
        else:
            heard.bytes.process(message)
            if message.topic == catalogue.COMM_OPS.name and REQUEST_ID in message.headers:
                self._rows += decode(message, catalogue.COMM_OPS).num_rows
        return ()

    def _found(self, rows: list[dict[str, Any]]) -> None:
        self.heard.findings += rows
        for row in rows[:1]:
            if row["active"]:
                self.heard.fetched_rows[row["iteration"]] = self._rows
                self._rows = 0

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}
