"""Which bursts between two ranks are which operators: Algorithm 1's walk (Pulse 5.2)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

NEVER = -(1 << 62)
_REMEMBERED = 32
"""Operators that what is usual is told from."""


class Match(NamedTuple):
    """Operators ``first`` to ``end`` were seen in bursts ``low`` to ``high``.

    ``reached``: so was their volume. ``resumed_ns``: when telemetry came back that was away meanwhile.
    """

    first: int
    end: int
    low: int
    high: int
    reached: bool = True
    resumed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """What telemetry tells everything of: covered intervals ``start`` to ``end``, ascending and disjoint."""

    start: Sequence[int]
    end: Sequence[int]

    def resumed(self, from_ns: int, to_ns: int) -> int | None:
        """When telemetry came back for the last time in between; None if it was never away."""
        at = bisect_right(self.start, to_ns) - 1
        if at < 0 or to_ns > self.end[at]:
            return to_ns
        return self.start[at] if self.start[at] > from_ns else None


@dataclass(slots=True)
class Walk:
    """One walk over the bursts and the transfers between two ranks, both in order of time.

    ``launch`` and ``expected`` of each transfer, ``start``, ``last`` (beginning of the last epoch) and ``size`` of each
    burst, in nanoseconds of one clock up to ``error``, and bytes. ``slack``: bytes that the aggregation may withhold.
    ``inflation``: by how much what is sent exceeds what is expected, as long as nothing better is known.
    """

    launch: Sequence[int]
    expected: Sequence[int]
    start: Sequence[int]
    last: Sequence[int]
    size: Sequence[int]
    coverage: Coverage
    slack: int
    error: int
    delta: int
    opening: float
    tail: int
    inflation: float
    matches: list[Match] = field(default_factory=list)
    transfer: int = 0
    burst: int = 0
    lags: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    ratios: dict[int, deque[float]] = field(default_factory=dict)

    def run(self) -> list[Match]:
        """Match what can be matched."""
        seen, resumed = NEVER, NEVER
        while self.burst < len(self.start) and self.transfer < len(self.launch):
            resumed = max(resumed, self.coverage.resumed(seen, self.start[self.burst]) or NEVER)
            seen = max(seen, self.last[self.burst])
            if self.launch[self.transfer] < resumed:
                resumed = self._after_a_loss(resumed)
            elif self.last[self.burst] < self.launch[self.transfer] - self.error:
                self._before_its_call()
            elif self.size[self.burst] < self._least(self.transfer):
                self.burst += 1
            else:
                resumed = max(resumed, self._operator())
        while self.burst < len(self.start):
            self._before_its_call()
        return self.matches

    def _operator(self) -> int:
        """Take bursts until the volume is reached. Returns when telemetry came back, if it was away before that."""
        first, low, total = self.transfer, self.burst, 0
        while True:
            total += self.size[self.burst]
            self.burst += 1
            if total >= self.expected[first] - self.slack:
                break
            if self.burst == len(self.start):
                self._match(Match(first, first + 1, low, self.burst, reached=False))
                return NEVER
            resumed = self.coverage.resumed(self.start[low], self.start[self.burst])
            if resumed is not None:
                self.burst += self._goes_on(first, resumed)
                self._match(Match(first, first + 1, low, self.burst, reached=False, resumed_ns=resumed))
                return resumed
        count = self._held(first, total)
        self.lags.append(self.start[low] - self.launch[first])
        if count == 1 and not self._launched(first + 1):
            known = self.ratios.setdefault(self.expected[first].bit_length(), deque(maxlen=_REMEMBERED))
            known.append(total / self.expected[first])
        self._match(Match(first, first + count, low, self.burst))
        return NEVER

    def _held(self, first: int, total: int) -> int:
        """How many operators the volume holds: what comes nearest to it, of those that are its lower bound."""
        least, likely, best, count = 0.0, 0.0, float("inf"), 1
        for number, size in enumerate(self.expected[first:], start=1):
            least, likely = least + size - self.slack, likely + size * self._ratio(size)
            if number > 1 and (least > total or not self._launched(first + number - 1)):
                break
            if abs(total - likely) < best:
                best, count = abs(total - likely), number
        return count

    def _launched(self, transfer: int) -> bool:
        """Whether a transfer was called before the end of the burst that was taken last."""
        return transfer < len(self.launch) and self.launch[transfer] - self.error <= self.last[self.burst - 1]

    def _ratio(self, size: int) -> float:
        known = self.ratios.get(size.bit_length())
        return median(known) if known else self.inflation

    def _least(self, transfer: int) -> float:
        """What a burst has to have to begin a transfer."""
        size = self.expected[transfer]
        return min(max(size * self.opening, 2 * self.slack), size - self.slack)

    def _before_its_call(self) -> None:
        """A burst before the next call ends the operator before, if it is near and no message; else it is nobody's."""
        if self.matches:
            before = self.matches[-1]
            near = self.start[self.burst] - self.last[before.high - 1] < self.tail
            size = self.expected[before.end - 1]
            if near and before.high == self.burst and self.size[self.burst] >= max(size * self.opening, self.slack):
                self.matches[-1] = before._replace(high=self.burst + 1)
        self.burst += 1

    def _after_a_loss(self, resumed: int) -> int:
        """Find the operator that a burst belongs to when some may have run unseen. Returns what ``resumed`` is then."""
        lag = round(median(self.lags)) if self.lags else 0
        until = bisect_left(self.launch, resumed, lo=self.transfer)  # from here on none was called unseen
        if self.start[self.burst] - resumed < self.delta:  # one that was running
            running = bisect_right(self.launch, resumed - lag, lo=self.transfer, hi=until) - 1
            first = max(running, self.transfer)
            self._match(Match(first, first + 1, self.burst, self.burst + 1, reached=False, resumed_ns=resumed))
            self.burst += 1
            return resumed
        called = bisect_right(self.launch, self.last[self.burst] + self.error, lo=self.transfer)
        last = min(until, called - 1, len(self.launch) - 1)
        if last < self.transfer:
            self.burst += 1
            return resumed
        self.transfer = min(
            range(self.transfer, last + 1), key=lambda i: (abs(self.start[self.burst] - self.launch[i] - lag), i)
        )
        return NEVER

    def _goes_on(self, transfer: int, resumed: int) -> bool:
        """Whether a transfer that telemetry left goes on in the next burst."""
        return self.start[self.burst] - resumed < self.delta and (
            transfer + 1 == len(self.launch) or self.launch[transfer + 1] >= resumed
        )

    def _match(self, match: Match) -> None:
        self.matches.append(match)
        self.transfer = match.end
