"""How consumer groups stand, seen from outside: who is in them, what waits for them, and for how long."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from schemas.errors import BusError
from streams.bus import Bus
from streams.follower import EARLIEST, LATEST, LIBRDKAFKA
from streams.share import Place
from streams.topics import admin_client, answers

_NEWEST: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Standing:
    """``members`` of a group, messages that it has not committed, and when the oldest of them was appended.

    ``oldest_ns`` (ns since the epoch) is None where nothing waits, and where it could not be read in time.
    """

    members: int
    behind: int
    oldest_ns: int | None = None


def standings(bus: Bus, groups: Mapping[str, Collection[str]], *, within_s: float = 10.0) -> dict[str, Standing]:
    """The standing of groups (their topics by name); a group that never was has everything before it.

    Raises ``BusError`` where the brokers do not answer, or a topic is missing.
    """
    if not groups:
        return {}
    admin = admin_client(bus, within_s)
    topics = sorted({topic for of_group in groups.values() for topic in of_group})
    places = _places(admin, topics, within_s)
    starts, ends = (_offsets(admin, places, spec, within_s) for spec in (EARLIEST, LATEST))
    members = _members(admin, groups, within_s)
    found = {}
    for group, of_group in groups.items():
        committed = _committed(admin, group, within_s)
        nexts = {place: max(committed.get(place, 0), starts[place]) for place in places if place[0] in of_group}
        waiting = {place: offset for place, offset in nexts.items() if offset < ends[place]}
        behind = sum(ends[place] - offset for place, offset in waiting.items())
        oldest = _oldest_ns(bus, waiting, within_s) if waiting else None
        found[group] = Standing(members.get(group, 0), behind, oldest)
    return found


def newest_ns(bus: Bus, topics: Iterable[str], *, within_s: float = 10.0) -> int | None:
    """When the brokers appended the newest record of topics, by their clock (ns since the epoch); None: never.

    Raises ``BusError`` where the brokers do not answer.
    """
    admin = admin_client(bus, within_s)
    asked = {TopicPartition(*place): _NEWEST for place in _places(admin, topics, within_s)}
    if not asked:
        return None
    newest = max((found.timestamp for found in answers(admin.list_offsets(asked), within_s).values()), default=-1)
    return newest * 1_000_000 if newest >= 0 else None


def _places(admin: AdminClient, topics: Iterable[str], within_s: float) -> list[Place]:
    try:
        known = admin.list_topics(timeout=within_s).topics
    except KafkaException as error:
        raise BusError(f"the brokers stopped answering: {error}") from error
    wanted = sorted(topics)
    if missing := [topic for topic in wanted if topic not in known]:
        raise BusError(f"missing: {', '.join(missing)}: run `offbeat topics apply`")
    return [(topic, partition) for topic in wanted for partition in known[topic].partitions]


def _offsets(admin: AdminClient, places: Iterable[Place], spec: OffsetSpec, within_s: float) -> dict[Place, int]:
    asked = {TopicPartition(*place): spec for place in places}
    found = answers(admin.list_offsets(asked), within_s)
    return {(place.topic, place.partition): answer.offset for place, answer in found.items()}


def _members(admin: AdminClient, groups: Iterable[str], within_s: float) -> dict[str, int]:
    found = {}
    for group, asked in admin.describe_consumer_groups(list(groups)).items():
        try:
            found[group] = len(asked.result(within_s).members)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise BusError(f"group {group}: {error}") from error
    return found


def _committed(admin: AdminClient, group: str, within_s: float) -> dict[Place, int]:
    [asked] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    try:
        places = asked.result(within_s).topic_partitions or []
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise BusError(f"group {group}: {error}") from error
    return {(place.topic, place.partition): place.offset for place in places}


def _oldest_ns(bus: Bus, waiting: Mapping[Place, int], within_s: float) -> int | None:
    """When the first waiting message of all was appended; read outside the group."""
    consumer = Consumer(
        {
            **bus.librdkafka(),
            "group.id": "offbeat.standing",  # the client wants one; it is never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 1024,
        },
        logger=LIBRDKAFKA,
    )
    found: dict[Place, int] = {}
    deadline = time.monotonic() + within_s
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in waiting.items()])
        while len(found) < len(waiting) and time.monotonic() < deadline:
            record = consumer.poll(0.1)
            if record is None or record.error() is not None:
                continue
            place = record.topic() or "", record.partition() or 0
            found.setdefault(place, record.timestamp()[1] * 1_000_000)
            consumer.pause([TopicPartition(*place)])
    finally:
        consumer.close()
    return min(found.values(), default=None)
