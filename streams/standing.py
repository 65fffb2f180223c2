"""How consumer groups stand, seen from outside: who is in them, what waits for them, and for how long."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from schemas.errors import BusError
from streams.brokers import EARLIEST, LATEST, NEWEST, Brokers
from streams.bus import LIBRDKAFKA, Bus
from streams.share import Place
from streams.topics import admin_client


@dataclass(frozen=True, slots=True)
class Standing:
    """``members`` of a group, messages that it has not committed, and when the oldest of them was appended.

    ``oldest_ns`` (ns since the epoch) is None where nothing waits, and where it could not be read in time.
    ``has_run``: it has committed something.
    """

    members: int
    behind: int
    oldest_ns: int | None = None
    has_run: bool = False


def standings(bus: Bus, groups: Mapping[str, Collection[str]], *, within_s: float = 10.0) -> dict[str, Standing]:
    """The standing of groups (their topics by name); a group that never was has everything before it.

    Raises ``BusError`` where the brokers do not answer, or a topic is missing.
    """
    if not groups:
        return {}
    brokers = Brokers(bus, within_s=within_s)
    places = _places(bus, {topic for of_group in groups.values() for topic in of_group}, within_s)
    starts, ends = (
        {place: found.offset for place, found in brokers.offsets(places, spec).items()} for spec in (EARLIEST, LATEST)
    )
    found = {}
    for group, of_group in groups.items():
        committed = brokers.ask(f"group {group}", partial(_committed, group, within_s))
        nexts = {place: max(committed.get(place, 0), starts[place]) for place in places if place[0] in of_group}
        waiting = {place: offset for place, offset in nexts.items() if offset < ends[place]}
        behind = sum(ends[place] - offset for place, offset in waiting.items())
        oldest = _oldest_ns(bus, waiting, within_s) if waiting else None
        members = brokers.ask(f"group {group}", partial(_members, group, within_s))
        found[group] = Standing(members, behind, oldest, has_run=any(offset > 0 for offset in committed.values()))
    return found


def newest_ns(bus: Bus, topics: Iterable[str], *, within_s: float = 10.0) -> int | None:
    """When the brokers appended the newest record of topics, by their clock (ns since the epoch); None: never.

    Raises ``BusError`` where the brokers do not answer.
    """
    found = Brokers(bus, within_s=within_s).offsets(_places(bus, topics, within_s), NEWEST)
    newest = max((answer.timestamp for answer in found.values()), default=-1)
    return newest * 1_000_000 if newest >= 0 else None


def _places(bus: Bus, topics: Iterable[str], within_s: float) -> list[Place]:
    try:
        known = admin_client(bus, within_s).list_topics(timeout=within_s).topics
    except KafkaException as error:
        raise BusError(f"the brokers stopped answering: {error}") from error
    wanted = sorted(topics)
    if missing := [topic for topic in wanted if topic not in known]:
        raise BusError(f"missing: {', '.join(missing)}: run `offbeat topics apply`")
    return [(topic, partition) for topic in wanted for partition in known[topic].partitions]


def _members(group: str, within_s: float, admin: AdminClient) -> int:
    [asked] = admin.describe_consumer_groups([group], request_timeout=within_s).values()
    try:
        return len(asked.result().members)
    except KafkaException as error:
        if _never_was(error):
            return 0
        raise


def _committed(group: str, within_s: float, admin: AdminClient) -> dict[Place, int]:
    [asked] = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=within_s
    ).values()
    try:
        places = asked.result().topic_partitions or []
    except KafkaException as error:
        if _never_was(error):
            return {}
        raise
    return {(place.topic, place.partition): place.offset for place in places}


def _never_was(error: KafkaException) -> bool:
    return bool(error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)


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
