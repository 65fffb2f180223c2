"""MB a second of 1 MB records from Kafka: through one worker, and into a plain consumer beside it.

Every reading is a process of its own, with a consumer group of its own, that reads the same topic to its end; the
readers take turns, so that whatever else the machine does meets all of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from typing import Any

from confluent_kafka.admin import AdminClient

from benchmarks.bus_reader import SILENCE_S, Plan, Reader, Reading, topic_named
from benchmarks.store_insert import operator_messages
from producers.publisher import Publisher
from schemas import catalogue
from schemas.errors import BusError
from schemas.message import Message
from schemas.topic import Topic
from streams import topics
from streams.bus import LIBRDKAFKA, Bus

RECORD_BYTES = 1_000_000
LEAD_IN = 250
"""Small records before the large ones: more than a worker holds in its batch and its buffer, so that nothing large
is fetched ahead before the clock starts but what one answer of a broker holds. As many follow, so that no worker
waits for more before it processes the last large ones."""

_DISTINCT = 8
"""Large records that differ; the topic repeats them."""

_NEEDED = (catalogue.JOBS, catalogue.STATE, catalogue.DEAD_LETTERS)
"""What any worker needs beside its inputs."""


@dataclass(frozen=True, slots=True)
class BusRates:
    """The ``readings`` of each reader, one a round; a MB is 10^6 bytes of record values."""

    records: int
    record_bytes: int
    readings: Mapping[Reader, Sequence[Reading]]

    def mb_per_s(self, reader: Reader) -> list[float]:
        """The reader's rate in each round."""
        return [reading.bytes / reading.seconds / 1e6 for reading in self.readings[reader]]

    def median_mb_per_s(self, reader: Reader) -> float:
        """The reader's rate."""
        return statistics.median(self.mb_per_s(reader))

    def cpu_ms_per_mb(self, reader: Reader) -> float:
        """Processor time of the reader, which depends less on what else the machine does; the median."""
        return statistics.median(reading.cpu_seconds / reading.bytes * 1e9 for reading in self.readings[reader])


def measure_bus(bus: Bus, *, records: int, rounds: int) -> BusRates:
    """Read ``records`` large records with every reader in turn, ``rounds`` times, from a topic that is dropped after.

    Raises ``BusError`` where the brokers lack a topic that workers need, or a reading fails.
    """
    large = large_records()
    readings: dict[Reader, list[Reading]] = {reader: [] for reader in Reader}
    with _filled_topic(bus, islice(cycle(large), records)) as topic:
        for _ in range(rounds):
            for reader in Reader:
                plan = Plan(reader, asdict(bus), topic.name, _own_name(), LEAD_IN, records)
                readings[reader].append(_reading(plan))
    return BusRates(records, round(statistics.mean(len(message.value or b"") for message in large)), readings)


def large_records(count: int = _DISTINCT) -> list[Message]:
    """Records of comm_ops of about ``RECORD_BYTES``, encoded as log agents do."""
    _, probe = operator_messages(2 * (rows := 50_000), rows_per_message=rows)
    per_record = rows * RECORD_BYTES // len(probe.value or b"")
    _, *records = operator_messages(per_record * (count + 1), rows_per_message=per_record)  # the first is larger
    return records


@contextmanager
def _filled_topic(bus: Bus, large: Iterator[Message]) -> Iterator[Topic]:
    topic = topic_named(f"{_own_name()}.comm_ops")
    topics.apply(bus, [topic])
    try:
        topics.check(bus, [topic], _NEEDED)
        publisher = Publisher(bus.librdkafka(), "bench")
        small = operator_messages(LEAD_IN, rows_per_message=1)
        for message in (*small, *large, *small):
            publisher.send(replace(message, topic=topic.name))
        publisher.flush()
        yield topic
    finally:
        admin = AdminClient(bus.librdkafka(), logger=LIBRDKAFKA)
        admin.delete_topics([topic.name])[topic.name].result()  # the groups' offsets go with it


def _reading(plan: Plan) -> Reading:
    command = [sys.executable, "-m", "benchmarks.bus_reader"]
    try:
        done = subprocess.run(
            command, input=json.dumps(asdict(plan)), capture_output=True, text=True, timeout=5 * SILENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BusError(f"{plan.reader}: {plan.topic} was not read in {error.timeout:g} s") from error
    if done.returncode != 0:
        raise BusError(f"{plan.reader}: the reading of {plan.topic} failed:\n{done.stderr[-2000:]}")
    fields: dict[str, Any] = json.loads(done.stdout)
    reading = Reading(**fields)
    if reading.records != plan.records:
        raise BusError(f"{plan.reader}: {reading.records} of {plan.records} records of {plan.topic} were read")
    return reading


def _own_name() -> str:
    return f"offbeat-bench-{uuid.uuid4().hex[:8]}"
