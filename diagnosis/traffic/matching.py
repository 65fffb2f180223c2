"""Which bursts between two ranks are which operators: Algorithm 1's walk (Pulse 5.2)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.traffic.series import Coverage
from diagnosis.traffic.volume import LARGE_BYTES

NEVER = -(1 << 62)
EXACT = 1.002
"""Volumes that differ by less are the same."""

_REMEMBERED = 32
"""Operators that what is usual is told from."""


class Match(NamedTuple):
    """A transfer was seen in bursts ``low`` to ``high``, of these from ``from_ns`` on and before ``to_ns``.

    ``reached``: so was its volume. ``resumed_ns``: when telemetry came back that was away meanwhile.
    """

    transfer: int
    low: int
    high: int
    from_ns: int | None = None
    to_ns: int | None = None
    reached: bool = True
    resumed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What may differ without meaning anything.

    ``error``: clocks, ns. ``slack``: bytes that the aggregation may withhold. ``pause``: up to as long, in ns, is no
    silence. ``opening``: share of its volume that a burst has to have to begin an operator. ``tail``: silence, in ns,
    after which what a pair sends before the next call is not the operator's before. ``loose`` and ``resent``: share of
    an operator's volume, and bytes, by which it may exceed what is usual, at most a quarter; what is more belongs to
    the next one. ``snap``: share within which the longest silence is taken for an operator's end.
    """

    error: int
    slack: int
    pause: int
    delta: int
    opening: float
    tail: int
    loose: float
    resent: int
    snap: float

    def excess(self, size: int) -> float:
        """Bytes by which an operator may exceed what is usual."""
        return min(size * self.loose + self.resent, size / 4) + self.slack


@dataclass(slots=True)
class Walk:
    """One walk over the bursts and the transfers between two ranks, both in order of time.

    ``launch`` and ``expected`` of each transfer, ``start``, ``last`` (beginning of the last epoch) and ``size`` of each
    burst, in nanoseconds of one clock and bytes. ``epochs(low, high)``: when something was sent in bursts ``low`` to
    ``high``, and bytes up to then. By how much what is sent exceeds what is expected, as long as nothing better is
    known: ``large_inflation`` for large operators, ``inflation`` for others.
    """

    launch: Sequence[int]
    expected: Sequence[int]
    start: Sequence[int]
    last: Sequence[int]
    size: Sequence[int]
    epochs: Callable[[int, int], tuple[Ints, Ints]]
    coverage: Coverage
    allowed: Tolerances
    inflation: float
    large_inflation: float
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
            elif self.last[self.burst] < self.launch[self.transfer] - self.allowed.error:
                self._before_its_call()
            elif self.size[self.burst] < self._least(self.transfer):
                self.burst += 1
            else:
                resumed = max(resumed, self._operators())
        while self.burst < len(self.start):
            self._before_its_call()
        return self.matches

    def _operators(self) -> int:
        """Take bursts until the volume of one or more operators is reached and no other has begun in them.

        Returns when telemetry came back, if it was away before that.
        """
        low, total, from_ns = self.burst, 0, None
        while True:
            first = self.transfer
            total += self.size[self.burst]
            self.burst += 1
            if total >= self._enough(first, carried=from_ns is not None):
                if from_ns is None:
                    self.lags.append(self.start[low] - self.launch[first])
                usual = self.expected[first] * self._ratio(first)
                if total <= usual * EXACT + self.allowed.slack or not self._launched(first + 1):
                    self._learn(first, total, from_ns)
                    self._match(Match(first, low, self.burst, from_ns))
                    return NEVER
                total, from_ns = self._carve(low, from_ns)
                if from_ns is None:
                    return NEVER
                low = self.burst - 1
                first = self.transfer
            if self.burst == len(self.start):
                self._match(Match(first, low, self.burst, from_ns, reached=False))
                return NEVER
            resumed = self.coverage.resumed(self.start[low], self.start[self.burst])
            if resumed is not None:
                self.burst += self._goes_on(first, resumed)
                self._match(Match(first, low, self.burst, from_ns, reached=False, resumed_ns=resumed))
                return resumed

    def _carve(self, low: int, from_ns: int | None) -> tuple[int, int | None]:
        """Cut operators apart that have no silence of ``delta`` between them, from burst ``low`` to where the walk is.

        Returns bytes and beginning of one more that has begun and goes on in the next burst; None if none has.
        """
        times, sent = self.epochs(low, self.burst)
        at = 0 if from_ns is None else int(np.searchsorted(times, from_ns))
        before = float(sent[at - 1]) if at else 0.0
        while True:
            transfer, size = self.transfer, self.expected[self.transfer]
            left, usual = float(sent[-1]) - before, size * self._ratio(transfer)
            if left < usual - self.allowed.excess(size):
                return round(left), int(times[at])
            if not self._launched(transfer + 1):
                break
            earliest = int(np.searchsorted(times, self.launch[transfer + 1] - self.allowed.error))
            cut, silent = self._quietest(times, sent, before + usual, size)
            if max(cut, earliest) >= len(times):
                break
            # little that is left over may have been sent again, unless silence comes before it
            alone = left <= usual + self.allowed.excess(size)
            if alone and not (silent and sent[-1] - sent[cut - 1] >= self._least(transfer + 1)):
                break
            at = max(cut, earliest, at)
            # an epoch may hold the end of one and the beginning of the next: only silence tells how much of it
            before = float(sent[at - 1]) if silent or earliest > cut else before + usual
            self._match(Match(transfer, low, self.burst, from_ns, int(times[at])))
            from_ns = int(times[at])
        self._match(Match(transfer, low, self.burst, from_ns))
        return 0, None

    def _quietest(self, times: Ints, sent: Ints, target: float, size: int) -> tuple[int, bool]:
        """The row that the next operator begins with, after the longest silence near where the volume is reached, and
        whether there is any."""
        width = size * self.allowed.snap + self.allowed.slack
        low, exact, high = np.searchsorted(sent, (target - width, target, target + width)).tolist()
        high = min(high, len(times) - 2)
        silence = times[low + 1 : high + 2] - times[low : high + 1]
        if len(silence) and int(silence.max()) > self.allowed.pause:
            near = np.flatnonzero(silence == silence.max()) + low
            return int(near[np.argmin(np.abs(near - exact))]) + 1, True
        if exact == len(sent):
            return len(sent), False
        begins = float(sent[exact - 1]) if exact else 0.0
        return int(exact) + (target - begins >= 0.5 * (float(sent[exact]) - begins)), False

    def _enough(self, transfer: int, carried: bool) -> float:
        """The volume at which an operator may end: what is expected is a lower bound, but of one that was cut off the
        one before the cut may be a little off."""
        size = self.expected[transfer]
        least = size - self.allowed.slack
        return min(least, size * self._ratio(transfer) - self.allowed.excess(size)) if carried else least

    def _learn(self, transfer: int, total: int, from_ns: int | None) -> None:
        """Remember by how much operators of a size exceed what is expected, from those that stand alone."""
        if from_ns is None and not self._launched(transfer + 1):
            known = self.ratios.setdefault(self.expected[transfer].bit_length(), deque(maxlen=_REMEMBERED))
            known.append(total / self.expected[transfer])

    def _launched(self, transfer: int) -> bool:
        """Whether a transfer was called before the end of the burst that was taken last."""
        return transfer < len(self.launch) and self.launch[transfer] - self.allowed.error <= self.last[self.burst - 1]

    def _ratio(self, transfer: int) -> float:
        """By how much it usually exceeds what is expected, by operators of its size or, of large ones, which have the
        same protocol, of the nearest to it."""
        size, large = self.expected[transfer].bit_length(), LARGE_BYTES.bit_length()
        near = [of for of in self.ratios if of == size or min(of, size) >= large]
        if near:
            return median(self.ratios[min(near, key=lambda of: abs(of - size))])
        return self.large_inflation if size >= large else self.inflation

    def _least(self, transfer: int) -> float:
        """What a burst has to have to begin a transfer."""
        size, slack = self.expected[transfer], self.allowed.slack
        return min(max(size * self.allowed.opening, 2 * slack), size - slack)

    def _before_its_call(self) -> None:
        """A burst before the next call ends the operator before, if it is near and no message; else it is nobody's."""
        if self.matches:
            before = self.matches[-1]
            near = self.start[self.burst] - self.last[before.high - 1] < self.allowed.tail
            least = max(self.expected[before.transfer] * self.allowed.opening, self.allowed.slack)
            if near and before.high == self.burst and self.size[self.burst] >= least:
                self.matches[-1] = before._replace(high=self.burst + 1)
        self.burst += 1

    def _after_a_loss(self, resumed: int) -> int:
        """Find the operator that a burst belongs to when some may have run unseen. Returns what ``resumed`` is then."""
        lag = round(median(self.lags)) if self.lags else 0
        until = bisect_left(self.launch, resumed, lo=self.transfer)  # from here on none was called unseen
        if self.start[self.burst] - resumed < self.allowed.delta:  # one that was running
            running = bisect_right(self.launch, resumed - lag, lo=self.transfer, hi=until) - 1
            first = max(running, self.transfer)
            self._match(Match(first, self.burst, self.burst + 1, reached=False, resumed_ns=resumed))
            self.burst += 1
            return resumed
        called = bisect_right(self.launch, self.last[self.burst] + self.allowed.error, lo=self.transfer)
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
        return self.start[self.burst] - resumed < self.allowed.delta and (
            transfer + 1 == len(self.launch) or self.launch[transfer + 1] >= resumed
        )

    def _match(self, match: Match) -> None:
        self.matches.append(match)
        self.transfer = match.transfer + 1
