"""Where a rank is in the course of its job: the marks that it has passed, by iteration (Pulse 7.2.1)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import mean, median_low
from typing import Any, NamedTuple

import numpy as np

from diagnosis.collective.marks import LOST, Mark
from diagnosis.collective.participation import UNKNOWN

_LEAST, _RECENT = 4, 10
"""Marks that are seen before it is known how far apart they usually are, and the last ones, which tell it."""

_NEARLY = 1.6
"""By so many iterations another rank may be told of less far, for what it shows to count."""


class Passed(NamedTuple):
    """A mark that a rank has passed: its sequence number, call and end (or ``UNKNOWN``)."""

    seq: int
    call_ns: int
    end_ns: int


@dataclass
class Progress:
    """One rank: its mark, and where it has ``passed`` it, by iteration, in order; never empty."""

    mark: Mark
    passed: dict[int, Passed]

    @property
    def earliest(self) -> int:
        """The first iteration whose mark is remembered."""
        return next(iter(self.passed))

    @property
    def newest(self) -> int:
        """The last iteration whose mark it has passed."""
        return next(reversed(self.passed))

    @property
    def calls(self) -> dict[int, int]:
        """When it called each mark that it has passed, by iteration."""
        return {number: at.call_ns for number, at in self.passed.items()}

    def at(self, iteration: int) -> Passed | None:
        """Where it passed an iteration's mark."""
        return self.passed.get(iteration)

    def after(self, iteration: int) -> Passed | None:
        """Where it passed the first mark after an iteration's that was seen."""
        return next((at for number, at in self.passed.items() if number > iteration), None)

    def advance(self, at: Passed, all_ranks: Iterable[Progress]) -> None:
        """Note that it has passed a mark; one that comes late is known.

        Iterations that telemetry has lost of it count: sequence numbers tell them or, of custom collectives, which have
        none, what others show meanwhile.
        """
        before = self.passed[self.newest]
        if at.call_ns <= before.call_ns:
            return
        if self.mark.every:
            ahead = round((at.seq - before.seq) / self.mark.every)
        else:
            ahead = self._meanwhile(before.call_ns, at.call_ns, all_ranks)
        self.passed[self.newest + max(ahead, 1)] = at

    def forget(self, before: int) -> None:
        """Forget what is before an iteration, but for the newest mark."""
        self.passed = {n: at for n, at in self.passed.items() if n >= before or n == self.newest}

    def to_state(self) -> list[Any]:
        """What a restart needs, in a form that JSON can carry."""
        return [asdict(self.mark), list(self.passed.items())]

    @classmethod
    def from_state(cls, mark: dict[str, Any], passed: Iterable[tuple[int, Iterable[int]]]) -> Progress:
        """The progress that ``to_state`` described."""
        return cls(Mark(**mark), {iteration: Passed(*at) for iteration, at in passed})

    def _meanwhile(self, since_ns: int, until_ns: int, all_ranks: Iterable[Progress]) -> int:
        """How many iterations other ranks have passed between two marks of this one that are further apart than usual;
        1 where they are not, or nobody shows it."""
        calls = [at.call_ns for at in islice(reversed(self.passed.values()), _RECENT)]
        usual = -float(np.median(np.diff(calls))) if len(calls) >= _LEAST else np.inf
        if until_ns - since_ns < LOST * usual:
            return 1
        counts = []
        for other in all_ranks:
            first, last = other._nearest(since_ns), other._nearest(until_ns)
            ahead = other.passed[first].call_ns - since_ns  # its clock, and it
            short = (until_ns + ahead - other.passed[last].call_ns) / usual  # it may be told of a little less far
            if last > first and abs(ahead) < usual / 2 and abs(short) < _NEARLY:
                counts.append(last - first + round(short))
        return max(median_low(counts), 1) if counts else 1

    def _nearest(self, call_ns: int) -> int:
        """The iteration whose mark it passed next to a time."""
        numbers = list(self.passed)
        at = bisect_left(numbers, call_ns, key=lambda number: self.passed[number].call_ns)
        near = numbers[max(at - 1, 0) : at + 1]
        return min(near, key=lambda number: abs(self.passed[number].call_ns - call_ns))


def lasted_ns(ranks: Iterable[Progress], iteration: int) -> int | None:
    """From the mark before to an iteration's own: what ranks take on average, since those who are ahead in one
    iteration may be behind in the next. None where nobody shows both."""
    each = []
    for rank in ranks:
        before, own = rank.at(iteration - 1), rank.at(iteration)
        if before is not None and own is not None:
            by_end = UNKNOWN != before.end_ns < own.end_ns  # after lost calls ends may be those of others
            each.append(own.end_ns - before.end_ns if by_end else own.call_ns - before.call_ns)
    return round(mean(each)) if each else None
