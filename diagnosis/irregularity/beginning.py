"""A job's first iterations, in which nothing is usual yet: who is slow in them time after time.

What is slow from the first iteration on passes for usual with whoever compares iterations. Here like ranks are
compared, in the first iterations and for as long as somebody is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import median_low
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.irregularity.like_ranks import LikeRanksSettings, Slow, Told, slower_than_alike
from diagnosis.job import Job


@dataclass(frozen=True, slots=True)
class Standing:
    """For how long somebody has been slow: since ``first``, ``count`` iterations, lastly ``last``, at a cost of
    ``excess_ns`` in all; in ``missed`` iterations since then not. An iteration of which not all of ``ranks`` told says
    neither.
    """

    ranks: tuple[int, ...]
    first: int
    last: int
    count: int = 0
    missed: int = 0
    excess_ns: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
    """What comparing like ranks in one iteration came to: who is slow and for how long, and who is no longer.

    ``duration_ns`` is the iteration's; ``coverage`` the share of the job's ranks that told.
    """

    iteration: int
    duration_ns: int
    coverage: float
    slow: tuple[tuple[Slow, Standing], ...]
    over: tuple[Standing, ...]


@dataclass
class Beginning:
    """One job's. ``pending`` are iterations of which not all ranks have told, up to ``closed`` all are compared;
    ``seen`` have been. ``spoke``: somebody was slow.
    """

    settings: LikeRanksSettings = field(default_factory=LikeRanksSettings)
    pending: dict[int, Told] = field(default_factory=dict)
    standing: dict[str, Standing] = field(default_factory=dict)
    closed: int = -1
    seen: int = 0
    spoke: bool = False

    @property
    def past(self) -> bool:
        """Whether nothing more is to be compared."""
        first = self.settings.warm_up + self.settings.iterations
        return not self.settings.iterations or (self.seen >= first and not self.standing)

    @property
    def told(self) -> list[Standing]:
        """Whoever has been said to be slow, and still is."""
        return [of for of in self.standing.values() if of.count >= self.settings.in_a_row]

    def take(self, summaries: pa.RecordBatch, job: Job) -> Iterator[Compared]:
        """Take in rows of telemetry.iteration_summaries: what comes of iterations of which all ranks, or ranks two
        iterations ahead, have told by now.
        """
        if len(job.ranks) > self.settings.most_ranks:
            return
        of = summaries.column("iteration")
        for iteration in pc.unique(of).to_pylist():
            if iteration > self.closed:
                self.pending.setdefault(iteration, Told()).take(summaries.filter(pc.equal(of, iteration)), job)
        newest = max(self.pending, default=-1)
        for iteration in sorted(self.pending):
            if self.past or (len(self.pending[iteration].span) < len(job.ranks) and newest < iteration + 2):
                break
            told, self.closed = self.pending.pop(iteration), iteration
            self.seen += 1
            if self.seen > self.settings.warm_up and told.span:
                yield self._compared(iteration, told, job)
        if self.past:
            self.pending.clear()

    def _compared(self, iteration: int, told: Told, job: Job) -> Compared:
        found = {_who(slow): slow for slow in slower_than_alike(told, job, self.settings)}
        over = []
        for who in self.standing.keys() - found.keys():
            if not told.span.keys() >= set(self.standing[who].ranks):
                continue
            standing = replace(self.standing[who], missed=self.standing[who].missed + 1)
            if standing.count >= self.settings.in_a_row and standing.missed < self.settings.in_a_row:
                self.standing[who] = standing
                continue
            del self.standing[who]
            if standing.count >= self.settings.in_a_row:
                over.append(standing)
        for who, slow in found.items():
            ranks = slow.ranks if slow.communicator is None else job.members[slow.communicator]
            before = self.standing.get(who, Standing(ranks, iteration, iteration))
            excess_ns = before.excess_ns + slow.excess_ns
            self.standing[who] = Standing(ranks, before.first, iteration, before.count + 1, 0, excess_ns)
        known = [(slow, self.standing[who]) for who, slow in found.items()]
        lasting = tuple((slow, of) for slow, of in known if of.count >= self.settings.in_a_row)
        self.spoke |= bool(lasting)
        return Compared(
            iteration=iteration,
            duration_ns=median_low(told.span.values()),
            coverage=len(told.span) / len(job.ranks),
            slow=lasting,
            over=tuple(sorted(over, key=lambda of: of.first)),
        )

    def to_state(self) -> dict[str, Any]:
        """What a restart needs, in a form that JSON can carry."""
        return {
            "pending": [[iteration, told.to_state()] for iteration, told in self.pending.items()],
            "standing": {who: asdict(standing) for who, standing in self.standing.items()},
            "closed": self.closed,
            "seen": self.seen,
            "spoke": self.spoke,
        }

    @classmethod
    def from_state(cls, settings: LikeRanksSettings, state: Mapping[str, Any]) -> Beginning:
        """What ``to_state`` described."""
        return cls(
            settings,
            {iteration: Told.from_state(told) for iteration, told in state["pending"]},
            {who: Standing(**{**of, "ranks": tuple(of["ranks"])}) for who, of in state["standing"].items()},
            state["closed"],
            state["seen"],
            state["spoke"],
        )


def _who(slow: Slow) -> str:
    """Which of the members of a slow channel it is may be told in one iteration, and not in the next."""
    return f"{slow.cause} {slow.communicator or list(slow.ranks)}"
