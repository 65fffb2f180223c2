"""Which operators of a communicator a log without sequence numbers lacks, told by when others went on from theirs.

Where a rank logged fewer operators in an iteration than the others did, counting does not tell which ones are
missing. The members of a communicator leave each of its collectives together: of all ways to leave out as many as
are missing, the right one is that by which the rank left its operators when the others did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.robust import median_of_known

_WITNESSES = 8
"""Other members whose times are taken, at most."""

_TOLD = 0.9
"""Share of the operators whose times others must tell; those between them follow from these."""

_BEGINNING = 3
"""Iterations whose boundaries are counted back from later ones."""

_LOST_ITERATIONS = 0.5
"""Share of a rank's iterations that may lack operators; beyond it the communicator is not used regularly."""

_MOST_STEPS = 1 << 22
"""Operators times missing ones that are tried in one place."""


@dataclass(frozen=True)
class Member:
    """The collectives of one communicator in one rank's log: an entry an operator, in call order.

    ``iteration`` is as counting tells it, ``call_ns`` when the rank called it and ``left_ns`` when it went on, by its
    own clock.
    """

    iteration: Ints
    call_ns: Ints
    left_ns: Ints


@dataclass(frozen=True)
class Places:
    """Of each of a member's operators the iteration, the position in it, and whether these are known."""

    iteration: Ints
    position: Ints
    known: Bools


def place(members: Mapping[int, Member], usual: int) -> dict[int, Places]:
    """The places of all operators of one communicator, by rank: those around a hole where others tell them.

    ``members`` are those of the communicator that logged, by rank; an iteration has ``usual`` operators.
    """
    logs = {rank: _Log.of(member, usual) for rank, member in members.items()}
    for rank, log in logs.items():
        others = [other for name, other in logs.items() if name != rank]
        for first, last in log.stretches() if others else ():
            slot = _slots(log, others, first, last)
            if slot is not None:
                log.settle(slot, first, last)
    return {rank: Places(log.iteration, log.position, log.known) for rank, log in logs.items()}


@dataclass
class _Log:
    """One member's operators by iteration, from ``first`` on: where each begins, and what is known of it.

    An iteration is open where it lacks operators, and so is the one before it: what is lost between an anchor and the
    end of its iteration is counted as the next one's, and at the log's beginning the other way round. ``iteration``,
    ``position`` and ``known`` are an entry an operator.
    """

    member: Member
    usual: int
    first: int
    begin: Ints
    lacking: Bools
    open: Bools
    iteration: Ints
    position: Ints
    known: Bools

    @classmethod
    def of(cls, member: Member, usual: int) -> _Log:
        iteration = member.iteration.copy()
        first, last = int(iteration[0]), int(iteration[-1])
        begin = np.searchsorted(iteration, np.arange(first, last + 2))
        lacking = np.diff(begin) != usual
        unsure = lacking.copy()
        if lacking.mean() < _LOST_ITERATIONS:
            unsure[:-1] |= lacking[1:]
            unsure[1:_BEGINNING] |= lacking[: _BEGINNING - 1]
        position = np.arange(len(iteration)) - begin[iteration - first]
        return cls(member, usual, first, begin, lacking, unsure, iteration, position, ~unsure[iteration - first])

    def is_known(self, iteration: int) -> bool:
        """Whether it is known which operators of an iteration the log has."""
        at = iteration - self.first
        return 0 <= at < len(self.open) and not self.open[at]

    def times(self, iteration: int) -> Floats:
        """When the rank called each operator of an iteration and went on from it; shape (2, usual), NaN: lost."""
        rows = self.rows(iteration, iteration)
        found = np.full((2, self.usual), np.nan)
        found[:, self.position[rows]] = self.member.call_ns[rows], self.member.left_ns[rows]
        return found

    def rows(self, first: int, last: int) -> slice:
        """Where the operators of some iterations are."""
        return slice(int(self.begin[first - self.first]), int(self.begin[last + 1 - self.first]))

    def stretches(self) -> Iterator[tuple[int, int]]:
        """First and last iteration of each row of open ones that do not depend on others."""
        parted = self.open & ~self.lacking & np.append(False, self.lacking[:-1])
        parted[:_BEGINNING] = False
        begins = np.flatnonzero(self.open & (parted | ~np.append(False, self.open[:-1])))
        ends = np.flatnonzero(self.open & np.append(parted[1:] | ~self.open[1:], True))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            yield self.first + begin, self.first + end

    def settle(self, slot: Ints, first: int, last: int) -> None:
        """Take over where the operators of some iterations belong, counted from the first one of these."""
        rows = self.rows(first, last)
        self.iteration[rows], self.position[rows] = first + slot // self.usual, slot % self.usual
        self.known[rows] = True
        begin, end = first - self.first, last + 1 - self.first
        self.begin[begin:end] = rows.start + np.searchsorted(self.iteration[rows], np.arange(first, last + 1))
        self.open[begin:end] = False


def _slots(log: _Log, others: Sequence[_Log], first: int, last: int) -> Ints | None:
    """Where the operators of some iterations belong, by the times of the others; None: they do not tell."""
    rows = log.rows(first, last)
    if rows.start == rows.stop:
        return None
    seen = [_times_of_others(log, others, iteration) for iteration in range(first, last + 1)]
    calls_ns, slots_ns = np.concatenate(seen, axis=1)
    told = np.flatnonzero(np.isfinite(slots_ns))
    if len(told) < _TOLD * len(slots_ns):
        return None
    slots = np.arange(len(slots_ns))
    calls_ns, slots_ns = np.interp(slots, told, calls_ns[told]), np.interp(slots, told, slots_ns[told])
    slot = fitting_slots(log.member.left_ns[rows].astype(np.float64), slots_ns)
    if slot is not None:
        _recall(slot, log.member.call_ns[rows].astype(np.float64), calls_ns)
    return slot


def _times_of_others(log: _Log, others: Sequence[_Log], iteration: int) -> Floats:
    """When the others called each operator of an iteration and went on, by the rank's own clock; NaN: nobody tells."""
    seen: list[Floats] = []
    for other in others:
        if len(seen) < _WITNESSES and other.is_known(iteration):
            ahead = _clock_ahead(log, other, iteration)
            if ahead is not None:
                seen.append(other.times(iteration) + ahead)
    return median_of_known(np.array(seen)) if seen else np.full((2, log.usual), np.nan)


def _clock_ahead(log: _Log, other: _Log, iteration: int) -> float | None:
    """By how many ns a rank's clock is ahead of another's, in the nearest iteration that is known of both."""
    for distance in range(1, max(len(log.open), len(other.open))):
        for n in (iteration - distance, iteration + distance):
            if log.is_known(n) and other.is_known(n):
                apart = (log.times(n) - other.times(n))[1]
                if np.isfinite(apart).any():
                    return float(np.nanmedian(apart))
    return None


def fitting_slots(left_ns: Floats, slots_ns: Floats) -> Ints | None:
    """The slot of each operator, ascending, so that they lie as close in time as can be; shape (n,).

    ``slots_ns`` of shape (m,) are the times of all slots. None where there are more operators than slots, too many to
    try, or where they fit no better than their neighbours would.
    """
    missing = len(slots_ns) - len(left_ns)
    if missing < 0 or (missing + 1) * len(left_ns) > _MOST_STEPS:
        return None
    slot = _Ways.of(left_ns, slots_ns).best()
    if np.abs(left_ns - slots_ns[slot]).mean() > np.median(np.diff(slots_ns)):
        return None
    return slot


def _recall(slot: Ints, call_ns: Floats, calls_ns: Floats) -> None:
    """Move operators before a hole back, in place, to the slots of their calls.

    Where ends are not known a rank seems to have gone on from such an operator when it called the first one that is
    not lost, as if it were the last one that is.
    """
    for row in np.flatnonzero(np.diff(slot, prepend=-1) > 1).tolist():
        among = np.arange(slot[row - 1] + 1 if row else 0, slot[row] + 1)
        slot[row] = among[np.abs(calls_ns[among] - call_ns[row]).argmin()]


@dataclass(frozen=True)
class _Ways:
    """The best ways to leave slots out, by how many are left out (rows) up to each operator (columns).

    ``begins``: the first operator after the last slots that were left out. ``fewest``: how many are best left out up
    to the operator, as many as the row's number or fewer.
    """

    begins: Ints
    fewest: Ints

    @classmethod
    def of(cls, left_ns: Floats, slots_ns: Floats) -> _Ways:
        n = len(left_ns)
        begins = np.zeros((len(slots_ns) - n + 1, n), dtype=np.int64)
        fewest = np.zeros_like(begins)
        least = np.full(n, np.inf)  # time by which operators lie apart on the best way up to each
        for left_out in range(len(begins)):
            apart = np.concatenate([[0.0], np.cumsum(np.abs(left_ns - slots_ns[left_out : left_out + n]))])
            entered = np.concatenate([[0.0], least[:-1]]) - apart[:-1]
            lowest = np.minimum.accumulate(entered)
            begins[left_out] = np.maximum.accumulate(np.where(entered == lowest, np.arange(n), 0))
            here = lowest + apart[1:]
            fewest[left_out] = np.where(here < least, left_out, fewest[left_out - 1])
            least = np.minimum(least, here)
        return cls(begins, fewest)

    def best(self) -> Ints:
        """The slots of the best way, from its end to its beginning."""
        slot = np.empty(self.begins.shape[1], dtype=np.int64)
        end, most = len(slot), len(self.begins) - 1
        while end > 0:
            left_out = int(self.fewest[most, end - 1])
            begin = int(self.begins[left_out, end - 1])
            slot[begin:end] = np.arange(begin, end) + left_out
            end, most = begin, left_out - 1
        return slot
