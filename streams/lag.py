"""How far behind a worker is, in messages and in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streams.health import Position
from streams.share import Place, Reached


@dataclass(frozen=True, slots=True)
class Lag:
    """Of one input: messages that wait, how long any of them may have, and processed ones that are uncommitted."""

    messages: int
    seconds: float
    uncommitted: int


NO_LAG = Lag(0, 0.0, 0)


class Lags:
    """Bounds how long messages have been waiting, without reading them.

    What waits came after the last processed message, and after the last look at which nothing waited. Where neither
    is known, as when a worker starts with a backlog, it has been waiting at least since the first look.
    """

    def __init__(self) -> None:
        self._first_looks: dict[Place, float] = {}
        self._none_waited: dict[Place, float] = {}

    def looked(
        self, positions: Mapping[Place, Position], reached: Mapping[Place, Reached], now_s: float
    ) -> Mapping[str, Lag]:
        """The lag of each topic (seconds: of its partition that is furthest behind), at ``now_s`` since the epoch."""
        self._first_looks = {place: self._first_looks.get(place, now_s) for place in positions}
        none_wait = {place: now_s for place, at in positions.items() if at.following >= at.end}
        before = {place: at_s for place, at_s in self._none_waited.items() if place in positions}
        self._none_waited = {**before, **none_wait}
        seconds = {place: self._seconds(place, at, reached.get(place), now_s) for place, at in positions.items()}
        return {
            topic: Lag(
                sum(max(positions[place].end - positions[place].following, 0) for place in places),
                max(seconds[place] for place in places),
                sum(max(positions[place].following - positions[place].committed, 0) for place in places),
            )
            for topic, places in _by_topic(positions).items()
        }

    def _seconds(self, place: Place, at: Position, reached: Reached | None, now_s: float) -> float:
        if at.following >= at.end:
            return 0.0
        known = [self._none_waited[place]] if place in self._none_waited else []
        if reached is not None:
            known.append(reached.at_ns / 1e9)
        return max(now_s - max(known, default=self._first_looks[place]), 0.0)


def _by_topic(places: Iterable[Place]) -> Mapping[str, list[Place]]:
    topics: dict[str, list[Place]] = {}
    for place in places:
        topics.setdefault(place[0], []).append(place)
    return topics
