"""Messages that wait on disk until the bus has them: in order, over restarts, within a bound of bytes.

Everything goes through it, whether the bus is away or not: the way back is then the way that is always gone. Beyond
the bound the oldest go, because what is news helps more than what is over; what is being sent goes with them, since who
sends it holds it, and counts as dropped only where it does not arrive. What was sent when the process ended is sent
again; what of it had to go counts as dropped. How much was dropped is kept beside the messages.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from producers.message_frames import frame_of, message_of
from producers.segments import Frame, Segments, private
from producers.whole_files import replacing
from schemas.message import Message, TopicKey

log = logging.getLogger(__name__)

_DELIVERED = "delivered"
_DROPPED = "dropped"
_LAST = (1 << 63) - 1
"""No frame has a higher number."""


class Spool:
    """A queue of messages in a folder; any thread may use it.

    What is found there that is no message (another version may have written it) is told and dropped; where it cannot
    be read how far the bus has them, all are sent again, and where not how many were dropped, they count from 0.
    Raises ``OSError`` where the folder cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._segments = Segments(folder, sys.maxsize)
        self._mark = folder / _DELIVERED
        self._tally = folder / _DROPPED
        self._lock = threading.Lock()
        delivered = _delivered(self._mark)
        self._segments.discard(delivered + 1)
        last = self._segments.frames[-1].number if self._segments.frames else delivered
        self._next = last + 1
        self._places = deque(self._found(folder))
        self._sending = -1
        self._gone: dict[int, TopicKey] = {}
        self._dropped, self._untold = _tallied(self._tally)
        self._news = self._untold.copy()
        self._let_go(self._segments.bound(max_bytes))

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._segments.frames)

    @property
    def total_bytes(self) -> int:
        """What is on disk."""
        return self._segments.total_bytes

    @property
    def dropped(self) -> Mapping[str, int]:
        """Messages that were dropped since the folder was made, by topic."""
        with self._lock:
            return self._dropped.copy()

    @property
    def untold(self) -> Counter[TopicKey]:
        """Dropped messages for which the bus has no gap in the numbers yet, by topic and key."""
        with self._lock:
            return self._untold.copy()

    def append(self, message: Message) -> None:
        """Take a message; the oldest may have to go for it. Raises ``OSError`` where the disk takes it not."""
        with self._lock:
            gone = self._segments.append(self._next, frame_of(message))
            self._places.append(_place(message))
            self._next += 1
            self._let_go(gone)

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

    def delivered(self, number: int, told: Counter[TopicKey] | None = None) -> None:
        """The bus has all messages up to a number, and gaps in their numbers for those dropped ones that are ``told``.

        Raises ``OSError`` where the disk takes it not.
        """
        with self._lock:
            arrived = [gone for gone in self._gone if gone <= number]
            for gone in arrived:
                del self._gone[gone]
            self._untold -= told or Counter()
            self._sending = -1
            self._count_gone()
            if arrived or told:
                self._note_dropped()
            _write(self._mark, str(number))
            before = len(self._segments.frames)
            self._segments.discard(number + 1)
            for _ in range(before - len(self._segments.frames)):
                self._places.popleft()

    def newly_dropped(self) -> Counter[TopicKey]:
        """What was dropped since this was last asked, by topic and key; at first what is untold since before."""
        with self._lock:
            news, self._news = self._news, Counter()
            return news

    def _let_go(self, gone: Sequence[Frame]) -> None:
        self._gone.update((frame.number, self._places.popleft()) for frame in gone)
        self._count_gone()
        if gone:
            self._note_dropped()

    def _count_gone(self) -> None:
        """Of what had to go all is dropped but what is being sent."""
        lost = [self._gone.pop(number) for number in list(self._gone) if number > self._sending]
        self._dropped.update(_topics(lost))
        self._untold.update(lost)
        self._news.update(lost)

    def _note_dropped(self) -> None:
        """Write down what was dropped, and what will have been if the process ends before it arrives."""
        doubtful = self._gone.values()
        tally = {
            "dropped": self._dropped + Counter(_topics(doubtful)),
            "untold": [[*place, count] for place, count in (self._untold + Counter(doubtful)).items()],
        }
        _write(self._tally, json.dumps(tally))

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


def _topics(places: Iterable[TopicKey]) -> Iterator[str]:
    return (topic for topic, _ in places)


def _write(path: Path, text: str) -> None:
    """Put a file in the place of the one before, at once."""
    with replacing(path, private) as file:
        file.write(text.encode())


def _tallied(tally: Path) -> tuple[Counter[str], Counter[TopicKey]]:
    """What was dropped, by topic, and what of it is untold; nothing where that is not known."""
    try:
        return _counts(json.loads(tally.read_bytes()))
    except FileNotFoundError:
        return Counter(), Counter()
    except (ValueError, KeyError, TypeError, RecursionError):
        log.warning("%s is damaged: what was dropped before is not known", tally)
        return Counter(), Counter()


def _counts(found: Any) -> tuple[Counter[str], Counter[TopicKey]]:
    dropped = Counter(dict(found["dropped"]))
    untold = Counter({(topic, key): count for topic, key, count in found["untold"]})
    texts = [*dropped, *(text for place in untold for text in place)]
    counts = [*dropped.values(), *untold.values()]
    if all(type(text) is str for text in texts) and all(type(n) is int and 0 < n < _LAST for n in counts):
        return dropped, untold
    raise ValueError("no counts by topic and key")


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
