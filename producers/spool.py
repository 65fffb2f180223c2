"""Messages that wait on disk until the bus has them: in order, over restarts, within a bound of bytes.

Everything goes through it, whether the bus is away or not: the way back is then the way that is always gone. Beyond
the bound the oldest go, because what is news helps more than what is over; what is being sent goes with them, since who
sends it holds it, and counts as dropped only where it does not arrive. What was sent when the process ended is sent
again.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from producers.message_frames import frame_of, message_of
from producers.segments import Frame, Segments, private
from schemas.message import Message, TopicKey

log = logging.getLogger(__name__)

_DELIVERED = "delivered"
_LAST = (1 << 63) - 1
"""No frame has a higher number."""


class Spool:
    """A queue of messages in a folder; any thread may use it.

    What is found there that is no message (another version may have written it) is told and dropped; where it cannot
    be read how far the bus has them, all are sent again.
    Raises ``OSError`` where the folder cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._segments = Segments(folder, max_bytes)
        self._mark = folder / _DELIVERED
        self._lock = threading.Lock()
        delivered = _delivered(self._mark)
        self._segments.discard(delivered + 1)
        last = self._segments.frames[-1].number if self._segments.frames else delivered
        self._next = last + 1
        self._places = deque(self._found(folder))
        self._sending = -1
        self._gone: dict[int, TopicKey] = {}
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
            gone = self._segments.append(self._next, frame_of(message))
            self._places.append(_place(message))
            self._next += 1
            self._gone.update((frame.number, self._places.popleft()) for frame in gone)
            self._count_gone()

    def waiting(self, most: int) -> tuple[list[Message], int]:
        """The oldest messages, and the number of the last of them, which ``delivered`` takes.

        They are being sent until ``delivered`` or ``undelivered`` is called.
        """
        self.undelivered()
        with self._lock:
            count = min(most, len(self._segments.frames))
            self._sending = self._segments.frames[count - 1].number if count else -1
            return [self._read(position) for position in range(count)], self._sending

    def undelivered(self) -> None:
        """The bus did not take what was being sent: what had to go meanwhile is lost, the rest waits on."""
        with self._lock:
            self._sending = -1
            self._count_gone()

    def delivered(self, number: int) -> None:
        """The bus has all messages up to a number."""
        with self._lock:
            self._gone = {gone: place for gone, place in self._gone.items() if gone > number}
            self._sending = -1
            self._count_gone()
            before = len(self._segments.frames)
            marked = self._mark.with_suffix(".new")
            with open(marked, "w", encoding="ascii", opener=private) as file:
                file.write(str(number))
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

    def _count_gone(self) -> None:
        """Of what had to go all is dropped but what is being sent."""
        for number in [number for number in self._gone if number > self._sending]:
            self._dropped[self._gone.pop(number)] += 1

    def _found(self, folder: Path) -> Iterator[TopicKey]:
        """Topic and key of each message that waits; frames that hold none are left out."""
        strange: list[Frame] = []
        for frame in self._segments.frames:
            try:
                yield _place(message_of(self._segments.read(frame)))
            except ValueError as error:
                log.warning("%s: what waits under number %d is dropped: %s", folder, frame.number, error)
                strange.append(frame)
        self._segments.leave_out({frame.number for frame in strange})

    def _read(self, position: int) -> Message:
        return message_of(self._segments.read(self._segments.frames[position]))


def _place(message: Message) -> TopicKey:
    return message.topic, message.key


def _delivered(mark: Path) -> int:
    """The number up to which the bus has the messages; -1 where that is not known."""
    try:
        number = int(mark.read_bytes())
    except FileNotFoundError:
        return -1
    except ValueError:
        log.warning("%s is damaged: all that waits is sent, some of it maybe again", mark)
        return -1
    return number if -1 <= number < _LAST else -1
