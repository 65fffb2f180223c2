"""What the tests with a broker share: topics of their own, workers as processes, and waiting for what is to come."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from producers.publisher import Publisher
from schemas import catalogue
from schemas.message import Message, decode
from schemas.topic import Topic
from streams import topics as on_broker
from streams.bus import LIBRDKAFKA, Bus
from streams.follower import Follower
from tests.streams.examples import Topics
from tests.streams.worker_script import Plan

WITHIN_S = 60.0
"""Far beyond what anything takes: a test that waits this long fails."""

Found = TypeVar("Found")


def awaited(look: Callable[[], Found | None], what: str) -> Found:
    """Look again and again until something is found."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"in {WITHIN_S:g} s there was no {what}"
        time.sleep(0.05)  # leave the processor to those who are waited for


class Worker:
    """One worker process; killed at the end of the test if it still runs."""

    def __init__(self, plan: Plan, log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            command = [sys.executable, "-m", "tests.streams.worker_script", json.dumps(asdict(plan))]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def ended(self) -> int:
        return self.process.wait(WITHIN_S)

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Stage:
    """One test's topics on a broker that others use as well."""

    def __init__(self, servers: str, prefix: str, folder: Path, partitions: int = 3) -> None:
        self.bus = Bus(servers)
        self.prefix = prefix
        self.folder = folder
        self.topics = Topics.named(prefix, partitions)
        self.plan = Plan(servers, prefix, str(folder), partitions=partitions)
        self.admin = AdminClient(self.bus.librdkafka(), logger=LIBRDKAFKA)
        self._publisher = Publisher(self.bus.librdkafka(), "test")
        self._followers: dict[str, Follower] = {}
        self._seen: dict[str, list[Message]] = {}
        self._workers: list[Worker] = []
        on_broker.apply(self.bus, [*catalogue.TOPICS.values(), *vars(self.topics).values()])

    def start(self, **plan: Any) -> Worker:
        worker = Worker(replace(self.plan, **plan), self.folder / f"worker{len(self._workers)}.log")
        self._workers.append(worker)
        return worker

    def send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._publisher.send(message)
        self._publisher.flush()

    def seen(self, topic: Topic) -> list[Message]:
        """Everything that a topic holds by now, a partition's messages in their order."""
        if topic.name not in self._followers:
            self._followers[topic.name] = Follower(self.bus, topic.name)
        seen = self._seen.setdefault(topic.name, [])
        seen.extend(self._followers[topic.name].catch_up())
        return seen

    def rows(self, topic: Topic) -> set[tuple[str, ...]]:
        """What a topic says, without regard to order and repetition."""
        return {
            (message.job, *(str(field) for field in row.values()))
            for message in self.seen(topic)
            for row in decode(message, topic).to_pylist()
        }

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters of this test's topics, each only once."""
        letters = {}
        for message in self.seen(catalogue.DEAD_LETTERS):
            for row in decode(message, catalogue.DEAD_LETTERS).to_pylist():
                if row["topic"].startswith(f"{self.prefix}."):
                    letters[row["topic"], row["partition"], row["offset"]] = row
        return [letters[place] for place in sorted(letters)]

    def committed(self, processor: str, topic: Topic) -> dict[int, int]:
        """The committed offsets of a processor's group, by partition; those of none are absent."""
        places = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        group = ConsumerGroupTopicPartitions(f"offbeat.{self.prefix}.{processor}", places)
        [future] = self.admin.list_consumer_group_offsets([group]).values()
        return {place.partition: place.offset for place in future.result().topic_partitions if place.offset >= 0}

    def await_rows(self, topic: Topic, expected: set[tuple[str, ...]]) -> None:
        """Wait until a topic says all that is expected; then it must say nothing else."""
        awaited(lambda: expected <= self.rows(topic), f"{len(expected)} rows in {topic.name}")
        assert self.rows(topic) == expected

    def await_all_committed(self, processor: str, topic: Topic) -> None:
        """Wait until the group has passed every message that the topic holds by now."""
        ends: dict[int, int] = {}
        for message in self.seen(topic):
            ends[message.partition] = max(message.offset + 1, ends.get(message.partition, 0))
        awaited(lambda: self.committed(processor, topic) == ends, f"commit of {ends} in {topic.name}")

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        for follower in self._followers.values():
            follower.close()


@contextmanager
def staged(servers: str, prefix: str, folder: Path, partitions: int = 3) -> Iterator[Stage]:
    stage = Stage(servers, prefix, folder, partitions)
    try:
        yield stage
    finally:
        stage.close()
