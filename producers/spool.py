"""Messages that wait on disk until the bus has them: in order, over restarts, within a bound of bytes.

Everything goes through it, whether the bus is away or not: the way back is then the way that is always gone. Beyond
the bound the oldest go, because what is news helps more than what is over. What was sent when the process ended is
sent again.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path

from producers.segments import Segments
from schemas.message import Message, TopicKey

_DELIVERED = "delivered"


class Spool:
    """A queue of messages in a folder; any thread may use it.

    Raises ``OSError`` where the folder cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._segments = Segments(folder, max_bytes)
        self._mark = folder / _DELIVERED
        self._lock = threading.Lock()
        delivered = int(self._mark.read_text()) if self._mark.exists() else -1
        self._segments.discard(delivered + 1)
        last = self._segments.frames[-1].number if self._segments.frames else delivered
        self._next = last + 1
        self._places = deque(_place(self._read(position)) for position in range(len(self._segments.frames)))
        self._dropped: Counter[TopicKey] = Counter()
        self._told: Counter[TopicKey] = Counter()

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._segments.frames)

    @property
    def total_bytes(self) -> int:
        """What is on disk."""
        return self._segments.total_bytes

    @property
    def dropped(self) -> Mapping[str, int]:
        """Messages that were dropped, by topic."""
        with self._lock:
            by_place = list(self._dropped.items())
        by_topic: Counter[str] = Counter()
        for (topic, _), dropped in by_place:
            by_topic[topic] += dropped
        return by_topic

    def append(self, message: Message) -> None:
        """Take a message; the oldest may have to go for it. Raises ``OSError`` where the disk takes it not."""
        with self._lock:
            gone = self._segments.append(self._next, _encoded(message))
            self._places.append(_place(message))
            self._next += 1
            self._dropped.update(self._places.popleft() for _ in gone)

    def waiting(self, most: int) -> tuple[list[Message], int]:
        """The oldest messages, and the number of the last of them, which ``delivered`` takes."""
        with self._lock:
            count = min(most, len(self._segments.frames))
            number = self._segments.frames[count - 1].number if count else -1
            return [self._read(position) for position in range(count)], number

    def delivered(self, number: int) -> None:
        """The bus has all messages up to a number."""
        with self._lock:
            before = len(self._segments.frames)
            marked = self._mark.with_suffix(".new")
            marked.write_text(str(number))
            marked.replace(self._mark)
            self._segments.discard(number + 1)
            for _ in range(before - len(self._segments.frames)):
                self._places.popleft()

    def newly_dropped(self) -> Counter[TopicKey]:
        """What was dropped since this was last asked, by topic and key."""
        with self._lock:
            news = self._dropped - self._told
            self._told = self._dropped.copy()
            return news

    def _read(self, position: int) -> Message:
        return _decoded(self._segments.read(self._segments.frames[position]))


def _place(message: Message) -> TopicKey:
    return message.topic, message.key


def _encoded(message: Message) -> bytes:
    about = {
        "topic": message.topic,
        "key": message.key,
        "headers": dict(message.headers),
        "timestamp_ns": message.timestamp_ns,
        "tombstone": message.value is None,
    }
    return json.dumps(about).encode() + b"\n" + (message.value or b"")


def _decoded(payload: bytes) -> Message:
    line, _, value = payload.partition(b"\n")
    about = json.loads(line)
    tombstone = about.pop("tombstone")
    return Message(value=None if tombstone else value, **about)
