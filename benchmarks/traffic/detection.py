"""What the pipeline says of a run. It is given encoded telemetry and nothing else; the truth has no way in here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from diagnosis.job import Job
from offbeat import wiring
from offbeat.settings import Settings
from schemas import catalogue
from schemas.message import Message, decode
from schemas.topic import Topic

Row = Mapping[str, Any]

HANG_NS = 6_000_000_000
"""Silence that counts as a hang: iterations are as much shorter than real ones as their volumes are smaller."""


def detect(job: Job, messages: Sequence[Message], settings: Settings) -> list[Row]:
    """The incidents that come of a job's NIC telemetry, each as it stands at the end.

    Raises ``RuntimeError`` where a message was refused.
    """
    return [as_told[-1] for as_told in revisions(job, messages, settings)]


def revisions(job: Job, messages: Sequence[Message], settings: Settings) -> list[list[Row]]:
    """The same incidents, each as it stood whenever it was told, first to last."""
    said = hear(catalogue.INCIDENTS, job, messages, _hanging_sooner(settings))
    told: dict[str, list[Row]] = {}
    for row in rows(catalogue.INCIDENTS, said):
        told.setdefault(row["id"], []).append(row)
    return list(told.values())


def hear(topic: Topic, job: Job, messages: Iterable[Message], settings: Settings) -> list[Message]:
    """What the pipeline says on a topic when it is told of a job's NICs.

    Raises ``RuntimeError`` where a message was refused: the figures would tell of a part of the telemetry.
    """
    listener = _Listener(topic)
    wiring.run_traffic_in_process(job, messages, settings, [listener])
    if listener.refused:
        raise RuntimeError(f"{job.job}: {len(listener.refused)} messages were refused: {listener.refused[0]}")
    return listener.messages


def rows(topic: Topic, messages: Iterable[Message]) -> list[Row]:
    """All rows of a topic's messages."""
    return [row for message in messages for row in decode(message, topic).to_pylist()]


def _hanging_sooner(settings: Settings) -> Settings:
    course = replace(settings.compare.course, hang_ns=HANG_NS)
    return settings.model_copy(update={"compare": replace(settings.compare, course=course)})


class _Listener:
    """Keeps what is said on a topic, and why messages were refused; publishes nothing."""

    name = "listener"
    writes: tuple[Topic, ...] = ()

    def __init__(self, topic: Topic) -> None:
        self.reads: tuple[Topic, ...] = (topic, catalogue.DEAD_LETTERS)
        self.messages: list[Message] = []
        self.refused: list[str] = []

    def process(self, message: Message) -> Iterable[Message]:
        if message.topic == catalogue.DEAD_LETTERS.name:
            self.refused += decode(message, catalogue.DEAD_LETTERS).column("reason").to_pylist()
        else:
            self.messages.append(message)
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}
