"""The deployed pipeline on a real broker, with a served ClickHouse and somebody on call."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from producers.publisher import Publisher
from schemas import catalogue
from schemas.message import Message, decode
from schemas.topic import Topic
from sinks.clickhouse.driver import DriverStore, ServerAddress
from streams.brokers import LATEST
from streams.bus import LIBRDKAFKA, Bus
from streams.follower import Follower
from tests.integration.on_call import OnCall
from tests.integration.outcome import Stored
from tests.integration.recordings import Recorded
from tests.integration.roles import KINDS, Fate, Process, Producer, Role
from tests.offbeat.command_line import ROOT, own_environment, run_offbeat

WITHIN_S = 90.0
"""Far beyond what anything takes: a test that waits this long fails."""

AGAIN_AFTER_S = 1.0
"""How long a supervisor leaves a process alone that has ended."""

SECRET = "signs the pages"

Found = TypeVar("Found")
Share = frozenset[tuple[str, int]]
"""Partitions that one worker of a group reads."""


class Pipeline:
    """All roles between one broker, one database and one receiver, as groups of their own on a broker that is shared.

    The topics have no names of their own: one such pipeline at a time on a broker. ``folder`` keeps what the
    processes say. The roles run under ``overriding`` settings, whose names are those of the environment.
    ``supervised``: who ends is started again, as whoever runs it would, and counted in ``restarts``; else a test fails.
    Roles in ``held`` stay down when they end. Producers take ``iteration_s`` for each iteration.
    """

    def __init__(
        self,
        servers: str,
        database: ServerAddress,
        on_call: OnCall,
        folder: Path,
        *,
        overriding: Mapping[str, str] | None = None,
        supervised: bool = False,
        within_s: float = WITHIN_S,
        iteration_s: float = 0.0,
    ) -> None:
        self.on_call = on_call
        self.restarts: Counter[str] = Counter()
        self.held: set[str] = set()
        self._supervised = supervised
        self._within_s = within_s
        self.iteration_s = iteration_s
        self._again_at: dict[Process, float] = {}
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
            "OFFBEAT_SEARCH__ANSWER_WITHIN_NS": str(int(2 * within_s * 1e9)),
            **(overriding or {}),
        }
        self.settings = settings
        self.environment = {**own_environment(settings), "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        self._store = DriverStore(database)
        self._bus = Bus(servers)
        self._ask_anew()
        self.roles = {name: Role(kind, self.environment, folder / name) for name, kind in KINDS.items()}
        self.producers: list[Producer] = []
        for prepared in (("topics", "apply"), ("store", "migrate")):
            done = run_offbeat(*prepared, settings=settings)
            assert done.returncode == 0, done.stderr
        for name in KINDS:  # nobody answers any more for the jobs that others have left on the broker
            self.pass_by(name)

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

        def producer(one: Recorded) -> Producer:
            return Producer(one, self.environment, self._folder / f"produce-{one.job}", iteration_s=self.iteration_s)

        with self.publishing(*map(producer, recordings)):
            yield

    @contextmanager
    def publishing(self, *producers: Producer) -> Iterator[None]:
        """Run producers, until all that comes of what they tell has arrived everywhere."""
        self.producers = list(producers)
        try:
            for producer in self.producers:
                producer.start()
            yield
            self.await_told(*(producer.recorded for producer in producers))
            for name in self.roles:
                self.await_worked_off(name)
            codes = [producer.stop() for producer in self.producers]
            assert self._supervised or set(codes) == {0}, self._told("produce")
        finally:
            for producer in self.producers:
                producer.kill()
            self.producers = []

    def send(self, messages: Iterable[Message]) -> None:
        """Publish records of a test's own."""
        publisher = Publisher(self._bus.librdkafka(), "test")
        for message in messages:
            publisher.send(message)
        publisher.flush()

    def await_told(self, *recordings: Recorded) -> None:
        """Wait until the producers have said all that the recordings hold, since they were last started."""
        ends = {one.job: 0 for one in recordings}
        with Follower(self._bus, catalogue.JOBS.name) as follower:

            def over() -> bool:
                own = [message for message in follower.catch_up() if message.job in ends]
                over = [message for message in own if _rows(message, catalogue.JOBS)[0]["ended_ns"] is not None]
                ends.update({message.job: message.timestamp_ns for message in over})
                since = {producer.recorded.job: producer.started_ns for producer in self.producers}
                return all(end > since.get(job, 0) for job, end in ends.items())

            self.awaited(over, f"end of the log of {' and '.join(ends)}")

    def are_told(self, *recordings: Recorded) -> bool:
        """Whether all jobs have ended; their producers have said all then."""
        rows = (row for message in self.seen(catalogue.JOBS) for row in _rows(message, catalogue.JOBS))
        over = {row["job"] for row in rows if row["ended_ns"] is not None}
        return all(one.job in over for one in recordings)

    def another(self, name: str, instance: str) -> Role:
        """A further worker of a role's group; whoever starts it stops it."""
        return Role(KINDS[name], self.environment, self._folder / f"{name}-{instance}")

    def await_worked_off(self, name: str) -> None:
        """Wait until a role has committed all that its inputs hold; its outputs are complete then."""
        self.awaited(lambda: self.lag(name) == 0, f"commit of all that {name} reads")

    def is_worked_off(self) -> bool:
        """Whether all roles have committed all that their inputs hold by now."""
        return all(self.lag(name) == 0 for name in self.roles)

    def lag(self, name: str) -> int:
        """Records of a role's inputs that it has not committed."""
        return self.lag_of(f"{self._prefix}.{name}", KINDS[name].reads)

    def lag_of(self, group: str, reads: Iterable[Topic]) -> int:
        """Records of topics that a group has not committed."""
        return self._asked(lambda: sum(self._lag(group, topic) for topic in reads))

    def shares(self, name: str) -> Mapping[str, Share]:
        """What the broker lets each worker of a role read, by the worker's instance; none amid a rebalance."""
        return self._asked(lambda: self._shares(f"{self._prefix}.{name}"))

    def _asked(self, ask: Callable[[], Found]) -> Found:
        """What the broker answers, once it does."""
        while_it_finds_its_way = Retrying(
            retry=retry_if_exception_type(KafkaException),
            stop=stop_after_delay(self._within_s),
            wait=wait_fixed(0.5),
            before_sleep=lambda _: self._ask_anew(),
            reraise=True,
        )
        return while_it_finds_its_way(ask)

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

    def rest(self, seconds: float) -> None:
        """Let the roles work for a while."""
        until = time.monotonic() + seconds
        self.awaited(lambda: time.monotonic() >= until, "end of a rest")

    def awaited(self, look: Callable[[], Found | None], what: str) -> Found:
        """Look again and again until something is found; fail when a process ends that was not meant to."""
        deadline = time.monotonic() + self._within_s
        while not (found := look()):
            kept = [role for name, role in self.roles.items() if role.fate is None and name not in self.held]
            for process in (*self.producers, *kept):
                if not process.running:
                    self._ended(process, what)
            if time.monotonic() > deadline:
                pytest.fail(self._told(f"in {self._within_s:g} s there was no {what}"))
            time.sleep(0.1)  # leave the processor to those who are waited for
        return found

    def _ended(self, process: Process, what: str) -> None:
        """A process is not there: start it again a moment later, or fail."""
        if not self._supervised:
            pytest.fail(self._told(f"a process ended before there was the {what}"))
        if process not in self._again_at:
            self._again_at[process] = time.monotonic() + AGAIN_AFTER_S
        elif time.monotonic() >= self._again_at[process]:
            del self._again_at[process]
            self.restarts[process.folder.name] += 1
            process.start()

    def pass_by(self, name: str) -> None:
        """Let a role that does not run begin after all that its inputs hold by now."""
        self.begin_at_the_ends(f"{self._prefix}.{name}", KINDS[name].reads)

    def begin_at_the_ends(self, group: str, reads: Iterable[Topic]) -> None:
        """Commit the ends of these topics for a group without members; waits for the last one to be forgotten."""
        ends = [
            TopicPartition(topic.name, partition, end)
            for topic in reads
            for partition, end in self._ends(topic).items()
        ]
        while_refused = Retrying(
            retry=retry_if_result(bool), stop=stop_after_delay(self._within_s), wait=wait_fixed(0.1)
        )
        while_refused(self._refused, ConsumerGroupTopicPartitions(group, ends))

    def _refused(self, commit: ConsumerGroupTopicPartitions) -> list[KafkaError]:
        [answer] = self._admin.alter_consumer_group_offsets([commit]).values()
        try:
            return [place.error for place in answer.result().topic_partitions if place.error is not None]
        except KafkaException as error:
            return [error.args[0]]

    def _ask_anew(self) -> None:
        """Forget what was known of the broker: it may have restarted."""
        self._admin = AdminClient(self._bus.librdkafka(), logger=LIBRDKAFKA)

    def _lag(self, group: str, topic: Topic) -> int:
        ends = self._ends(topic)
        places = [TopicPartition(topic.name, partition) for partition in ends]
        [answer] = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
        return sum(ends[place.partition] - place.offset for place in answer.result().topic_partitions)

    def _shares(self, group: str) -> Mapping[str, Share]:
        [answer] = self._admin.describe_consumer_groups([group]).values()
        told = answer.result()
        if told.state is not ConsumerGroupState.STABLE:
            return {}
        return {
            str(member.group_instance_id): frozenset(
                (place.topic, place.partition) for place in member.assignment.topic_partitions
            )
            for member in told.members
        }

    def _ends(self, topic: Topic) -> dict[int, int]:
        asked = {TopicPartition(topic.name, partition): LATEST for partition in range(topic.partitions)}
        return {place.partition: answer.result().offset for place, answer in self._admin.list_offsets(asked).items()}

    def _told(self, what: str) -> str:
        return "\n".join([what, *(process.last_words() for process in (*self.producers, *self.roles.values()))])


def _rows(message: Message, topic: Topic) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = decode(message, topic).to_pylist()
    return rows
