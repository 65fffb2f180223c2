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

from diagnosis.irregularity.like_ranks import Comparison, LikeRanksSettings, Slow, compare
from diagnosis.irregularity.summaries import Summaries
from diagnosis.job import Job

_AHEAD = 3
"""Iterations that an iteration waits for ranks which have not told of it, while others go on telling of later ones."""

_MOST_PENDING = 8
"""Iterations that wait; of more, those of which fewest ranks have told are dropped, of like ones the earliest."""

_PATIENCE = 4
"""Times as many iterations as are to be compared may pass until that many could be."""


@dataclass(frozen=True, slots=True)
class Standing:
    """For how long somebody has been slow: since ``first``, ``count`` iterations, lastly ``last``, while all that are
    slow cost ``excess_ns``; in ``missed`` iterations since then not. It is told from ``needed`` iterations on.

    The cause and the ranks are those told last; a channel's ``communicator`` may change, and so may the members named.
    """

    cause: str
    ranks: tuple[int, ...]
    communicator: str | None
    first: int
    last: int
    needed: int
    count: int = 0
    missed: int = 0
    excess_ns: int = 0

    @property
    def told(self) -> bool:
        """Whether it has lasted long enough to be told."""
        return self.count >= self.needed

    def is_of(self, slow: Slow) -> bool:
        """Whether it is about the same: what computes or what transfers, on ranks some of which are the same, since how
        closely the culprit can be told may change, and which of its channels is worst.
        """
        alike = (self.communicator is None) == (slow.communicator is None)
        return alike and not set(self.ranks).isdisjoint(slow.ranks)

    def can_be_shown_by(self, comparison: Comparison) -> bool:
        """Whether a comparison could show it: of others nobody knows whether it is over."""
        if self.communicator is not None:
            return self.communicator in comparison.communicators
        return comparison.ranks >= set(self.ranks)


@dataclass(frozen=True, slots=True)
class Compared:
    """What comparing like ranks in one iteration came to: who is slow and for how long, and who is no longer.

    ``duration_ns`` is the iteration's, ``cost_ns`` what all that are slow in it cost, ``coverage`` the share of the
    job's ranks that told.
    """

    iteration: int
    duration_ns: int
    cost_ns: int
    coverage: float
    slow: tuple[tuple[Slow, Standing], ...]
    over: tuple[Standing, ...]


@dataclass
class Beginning:
    """One job's. ``pending`` are iterations of which not all ranks have told, up to ``closed`` all are done with:
    ``passed`` of them, of which ``compared`` could be. ``spoke``: somebody was slow.
    """

    settings: LikeRanksSettings = field(default_factory=LikeRanksSettings)
    pending: dict[int, Summaries] = field(default_factory=dict)
    standing: list[Standing] = field(default_factory=list)
    closed: int = -1
    passed: int = 0
    compared: int = 0
    spoke: bool = False

    @property
    def past(self) -> bool:
        """Whether nothing more is to be compared."""
        wanted = self.settings.iterations
        enough = self.compared >= wanted or self.passed >= self.settings.warm_up + _PATIENCE * wanted
        return not wanted or (enough and not self.standing)

    def take(self, batch: pa.RecordBatch, job: Job) -> Iterator[Compared]:
        """Take in rows of telemetry.iteration_summaries: what comes of iterations of which all ranks have told by now,
        or most of later ones.
        """
        if len(job.ranks) > self.settings.most_ranks:
            return
        of = batch.column("iteration")
        for iteration in pc.unique(of).to_pylist():
            if iteration > self.closed:
                self.pending.setdefault(iteration, Summaries()).take(batch.filter(pc.equal(of, iteration)), job)
        for iteration in sorted(self.pending):
            if self.past or not self._complete(iteration, job):
                break
            summaries, self.closed = self.pending.pop(iteration), iteration
            self.passed += 1
            if self.passed > self.settings.warm_up:
                comparison = compare(summaries, job, self.settings)
                if comparison is not None:
                    self.compared += 1
                    yield self._compared(iteration, summaries, comparison, job)
        self._drop()
        if self.past:
            self.pending.clear()

    def _drop(self) -> None:
        """Forget what is beyond the bound: one rank with numbers of its own does not keep the others' from being
        compared, nor do hosts that tell of many iterations one after the other, or one that began before the others.
        """
        while len(self.pending) > _MOST_PENDING:
            del self.pending[min(self.pending, key=lambda iteration: (self.pending[iteration].heard, iteration))]

    def _complete(self, iteration: int, job: Job) -> bool:
        """Whether all ranks have told of an iteration, or enough of them of one so far ahead that no more will."""
        if self.pending[iteration].heard == len(job.ranks):
            return True
        ahead = (told.heard for later, told in self.pending.items() if later >= iteration + _AHEAD)
        return max(ahead, default=0) >= max(self.settings.least_told * len(job.ranks), 1)

    def _compared(self, iteration: int, summaries: Summaries, comparison: Comparison, job: Job) -> Compared:
        cost_ns = sum(slow.excess_ns for slow in comparison.slow)
        before, found = list(self.standing), list[tuple[Slow, Standing]]()
        for slow in comparison.slow:
            known = next((standing for standing in before if standing.is_of(slow)), None)
            if known is not None:
                before.remove(known)
            found.append((slow, self._lasting(known, slow, iteration, cost_ns)))
        left = [replace(of, missed=of.missed + 1) if of.can_be_shown_by(comparison) else of for of in before]
        kept = [of for of in left if of.missed == 0 or (of.told and of.missed < self.settings.in_a_row)]
        self.standing = [*kept, *(standing for _, standing in found)]
        lasting = tuple((slow, standing) for slow, standing in found if standing.told)
        self.spoke |= bool(lasting)
        return Compared(
            iteration=iteration,
            duration_ns=median_low(rank.span_ns for rank in summaries.ranks.values()),
            cost_ns=cost_ns,
            coverage=len(summaries.ranks) / len(job.ranks),
            slow=lasting,
            over=tuple(of for of in left if of.told and of not in kept),
        )

    def _lasting(self, known: Standing | None, slow: Slow, iteration: int, cost_ns: int) -> Standing:
        """The standing of somebody who is slow in one more iteration."""
        needed = self.settings.in_a_row if slow.alike > 2 else max(self.settings.in_a_row, self.settings.iterations)
        if known is None:
            known = Standing(slow.cause, slow.ranks, slow.communicator, iteration, iteration, needed)
        return replace(
            known,
            cause=slow.cause,
            ranks=slow.ranks,
            communicator=slow.communicator,
            last=iteration,
            count=known.count + 1,
            missed=0,
            excess_ns=known.excess_ns + cost_ns,
        )

    def to_state(self) -> dict[str, Any]:
        """What a restart needs, in a form that JSON can carry."""
        return {
            "pending": [[iteration, told.to_state()] for iteration, told in self.pending.items()],
            "standing": [asdict(standing) for standing in self.standing],
            "closed": self.closed,
            "passed": self.passed,
            "compared": self.compared,
            "spoke": self.spoke,
        }

    @classmethod
    def from_state(cls, settings: LikeRanksSettings, state: Mapping[str, Any]) -> Beginning:
        """What ``to_state`` described."""
        return cls(
            settings,
            {iteration: Summaries.from_state(told) for iteration, told in state["pending"]},
            [Standing(**{**of, "ranks": tuple(of["ranks"])}) for of in state["standing"]],
            state["closed"],
            state["passed"],
            state["compared"],
            state["spoke"],
        )
