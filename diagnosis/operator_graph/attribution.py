"""Delay attribution: the operator-graph search with amounts instead of a yes or no (a step beyond Holmes 4.3.2).

Algorithm 1 asks of each operator whether it is abnormal. Over thousands of operators a few always are, by
chance, and the walk follows them. Here the walk follows time: an iteration lost E; on the rank at hand E is
the sum of what it computed, waited and transferred beyond the usual (``delays``). Computing or transferring a
material share of E is a cause; waiting is somebody else's delay, and the walk goes to the rank that entered last,
back before the moment at which it entered. The amount must also exceed three standard deviations of the
same sum over the baseline, Holmes' simplest detector applied to sums.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from diagnosis.operator_graph.delays import Delays, Floats, measure
from diagnosis.operator_graph.logs import Answer, Logs, Need
from diagnosis.operators import UNKNOWN, Bools, Ints, Operators

Fetch = Generator[Need, Answer, None]


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """``material_share`` of the iteration's excess makes a delay worth following; ``sigmas`` makes it no chance.

    ``most_ranks`` bounds a walk; ``explained_share`` of a delay must be found in the iteration itself, else
    the walk looks into the iteration before.
    """

    material_share: float = 0.25
    sigmas: float = 3.0
    explained_share: float = 0.5
    most_ranks: int = 64


@dataclass(frozen=True, slots=True)
class OperatorRef:
    """One operator, as a person finds it in the log."""

    rank: int
    communicator: str
    position: int
    op: str
    phase: str | None = None
    microbatch: int | None = None
    call_ns: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank waited for another in an operator of a communicator, ``ns`` longer than usual."""

    waiting_rank: int
    awaited_rank: int
    communicator: str
    op: str
    ns: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a walk ended: ``rank`` lost ``excess_ns`` itself, computing or (``communicator``) transferring."""

    rank: int
    communicator: str | None
    excess_ns: int
    operator: OperatorRef
    path: tuple[int, ...]


@dataclass
class Walk:
    """What a walk found: the leaves, who waited for whom, and the ranks it stood on."""

    leaves: list[Leaf] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    visited: list[int] = field(default_factory=list)
    unknown_ns: int = 0


def walk(
    logs: Logs,
    iteration: int,
    baseline: Sequence[int],
    pivots: Sequence[int],
    excess_ns: int,
    settings: AttributionSettings,
) -> Generator[Need, Answer, Walk]:
    """Follow an iteration's excess from the pivots to where it arose; yields the logs that it needs."""
    found = Walk()
    least = settings.material_share * excess_ns
    frontier: list[tuple[int, int, int | None, tuple[int, ...]]] = [(-excess_ns, p, None, ()) for p in pivots]
    heapq.heapify(frontier)
    while frontier and len(found.visited) < settings.most_ranks:
        amount, rank, until_ns, path = heapq.heappop(frontier)
        if rank in found.visited:
            continue
        found.visited.append(rank)
        yield from _fetch_rank(logs, rank)
        if rank in logs.missing:
            found.unknown_ns = max(found.unknown_ns, -amount)
            continue
        step = _Step(rank, until_ns, (*path, rank), logs, iteration, baseline, settings)
        delays = step.measure()
        rows = step.rows(delays, -amount)
        for communicator in step.material_communicators(delays, rows, least):
            yield from _fetch(logs, logs.needs(logs.job.members.get(communicator, ()), communicator))
        delays = step.measure()
        rows = step.rows(delays, -amount)
        found.leaves.extend(step.leaves(delays, rows, least))
        for wait, until in step.waits(delays, rows, least):
            found.waits.append(wait)
            heapq.heappush(frontier, (-wait.ns, wait.awaited_rank, until, step.path))
    return found


def _fetch(logs: Logs, needs: Sequence[Need]) -> Fetch:
    for need in needs:
        logs.add(need, (yield need))


def _fetch_rank(logs: Logs, rank: int) -> Fetch:
    """A rank's rows; where they carry no ends, its neighbours' too, since only those tell when an operator ended."""
    yield from _fetch(logs, logs.needs([rank]))
    own = logs.operators.of_rank(rank)
    if len(own) and own.ended.mean() < 0.5:
        neighbours = {m for name in logs.job.communicators_of.get(rank, ()) for m in logs.job.members[name]}
        yield from _fetch(logs, logs.needs(neighbours))


@dataclass(frozen=True, slots=True)
class _Step:
    """One rank on the walk."""

    rank: int
    until_ns: int | None
    path: tuple[int, ...]
    logs: Logs
    iteration: int
    baseline: Sequence[int]
    settings: AttributionSettings

    def measure(self) -> Delays:
        return measure(self.logs, self.logs.clocks(self.path[0]), self.baseline)

    def rows(self, delays: Delays, amount: int) -> Ints:
        """The rank's operators that its delay can stem from: of this iteration, or the one before where too few."""
        rows = delays.rows(self.rank, [self.iteration], self.until_ns)
        explained = np.nansum(delays.compute[rows]) + np.nansum(delays.exposed[rows])
        if self.until_ns is not None and explained < self.settings.explained_share * amount:
            rows = delays.rows(self.rank, [self.iteration - 1, self.iteration], self.until_ns)
        return rows

    def material_communicators(self, delays: Delays, rows: Ints, least: float) -> list[str]:
        """Communicators whose members must be seen to tell waiting from transferring.

        All point-to-point ones count together: which of a send and a receive that ran at once took the time
        is known only when both peers are.
        """
        operators = delays.operators
        groups = np.where(operators.point_to_point, UNKNOWN, operators.communicator)
        material = [
            group
            for group in np.unique(groups[rows])
            if self._material(delays, delays.exposed, rows[groups[rows] == group], least, groups == group)
        ]
        chosen = rows[np.isin(groups[rows], material)]
        return [operators.communicators[code] for code in np.unique(operators.communicator[chosen])]

    def leaves(self, delays: Delays, rows: Ints, least: float) -> Iterator[Leaf]:
        everything = np.ones(len(delays.operators), dtype=np.bool_)
        if self._material(delays, delays.compute, rows, least, everything):
            yield self._leaf(delays, delays.compute, rows, None)
        for code, name in enumerate(delays.operators.communicators):
            chosen = rows[delays.operators.communicator[rows] == code]
            if self._material(delays, delays.transfer, chosen, least, delays.operators.communicator == code):
                yield self._leaf(delays, delays.transfer, chosen, name)

    def waits(self, delays: Delays, rows: Ints, least: float) -> Iterator[tuple[Wait, int]]:
        """Material waits for one rank, with the time (its own clock) before which its delay arose."""
        operators = delays.operators
        others = rows[(delays.awaited[rows] != UNKNOWN) & (delays.awaited[rows] != self.rank)]
        for awaited in np.unique(delays.awaited[others]):
            chosen = others[delays.awaited[others] == awaited]
            chosen = chosen[~np.isnan(delays.wait[chosen])]
            amount = float(delays.wait[chosen].sum())
            if amount < least or not len(chosen):
                continue
            worst = int(chosen[np.argmax(delays.wait[chosen])])
            until = self._entered(delays, int(awaited), int(chosen[np.argmax(operators.call_ns[chosen])]))
            name = operators.communicators[operators.communicator[worst]]
            yield Wait(self.rank, int(awaited), name, operators.ops[operators.op[worst]], int(amount)), until

    def _entered(self, delays: Delays, awaited: int, row: int) -> int:
        """When the awaited rank called the operator that this rank's ``row`` is, on the awaited rank's clock."""
        operators = delays.operators
        low, high = np.searchsorted(operators.rank, [awaited, awaited + 1])
        there = np.arange(low, high)
        there = there[operators.iteration[there] == operators.iteration[row]]
        if operators.point_to_point[row]:
            same = (operators.peer[there] == self.rank) & (operators.p2p_seq[there] == operators.p2p_seq[row])
            same &= operators.op[there] != operators.op[row]
        else:
            same = (operators.communicator[there] == operators.communicator[row]) & (
                operators.seq[there] == operators.seq[row]
            )
        return int(operators.call_ns[there[same]].max())

    def _material(self, delays: Delays, values: Floats, rows: Ints, least: float, of: Bools) -> bool:
        amount = float(np.nansum(values[rows]))
        if amount < least:
            return False
        mask = of & (delays.operators.rank == self.rank)
        return amount > self.settings.sigmas * delays.spread(values, mask, self.baseline)

    def _leaf(self, delays: Delays, values: Floats, rows: Ints, communicator: str | None) -> Leaf:
        worst = int(rows[np.nanargmax(values[rows])])
        excess = int(np.nansum(values[rows]))
        return Leaf(self.rank, communicator, excess, reference(delays.operators, worst), self.path)


def reference(operators: Operators, row: int) -> OperatorRef:
    """What a person needs to find the operator of a row again."""
    phase, microbatch = int(operators.phase[row]), int(operators.microbatch[row])
    return OperatorRef(
        rank=int(operators.rank[row]),
        communicator=operators.communicators[operators.communicator[row]],
        position=int(operators.position[row]),
        op=operators.ops[operators.op[row]],
        phase=operators.phases[phase] if phase != UNKNOWN else None,
        microbatch=microbatch if microbatch != UNKNOWN else None,
        call_ns=int(operators.call_ns[row]),
    )
