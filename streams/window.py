"""What a topic still holds of a window of the past."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from schemas.message import Message
from schemas.topic import Topic
from streams.bus import Bus
from streams.follower import Follower


@dataclass(frozen=True, slots=True)
class Held:
    """The records of a window, by time; ``gone_before_ns``: what there was earlier is no longer kept."""

    messages: tuple[Message, ...]
    gone_before_ns: int | None = None


def held(
    bus: Bus,
    topic: Topic,
    since_ns: int,
    until_ns: int,
    jobs: Collection[str] = (),
    *,
    now_ns: int,
    within_s: float = 600.0,
) -> Held:
    """The records that a topic took from ``since_ns`` on and before ``until_ns`` (the brokers' time), of some jobs.

    No jobs: of all. A partition's records come in their order. What is older than the topic keeps at ``now_ns`` is
    taken to be gone where a partition has nothing of the window. Raises ``BusError`` where the topic is missing or
    the brokers do not answer in time.
    """
    found: list[Message] = []
    begins: dict[int, int] = {}
    with Follower(bus, topic.name, since_ns=since_ns, within_s=within_s) as follower:
        for message in follower.catch_up():
            begins.setdefault(message.partition, message.timestamp_ns)
            if since_ns <= message.timestamp_ns < until_ns and (not jobs or message.job in jobs):
                found.append(message)
        cut = follower.cut
    found.sort(key=lambda message: (message.timestamp_ns, message.partition, message.offset))
    gone = [begins[partition] for partition in cut if partition in begins]
    if cut - set(begins) and since_ns < now_ns - int(topic.retention_hours * 3600e9):
        gone.append(until_ns)
    return Held(tuple(found), max(gone, default=None))
