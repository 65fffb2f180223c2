"""Reads a benchmark's topic to its end in a process of its own, and says how fast: a Plan as JSON on stdin,
a Reading as JSON on stdout.

The plain consumer and the worker count the same way. The clock starts when the first record of the lead-in is
taken: by then start-up is over, and what a client has fetched ahead are small records. It stops with the last of
the large ones.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from confluent_kafka import Consumer, KafkaException

from producers.publisher import Publisher
from schemas.catalogue import COMM_OPS
from schemas.errors import BusError
from schemas.message import Message, decode
from schemas.topic import Topic
from streams.bus import Bus
from streams.received import received
from streams.share import Context
from streams.worker import WorkerSettings, run_worker

PROCESSOR = "reader"
SILENCE_S = 60.0
"""A reader that gets nothing for so long has lost its broker."""


class Reader(StrEnum):
    """What reads, and whether it decodes what it reads."""

    CONSUMER = "consumer"
    CONSUMER_DECODE = "consumer_decode"
    WORKER = "worker"
    WORKER_DECODE = "worker_decode"

    @property
    def decodes(self) -> bool:
        return self in {Reader.CONSUMER_DECODE, Reader.WORKER_DECODE}


@dataclass(frozen=True, slots=True)
class Plan:
    """``bus`` holds the fields of a Bus; ``lead_in`` small records of ``topic`` come before ``records`` large ones.

    What comes after them is not read.
    """

    reader: Reader
    bus: dict[str, Any]
    topic: str
    group: str
    lead_in: int
    records: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read while the clock ran."""

    records: int
    bytes: int
    seconds: float
    cpu_seconds: float


def topic_named(name: str) -> Topic:
    """A topic of comm_ops of a benchmark's own: one job's records, hence one partition."""
    return replace(COMM_OPS, name=name, partitions=1)


class Meter:
    """Counts records as they are taken, and decodes them if that is to be measured."""

    def __init__(self, plan: Plan) -> None:
        self._topic = topic_named(plan.topic) if plan.reader.decodes else None
        self._lead_in = plan.lead_in
        self._expected = plan.lead_in + plan.records
        self._seen = 0
        self._bytes = 0
        self._started = 0.0
        self._cpu_started = 0.0
        self._reading: Reading | None = None

    def take(self, message: Message) -> None:
        """Count a record; those after the last large one do not count.

        Raises ``MessageError`` for one that does not decode, ``ValueError`` for one that came out of turn.
        """
        if self.complete:
            return
        if message.offset != self._seen:
            raise ValueError(f"{message.topic}: record {message.offset} came when {self._seen} was due")
        if not self._seen:
            self._started, self._cpu_started = time.perf_counter(), time.process_time()
        if self._topic is not None:
            decode(message, self._topic)
        self._seen += 1
        if self._seen > self._lead_in:
            self._bytes += len(message.value or b"")
        if self._seen == self._expected:
            seconds, cpu_seconds = time.perf_counter() - self._started, time.process_time() - self._cpu_started
            self._reading = Reading(self._seen - self._lead_in, self._bytes, seconds, cpu_seconds)

    @property
    def complete(self) -> bool:
        return self._reading is not None

    @property
    def reading(self) -> Reading:
        """What was measured. Raises ``BusError`` where the reading ended before the topic did."""
        if self._reading is None:
            raise BusError(f"{self._seen} of {self._expected} records were read")
        return self._reading


class Metered:
    """The processor whose worker is measured: it only counts, and ends the worker with the last record."""

    name: str = PROCESSOR
    writes: tuple[Topic, ...] = ()

    def __init__(self, topic: Topic, meter: Meter) -> None:
        self.reads: tuple[Topic, ...] = (topic,)
        self._meter = meter

    def process(self, message: Message) -> Iterable[Message]:
        before = self._meter.complete
        self._meter.take(message)
        if self._meter.complete and not before:
            os.kill(os.getpid(), signal.SIGTERM)
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


def read(plan: Plan) -> Reading:
    """Read the topic to its end.

    Raises ``BusError`` or ``KafkaException`` where the brokers do not give it, ``TimeoutError`` where they fall
    silent.
    """
    meter = Meter(plan)
    bus = Bus(**plan.bus)
    if plan.reader in {Reader.WORKER, Reader.WORKER_DECODE}:
        _work(plan, bus, meter)
    else:
        _consume(plan, bus, meter)
    return meter.reading


def _consume(plan: Plan, bus: Bus, meter: Meter) -> None:
    """The yardstick: the client's defaults, and nothing between it and the meter but what a decoder needs."""
    consumer = Consumer(
        {**bus.librdkafka(), "group.id": plan.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([plan.topic])
    try:
        while not meter.complete:
            record = consumer.poll(SILENCE_S)
            if record is None:
                raise TimeoutError(f"{plan.topic}: nothing came for {SILENCE_S:g} s")
            if (error := record.error()) is not None:
                raise KafkaException(error)
            headers: Any = record.headers() if plan.reader.decodes else None
            meter.take(
                received(
                    plan.topic,
                    0,
                    record.offset() or 0,
                    key=record.key(),
                    value=record.value(),
                    headers=headers,
                    timestamp_ns=0,
                )
            )
    finally:
        consumer.close()


def _work(plan: Plan, bus: Bus, meter: Meter) -> None:
    topic = topic_named(plan.topic)

    def make(_: Context) -> Metered:
        return Metered(topic, meter)

    run_worker(
        make,
        name=PROCESSOR,
        reads=(topic,),
        writes=(),
        bus=bus,
        outbox=Publisher(bus.librdkafka(), PROCESSOR),
        settings=WorkerSettings(group_prefix=plan.group),
    )


def main() -> int:
    logging.basicConfig(level="WARNING")
    given = json.load(sys.stdin)
    print(json.dumps(asdict(read(Plan(**{**given, "reader": Reader(given["reader"])})))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
