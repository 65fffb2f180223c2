"""The deployed pipeline on a real broker, with a served ClickHouse and somebody on call."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from producers.publisher import Publisher
from schemas import catalogue
from schemas.message import Message, decode
from schemas.topic import Topic
from sinks.clickhouse.driver import DriverStore, ServerAddress
from streams.bus import Bus
from streams.control_view import FollowedJobs
from streams.follower import LATEST, LIBRDKAFKA, Follower
from tests.integration.doomed import Fate
from tests.integration.on_call import OnCall
from tests.integration.outcome import Stored
from tests.integration.recordings import Recorded
from tests.integration.roles import KINDS, Producer, Role
from tests.offbeat.command_line import ROOT, own_environment, run_offbeat

WITHIN_S = 90.0
"""Far beyond what anything takes: a test that waits this long fails."""

SECRET = "signs the pages"

Found = TypeVar("Found")


class Pipeline:
    """All roles between one broker, one database and one receiver, as groups of their own on a broker that is shared.

    The topics have no names of their own: one such pipeline at a time on a broker. ``folder`` keeps what the
    processes say.
    """

    def __init__(self, servers: str, database: ServerAddress, on_call: OnCall, folder: Path) -> None:
        self.on_call = on_call
        self._folder = folder
        self._prefix = f"t{uuid4().hex[:8]}"
        settings = {
            "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": servers,
            "OFFBEAT_STORE__ENGINE": "clickhouse",
            "OFFBEAT_STORE__HOST": database.host,
            "OFFBEAT_STORE__PORT": str(database.port),
            "OFFBEAT_STORE__USER": database.user,
            "OFFBEAT_STORE__PASSWORD": database.password,
            "OFFBEAT_STORE__DATABASE": database.database,
            "OFFBEAT_WEBHOOK__URL": on_call.url,
            "OFFBEAT_WEBHOOK__SECRETS": SECRET,
            "OFFBEAT_WORKER__GROUP_PREFIX": self._prefix,
            # However slow the machine: logs that are there are reached.
            "OFFBEAT_SEARCH__ANSWER_WITHIN_NS": str(int(2 * WITHIN_S * 1e9)),
        }
        self._environment = {**own_environment(settings), "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        self._store = DriverStore(database)
        self._bus = Bus(servers)
        self._admin = AdminClient(self._bus.librdkafka(), logger=LIBRDKAFKA)
        self.roles = {name: Role(kind, self._environment, folder / name) for name, kind in KINDS.items()}
        self._producers: list[Producer] = []
        for prepared in (("topics", "apply"), ("store", "migrate")):
            done = run_offbeat(*prepared, settings=settings)
            assert done.returncode == 0, done.stderr
        self._pass_what_is_there()

    def close(self) -> None:
        """Stop all roles."""
        with ThreadPoolExecutor(len(self.roles)) as together:
            list(together.map(Role.stop, self.roles.values()))
        self._store.close()

    def repair(self) -> None:
        """See to it that all roles run, and that no fate awaits any of them."""
        for role in self.roles.values():
            role.fates.clear()
            if role.fate is not None:
                role.kill()
            if not role.running:
                role.start()

    def doom(self, name: str, *fates: Fate) -> Role:
        """Start a role anew that is to meet a fate, and where there are several, one after each further start."""
        role = self.roles[name]
        role.kill()
        role.fates.extend(fates)
        role.start()
        return role

    def ended(self, role: Role) -> int:
        """The exit code of a role that meets its fate."""
        self.awaited(lambda: not role.running, f"end of {role.folder.name}")
        return role.wait()

    @contextmanager
    def producing(self, *recordings: Recorded) -> Iterator[None]:
        """Publish recordings at the same time. After the block all that comes of them has arrived everywhere."""
        self._producers = [Producer(one, self._environment, self._folder / f"produce-{one.job}") for one in recordings]
        try:
            for producer in self._producers:
                producer.start()
            yield
            self.await_told(*recordings)
            for name in self.roles:
                self.await_worked_off(name)
            assert [producer.stop() for producer in self._producers] == [0] * len(recordings), self._told("produce")
        finally:
            for producer in self._producers:
                producer.kill()
            self._producers = []

    def send(self, messages: Iterable[Message]) -> None:
        """Publish records of a test's own."""
        publisher = Publisher(self._bus.librdkafka(), "test")
        for message in messages:
            publisher.send(message)
        publisher.flush()

    def await_told(self, *recordings: Recorded) -> None:
        """Wait until the producers have said all that the recordings hold."""
        with Follower(self._bus, catalogue.JOBS.name) as follower:
            jobs = FollowedJobs(follower)

            def over() -> bool:
                jobs.catch_up()
                return all(one.job in set(jobs) and jobs[one.job].ended_ns is not None for one in recordings)

            self.awaited(over, f"end of the log of {' and '.join(one.job for one in recordings)}")

    def await_worked_off(self, name: str) -> None:
        """Wait until a role has committed all that its inputs hold; its outputs are complete then."""
        self.awaited(lambda: self.lag(name) == 0, f"commit of all that {name} reads")

    def lag(self, name: str) -> int:
        """Records of a role's inputs that it has not committed."""
        return sum(self._lag(f"{self._prefix}.{name}", topic) for topic in KINDS[name].reads)

    def stored(self, recorded: Recorded) -> Stored:
        """What is stored of a recording by now."""
        return Stored.of(self._store, recorded.job)

    def seen(self, topic: Topic) -> list[Message]:
        """Everything that a topic holds by now."""
        with Follower(self._bus, topic.name) as follower:
            return list(follower.catch_up())

    def letters(self, recorded: Recorded) -> list[dict[str, Any]]:
        """The dead letters that came under a recording's job id."""
        rows = [row for message in self.seen(catalogue.DEAD_LETTERS) for row in _rows(message, catalogue.DEAD_LETTERS)]
        return [row for row in rows if row["key"] == recorded.job]

    def awaited(self, look: Callable[[], Found | None], what: str) -> Found:
        """Look again and again until something is found; fail when a process ends that was not meant to."""
        deadline = time.monotonic() + WITHIN_S
        while not (found := look()):
            lasting = [*self._producers, *(role for role in self.roles.values() if role.fate is None)]
            if any(not process.running for process in lasting):
                pytest.fail(self._told(f"a process ended before there was the {what}"))
            if time.monotonic() > deadline:
                pytest.fail(self._told(f"in {WITHIN_S:g} s there was no {what}"))
            time.sleep(0.1)  # leave the processor to those who are waited for
        return found

    def _pass_what_is_there(self) -> None:
        """Let all groups begin after what others have left on the broker: nobody answers for those jobs any more."""
        while_coordinators_load = Retrying(
            retry=retry_if_result(bool), stop=stop_after_delay(WITHIN_S), wait=wait_fixed(0.1)
        )
        for name, kind in KINDS.items():
            ends = [
                TopicPartition(topic.name, partition, end)
                for topic in kind.reads
                for partition, end in self._ends(topic).items()
            ]
            while_coordinators_load(self._refused, ConsumerGroupTopicPartitions(f"{self._prefix}.{name}", ends))

    def _refused(self, commit: ConsumerGroupTopicPartitions) -> list[KafkaError]:
        [answer] = self._admin.alter_consumer_group_offsets([commit]).values()
        return [place.error for place in answer.result().topic_partitions if place.error is not None]

    def _lag(self, group: str, topic: Topic) -> int:
        ends = self._ends(topic)
        places = [TopicPartition(topic.name, partition) for partition in ends]
        [answer] = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
        return sum(ends[place.partition] - place.offset for place in answer.result().topic_partitions)

    def _ends(self, topic: Topic) -> dict[int, int]:
        asked = {TopicPartition(topic.name, partition): LATEST for partition in range(topic.partitions)}
        return {place.partition: answer.result().offset for place, answer in self._admin.list_offsets(asked).items()}

    def _told(self, what: str) -> str:
        return "\n".join([what, *(process.last_words() for process in (*self._producers, *self.roles.values()))])


def _rows(message: Message, topic: Topic) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = decode(message, topic).to_pylist()
    return rows
