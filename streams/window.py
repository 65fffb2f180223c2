"""What a topic still holds of a window of the past, handed on as it is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping

from schemas.message import Message
from schemas.topic import Topic
from streams.bus import Bus
from streams.follower import Follower

_AHEAD = 1024
"""Messages of a partition that wait for those of others: then it is read on."""


class Held:
    """The records that a topic took from ``since_ns`` on and before ``until_ns`` (the brokers' time), of some jobs.

    No jobs: of all. To be iterated once: the records come by time, and few of them are held. Nothing is read that
    came after the window. ``gone_before_ns`` is known at the end: what there was earlier is no longer kept. What is
    older than the topic keeps at ``now_ns`` is taken to be gone where a partition has nothing of the window.
    Raises ``BusError`` where the topic is missing, or nothing comes of what it holds for ``within_s``.
    """

    def __init__(
        self,
        bus: Bus,
        topic: Topic,
        since_ns: int,
        until_ns: int,
        jobs: Collection[str] = (),
        *,
        now_ns: int,
        within_s: float = 60.0,
    ) -> None:
        self.gone_before_ns: int | None = None
        self._bus, self._topic = bus, topic
        self._since_ns, self._until_ns, self._jobs = since_ns, until_ns, jobs
        self._expired = since_ns < now_ns - int(topic.retention_hours * 3600e9)
        self._within_s = within_s

    def __iter__(self) -> Iterator[Message]:
        begins: dict[int, int] = {}
        name, since_ns, within_s = self._topic.name, self._since_ns, self._within_s
        with Follower(self._bus, name, since_ns=since_ns, within_s=within_s) as follower:
            latest, ends = follower.ends(), follower.ends(self._until_ns)
            for message in _by_time(follower, ends):
                begins.setdefault(message.partition, message.timestamp_ns)
                if since_ns <= message.timestamp_ns < self._until_ns and self._wanted(message):
                    yield message
            cut = follower.cut
        gone = [begins[partition] for partition in cut if partition in begins]
        gone += [self._until_ns for p in cut if p not in begins and (self._expired or ends[p] < latest[p])]
        self.gone_before_ns = max(gone, default=None)

    def _wanted(self, message: Message) -> bool:
        return not self._jobs or message.job in self._jobs


def _by_time(follower: Follower, ends: Mapping[int, int]) -> Iterator[Message]:
    """The messages before the partitions' ends, each partition's in its order, those of several by time."""
    waiting: dict[int, deque[Message]] = {partition: deque() for partition in ends}
    held_up: set[int] = set()
    for message in follower.up_to(ends):
        behind = follower.behind(ends)
        if message is not None:
            own = waiting[message.partition]
            if message.offset < ends[message.partition]:
                own.append(message)
            if message.partition not in held_up and (len(own) >= _AHEAD or message.partition not in behind):
                held_up.add(message.partition)
                follower.wait(message.partition)
        while all(waiting[partition] for partition in behind) and (earliest := _earliest(waiting)) is not None:
            yield waiting[earliest].popleft()
            if earliest in held_up & behind and len(waiting[earliest]) < _AHEAD // 2:
                held_up.remove(earliest)
                follower.follow_on(earliest)
    while (earliest := _earliest(waiting)) is not None:
        yield waiting[earliest].popleft()


def _earliest(waiting: Mapping[int, deque[Message]]) -> int | None:
    """The partition whose next message is the oldest; None where nothing waits."""
    heads = ((own[0].timestamp_ns, partition) for partition, own in waiting.items() if own)
    return min(heads, default=(0, None))[1]
