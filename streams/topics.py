"""The catalogue and a broker: `apply` makes it true there, `check` says before a start what would go wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from schemas.errors import BusError
from schemas.topic import Topic
from streams.bus import LIBRDKAFKA, Bus

HEADERS_BYTES = 64 << 10
"""Room for a record's key and headers beyond the bound of its value."""

COMPACTION_LAG_MS = 600_000
"""Compacted topics keep every record this long, so that a late writer cannot bury a newer state."""

_HOUR_MS = 3_600_000
_DECORATION = re.compile(r"^\S+/\w+: | \(after \d+ms in state \w+\)")
"""What librdkafka puts around the reason of a failure."""
_PARTITIONS = "partitions"
_LASTING = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_LOOK_AFTER_S = 0.5
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the catalogue and a broker. ``before`` is None where the topic was missing.

    ``applied`` is False for a partition count: changing it would move keys, and with them jobs in flight.
    """

    topic: str
    setting: str
    before: str | None
    after: str
    applied: bool = True

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.topic}: created with {_partitions(self.after)}"
        if not self.applied:
            return (
                f"{self.topic}: has {_partitions(self.before)}, the catalogue says {self.after}: left as it is, "
                "because records would change their partition"
            )
        return f"{self.topic}: {self.setting} {self.before} -> {self.after}"


def _partitions(count: str) -> str:
    return f"{count} partition" if count == "1" else f"{count} {_PARTITIONS}"


def apply(
    bus: Bus,
    topics: Iterable[Topic],
    *,
    replication_factor: int | None = None,
    dry_run: bool = False,
    within_s: float = 30.0,
) -> list[Change]:
    """Create the missing topics and adapt the settings of the others; what differed, nothing the second time.

    ``replication_factor`` counts for topics to be created; None is the broker's default. With ``dry_run`` nothing
    is changed. Raises ``BusError`` where the broker refuses or does not answer.
    """
    admin = admin_client(bus, within_s)
    catalogue = {topic.name: topic for topic in topics}
    counts = _partition_counts(admin, within_s)
    missing = [topic for name, topic in catalogue.items() if name not in counts]
    there = [topic for name, topic in catalogue.items() if name in counts]
    differing = _differences(admin, there, within_s)
    if not dry_run:
        _create(admin, missing, replication_factor, within_s)
        _alter(admin, differing, within_s)
    return [
        *(Change(topic.name, _PARTITIONS, None, str(topic.partitions)) for topic in missing),
        *(
            Change(topic.name, _PARTITIONS, str(counts[topic.name]), str(topic.partitions), applied=False)
            for topic in there
            if counts[topic.name] != topic.partitions
        ),
        *differing,
    ]


def check(bus: Bus, *needed: Iterable[Topic], read_together: Collection[Topic] = (), within_s: float = 10.0) -> None:
    """Make sure that topics can be worked with, those included that one worker reads together.

    Raises ``BusError`` where the broker does not answer, a topic is missing, or topics that are read together
    differ in their number of partitions.
    """
    counts = _partition_counts(admin_client(bus, within_s), within_s)
    missing = sorted({topic.name for topic in chain(read_together, *needed)} - counts.keys())
    if missing:
        raise BusError(f"missing on {bus.bootstrap_servers}: {', '.join(missing)}: run `offbeat topics apply`")
    found = {topic.name: counts[topic.name] for topic in read_together}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in sorted(found.items()))
        raise BusError(f"topics that are read together must have the same number of partitions: {listed}")


def session_bounds_s(bus: Bus, *, within_s: float = 10.0) -> tuple[float, float]:
    """Least and greatest session time-out that the brokers accept of a consumer.

    Raises ``BusError`` where no broker answers.
    """
    admin = admin_client(bus, within_s)
    broker = str(next(iter(_metadata(admin, within_s).brokers)))
    settings = _described(admin, ResourceType.BROKER, [broker], within_s)[broker]
    low, high = (int(settings[f"group.{end}.session.timeout.ms"]) for end in ("min", "max"))
    return low / 1000, high / 1000


def settings_of(topic: Topic) -> dict[str, str]:
    """Kafka's topic settings for a topic of the catalogue."""
    own = {
        "message.timestamp.type": "LogAppendTime",  # a message's time is the broker's
        "max.message.bytes": str(topic.max_bytes + HEADERS_BYTES),
    }
    if topic.compacted:
        # Every worker reads these whole before it starts: what was overwritten goes soon, the open segment included.
        return {
            **own,
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
            "segment.ms": str(COMPACTION_LAG_MS),
            "min.cleanable.dirty.ratio": "0.1",
        }
    return {**own, "cleanup.policy": "delete", "retention.ms": str(int(topic.retention_hours * _HOUR_MS))}


def admin_client(bus: Bus, within_s: float) -> AdminClient:
    """A client that has met a broker; raises ``BusError`` that says which were asked, and why none answers.

    What waiting does not mend, a wrong password or certificate, is told at once.
    """
    troubles: list[KafkaError] = []
    properties: dict[str, Any] = {
        **bus.librdkafka(),
        "log_level": 0,  # what it would log at every attempt, the error below says once
        "error_cb": troubles.append,
    }
    admin = AdminClient(properties, logger=LIBRDKAFKA)
    deadline = time.monotonic() + within_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            admin.list_topics(timeout=max(min(left_s, _LOOK_AFTER_S), 0.01))
            return admin
        except KafkaException as error:
            admin.poll(0)
            refused = [trouble for trouble in troubles if trouble.code() in _LASTING]
            if not refused and left_s > _LOOK_AFTER_S:
                continue
            told = [*refused, *troubles, error.args[0]][0].str()
            trouble = _DECORATION.sub("", told)
            raise BusError(f"no broker answers at {bus.bootstrap_servers}: {trouble}; {bus.remedy(trouble)}") from error


def _create(admin: AdminClient, topics: list[Topic], replication_factor: int | None, within_s: float) -> None:
    if not topics:
        return
    replicas = -1 if replication_factor is None else replication_factor
    new = [
        NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=replicas, config=settings_of(topic))
        for topic in topics
    ]
    _answers(admin.create_topics(new, operation_timeout=within_s, request_timeout=within_s), within_s)
    deadline = time.monotonic() + within_s
    while unseen := {topic.name for topic in topics} - _partition_counts(admin, within_s).keys():
        if time.monotonic() > deadline:
            raise BusError(f"created, but not to be seen after {within_s:g} s: {', '.join(sorted(unseen))}")
        time.sleep(0.05)


def _differences(admin: AdminClient, topics: list[Topic], within_s: float) -> list[Change]:
    """Where the settings of topics differ from the catalogue's."""
    if not topics:
        return []
    found = _described(admin, ResourceType.TOPIC, [topic.name for topic in topics], within_s)
    return [
        Change(topic.name, setting, found[topic.name][setting], after)
        for topic in topics
        for setting, after in settings_of(topic).items()
        if found[topic.name][setting] != after
    ]


def _alter(admin: AdminClient, changes: list[Change], within_s: float) -> None:
    altered = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=[_set(change) for change in of_topic])
        for name, of_topic in groupby(changes, key=lambda change: change.topic)
    ]
    if altered:
        _answers(admin.incremental_alter_configs(altered, request_timeout=within_s), within_s)


def _set(change: Change) -> ConfigEntry:
    return ConfigEntry(change.setting, change.after, incremental_operation=AlterConfigOpType.SET)


def _partition_counts(admin: AdminClient, within_s: float) -> dict[str, int]:
    found = _metadata(admin, within_s).topics.items()
    return {name: len(topic.partitions) for name, topic in found if topic.error is None}


def _metadata(admin: AdminClient, within_s: float) -> ClusterMetadata:
    try:
        return admin.list_topics(timeout=within_s)
    except KafkaException as error:
        raise BusError(f"the brokers stopped answering: {error}") from error


def _described(admin: AdminClient, kind: ResourceType, names: list[str], within_s: float) -> dict[str, dict[str, str]]:
    asked = admin.describe_configs([ConfigResource(kind, name) for name in names], request_timeout=within_s)
    return {
        resource.name: {setting: str(entry.value) for setting, entry in entries.items()}
        for resource, entries in _answers(asked, within_s).items()
    }


def _answers(asked: Mapping[_Asked, Future[_Answer]], within_s: float) -> dict[_Asked, _Answer]:
    """What the brokers answered to each question; raises ``BusError`` for the first that they refused."""
    answered = {}
    for what, future in asked.items():
        try:
            answered[what] = future.result(within_s + 5)
        except (KafkaException, TimeoutError) as error:
            raise BusError(f"{what}: {error}") from error
    return answered
