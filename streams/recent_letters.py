"""How many messages were buried lately, and by whom: the newest records of dead_letters, no more than are needed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas import catalogue
from schemas.message import Message
from streams.bus import Bus
from streams.follower import Follower
from streams.redelivery import letters_of

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS

MOST_OF_A_PARTITION = 1000
"""Records that are read of each partition, the newest: more would tell nothing else of how it stands."""


@dataclass(slots=True)
class RecentLetters:
    """Dead letters by role and topic of the last hour and of the last day, by the brokers' time.

    ``whole`` is false where there are more of the day than were read.
    """

    of_hour: Counter[tuple[str, str]] = field(default_factory=Counter)
    of_day: Counter[tuple[str, str]] = field(default_factory=Counter)
    whole: bool = True

    def take(self, messages: Iterable[Message], now_ns: int) -> None:
        """Count the letters of records; what cannot be read is none."""
        for message in messages:
            for letter in letters_of([message], lambda _: None):
                place = letter.processor, letter.message.topic
                if message.timestamp_ns >= now_ns - HOUR_NS:
                    self.of_hour[place] += 1
                if message.timestamp_ns >= now_ns - DAY_NS:
                    self.of_day[place] += 1


def recent_letters(bus: Bus, now_ns: int, *, within_s: float = 10.0) -> RecentLetters:
    """What was buried in the day before ``now_ns`` (ns since the epoch), as much of it as can be read in time.

    Raises ``BusError`` where the topic is missing, or nothing of it comes.
    """
    found = RecentLetters()
    deadline = time.monotonic() + within_s
    topic, since_ns = catalogue.DEAD_LETTERS.name, now_ns - DAY_NS
    with Follower(bus, topic, since_ns=since_ns, newest=MOST_OF_A_PARTITION, within_s=within_s) as follower:
        found.whole = not follower.shortened
        for message in follower.up_to(follower.ends()):
            if message is not None:
                found.take([message], now_ns)
            if time.monotonic() > deadline:
                found.whole = False
                break
    return found
