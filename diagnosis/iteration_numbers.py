"""Common numbers for the iterations of all ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.anchor_clocks import Ahead, far_ahead
from diagnosis.arrays import Ints
from diagnosis.cycle import Cycle

_TRIED = 4
"""Ranks on either side that are compared by their clocks, for one whose clock tells for certain."""

_SURE = 0.1
"""As doubtful as that it may be."""


@dataclass(frozen=True)
class Meetings:
    """Who uses which communicator: members by communicator.

    On ``shared`` ones an operator has the same sequence number on all members. On ``paired`` ones (pipelines) only
    the number of operators an iteration is comparable.
    """

    shared: Mapping[int, Sequence[int]]
    paired: Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Boundaries:
    """Where iterations begin, for all ranks alike: iteration i + 1 of communicator d begins at ``starts[..][i]``.

    The first boundary begins iteration 0. ``shared`` is by communicator, ``own`` by rank and communicator.
    """

    shared: Mapping[int, Ints]
    own: Mapping[tuple[int, int], Ints]

    def iterations(self, rank: int, communicator: int, seq: Ints) -> Ints | None:
        """Iteration of each sequence number, -1 before the first; None where nothing is known."""
        starts = self.shared.get(communicator)
        if starts is None:
            starts = self.own.get((rank, communicator))
        return None if starts is None else np.searchsorted(starts, seq, side="right") - 1


def number(cycles: Mapping[int, Cycle], meetings: Meetings) -> Boundaries:
    """Give the cycles of all ranks common numbers, and each communicator the boundaries that most members saw."""
    shifts = _shifts(cycles, meetings)
    first = min(cycle.real_from + shifts[rank] for rank, cycle in cycles.items()) - 1
    last = max(cycle.last + shifts[rank] for rank, cycle in cycles.items())
    own = {
        (rank, d): _starts(cycle, d, np.arange(first, last + 1) - shifts[rank])
        for rank, cycle in cycles.items()
        for d in cycle.starts
    }
    shared = {}
    for d, members in meetings.shared.items():
        seen = [own[rank, d] for rank in members if (rank, d) in own]
        if seen:
            ordered = np.sort(np.stack(seen), axis=0)
            shared[d] = np.maximum.accumulate(ordered[(len(seen) - 1) // 2])
    return Boundaries(shared, own)


def _starts(cycle: Cycle, communicator: int, numbers: Ints) -> Ints:
    """Where the iterations after ``numbers`` begin; beyond the cycle's own they are reckoned with its usual count."""
    starts, usual = cycle.starts[communicator], cycle.usual[communicator]
    index = numbers - cycle.first
    inside = np.clip(index, 0, len(starts) - 1)
    return starts[inside] + usual * (index - inside)


def _shifts(cycles: Mapping[int, Cycle], meetings: Meetings) -> dict[int, int]:
    """What to add to each rank's own numbers.

    Ranks are reached from one another over shared communicators; ranks that none reaches, over pipelines; and
    what is left by the time of their anchors.
    """
    links = {rank: [d for d in cycle.starts if d in meetings.shared] for rank, cycle in cycles.items()}
    shifts: dict[int, int] = {}
    while len(shifts) < len(cycles):
        rank, shift = next(_bridges(cycles, meetings, shifts))
        shifts[rank] = shift
        queue = deque([rank])
        while queue:
            here = queue.popleft()
            for d in links[here]:
                for there in meetings.shared[d]:
                    if there in cycles and there not in shifts and cycles[here].usual[d] > 0:
                        shifts[there] = shifts[here] + _by_sequence(cycles[here], cycles[there], d)
                        queue.append(there)
    return shifts


def _bridges(cycles: Mapping[int, Cycle], meetings: Meetings, shifts: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """A rank without a number of its own, and how it follows from those that have one."""
    if not shifts:
        yield next(iter(cycles)), 0
    for d, members in meetings.paired.items():
        known = [rank for rank in members if rank in shifts]
        unknown = [rank for rank in members if rank in cycles and rank not in shifts]
        for here, there in zip(known[:1], unknown[:1], strict=False):
            if cycles[here].usual[d] > 0 and cycles[there].usual[d] > 0:
                yield there, shifts[here] + round(_age(cycles[there], d) - _age(cycles[here], d))
    here, there, ahead_ns = _nearest(cycles, shifts)
    yield there, shifts[here] + _by_time(cycles[here], cycles[there], ahead_ns)


def _nearest(cycles: Mapping[int, Cycle], shifts: Mapping[int, int]) -> tuple[int, int, int]:
    """A rank that has a number, one that has none, and how far its clock is ahead: of some the least doubtful."""
    known = list(shifts)[:: -(-len(shifts) // _TRIED)]
    unknown = [rank for rank in cycles if rank not in shifts][:_TRIED]
    found = (known[0], unknown[0], Ahead(0, np.inf))
    for there in unknown:
        for here in known:
            ahead = far_ahead(cycles[here].anchor_ns, cycles[there].anchor_ns)
            if ahead.doubt < found[2].doubt:
                found = (here, there, ahead)
            if ahead.doubt < _SURE:
                return here, there, ahead.ns
    return found[0], found[1], found[2].ns


def _by_sequence(here: Cycle, there: Cycle, communicator: int) -> int:
    """What turns the numbers of one rank into those of another that shares a communicator."""
    own, other = here.starts[communicator], there.starts[communicator]
    usual = here.usual[communicator]
    nearest = np.clip(np.searchsorted(own, other + usual // 2, side="right") - 1, 0, len(own) - 1)
    numbers = here.first + nearest + np.rint((other - own[nearest]) / usual).astype(np.int64)
    return _most_frequent(numbers - there.first - np.arange(len(other)))


def _age(cycle: Cycle, communicator: int) -> float:
    """Iterations since the communicator's first operator, less the rank's own numbers."""
    starts = cycle.starts[communicator]
    return float(np.median(starts / cycle.usual[communicator] - np.arange(cycle.first, cycle.last + 1)))


def _by_time(here: Cycle, there: Cycle, ahead_ns: int) -> int:
    """The same by the clock: the anchors of an iteration lie close together."""
    there_ns = there.anchor_ns - ahead_ns
    after = np.clip(np.searchsorted(here.anchor_ns, there_ns), 1, len(here.anchor_ns) - 1)
    closer = there_ns - here.anchor_ns[after - 1] < here.anchor_ns[after] - there_ns
    return _most_frequent(here.anchor_number[after - closer] - there.anchor_number)


def _most_frequent(values: Ints) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()])
