"""Which operators of a communicator a log without sequence numbers lacks, told by when others went on from theirs.

Where a rank logged fewer operators in an iteration than the others did, counting does not tell which ones are
missing. The members of a communicator leave each of its collectives together: of all ways to leave out as many as
are missing, the right one is that by which the rank left its operators when the others did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

_MOST_STEPS = 1 << 22
"""Operators times missing ones that are tried in one place."""


@dataclass(frozen=True)
class Member:
    """The collectives of one communicator in one rank's log: an entry an operator, in call order.

    ``iteration`` is as counting tells it, never falling; ``call_ns`` is when the rank called it and ``left_ns`` when it
    went on, by its own clock. ``after_hole``: what precedes is lost, so that what its first iteration lacks is its
    beginning.
    """

    iteration: Ints
    call_ns: Ints
    left_ns: Ints
    after_hole: bool = False


@dataclass(frozen=True)
class Places:
    """Of each of a member's operators the iteration, the position in it, and whether these are known."""

    iteration: Ints
    position: Ints
    known: Bools


def place(members: Mapping[int, Member], usual: int, *, counted: bool = True) -> dict[int, Places]:
    """The places of all operators of one communicator, by rank: those around a hole where others tell them.

    ``members`` are those of the communicator that logged, by rank; an iteration has ``usual`` operators. ``counted``:
    where iterations begin is counted, not logged, so that what is lost may have moved it.
    """
    group = _Group.of(members, usual, counted=counted)
    for of in range(len(group.logs)):
        for first, last in group.logs[of].stretches():
            slot = group.slots(of, first, last)
            if slot is not None:
                group.settle(of, slot, first, last)
    return {
        rank: Places(group.iterations[log.ordinal], log.position, log.known)
        for rank, log in zip(members, group.logs, strict=True)
    }


@dataclass
class _Log:
    """One member's operators by iteration, these numbered by ordinals: where each begins, and what is known of it.

    An iteration is open where it lacks operators. Where iterations are counted, so is the one before it: what is lost
    between an anchor and the end of its iteration is counted as the next one's, and at the log's beginning the other
    way round. Of one in which all members have more than usual nothing is known. ``ordinal``, ``position`` and
    ``known`` are an entry an operator, the others an iteration.
    """

    member: Member
    usual: int
    ordinal: Ints
    begin: Ints
    lacking: Bools
    open: Bools
    position: Ints
    known: Bools

    @classmethod
    def of(cls, member: Member, usual: int, ordinal: Ints, begin: Ints, more: Bools, *, counted: bool) -> _Log:
        lacking = (np.diff(begin) != usual) & ~more
        lacking[: ordinal[0]] = lacking[ordinal[-1] + 1 :] = False
        position = np.arange(len(ordinal)) - begin[ordinal]
        if member.after_hole and begin[ordinal[0] + 1] < usual:
            position[: begin[ordinal[0] + 1]] += usual - begin[ordinal[0] + 1]
            lacking[ordinal[0]] = False
        unsure = lacking.copy()
        if counted:
            unsure[:-1] |= lacking[1:]
            early = slice(ordinal[0], ordinal[0] + _BEGINNING)
            unsure[early][1:] |= lacking[early][:-1]
        unsure[: ordinal[0]] = unsure[ordinal[-1] + 1 :] = False
        return cls(member, usual, ordinal, begin, lacking, unsure, position, ~(unsure | more)[ordinal])

    def times(self, at: int) -> Floats:
        """When the rank called each operator of an iteration and went on from it; shape (2, usual), NaN: lost."""
        rows = self.rows(at, at)
        found = np.full((2, self.usual), np.nan)
        found[:, self.position[rows]] = self.member.call_ns[rows], self.member.left_ns[rows]
        return found

    def rows(self, first: int, last: int) -> slice:
        """Where the operators of some iterations are."""
        return slice(int(self.begin[first]), int(self.begin[last + 1]))

    def stretches(self) -> Iterator[tuple[int, int]]:
        """First and last iteration of each row of open ones that do not depend on others."""
        parted = self.open & ~self.lacking & np.append(False, self.lacking[:-1])
        parted[: self.ordinal[0] + _BEGINNING] = False
        begins = np.flatnonzero(self.open & (parted | ~np.append(False, self.open[:-1])))
        ends = np.flatnonzero(self.open & np.append(parted[1:] | ~self.open[1:], True))
        yield from zip(begins.tolist(), ends.tolist(), strict=True)

    def settle(self, slot: Ints, first: int, last: int) -> None:
        """Take over where the operators of some iterations belong, counted from the first one of these."""
        rows = self.rows(first, last)
        self.ordinal[rows], self.position[rows] = first + slot // self.usual, slot % self.usual
        self.known[rows] = True
        self.begin[first : last + 1] = rows.start + np.searchsorted(self.ordinal[rows], np.arange(first, last + 1))
        self.open[first : last + 1] = False


@dataclass
class _Group:
    """The logs of a communicator's members. ``iterations`` are those in which any has an operator; ``known`` is whether
    it is known which ones a log has of each; shape (logs, iterations).
    """

    usual: int
    iterations: Ints
    logs: list[_Log]
    known: Bools

    @classmethod
    def of(cls, members: Mapping[int, Member], usual: int, *, counted: bool) -> _Group:
        iterations = np.unique(np.concatenate([member.iteration for member in members.values()]))
        ordinals = [np.searchsorted(iterations, member.iteration) for member in members.values()]
        begins = [np.searchsorted(ordinal, np.arange(len(iterations) + 1)) for ordinal in ordinals]
        more = np.asarray((np.diff(begins, axis=1) > usual).all(axis=0), dtype=np.bool_)
        logs = [
            _Log.of(member, usual, ordinal, begin, more, counted=counted)
            for member, ordinal, begin in zip(members.values(), ordinals, begins, strict=True)
        ]
        known = np.zeros((len(logs), len(iterations)), dtype=np.bool_)
        for of, log in enumerate(logs):
            inside = slice(log.ordinal[0], log.ordinal[-1] + 1)
            known[of, inside] = ~(log.open | more)[inside]
        return cls(usual, iterations, logs, known)

    def settle(self, of: int, slot: Ints, first: int, last: int) -> None:
        """Take over where the operators of a log's iterations belong."""
        self.logs[of].settle(slot, first, last)
        self.known[of, first : last + 1] = True

    def slots(self, of: int, first: int, last: int) -> Ints | None:
        """Where the operators of some iterations of a log belong, by the times of the others; None: nobody tells."""
        log = self.logs[of]
        rows = log.rows(first, last)
        if rows.start == rows.stop:
            return None
        calls_ns, slots_ns = np.concatenate([self._times(of, at) for at in range(first, last + 1)], axis=1)
        told = np.flatnonzero(np.isfinite(slots_ns))
        if len(told) < _TOLD * len(slots_ns):
            return None
        slots = np.arange(len(slots_ns))
        calls_ns, slots_ns = np.interp(slots, told, calls_ns[told]), np.interp(slots, told, slots_ns[told])
        slot = fitting_slots(log.member.left_ns[rows].astype(np.float64), slots_ns)
        if slot is not None:
            _recall(slot, log.member.call_ns[rows].astype(np.float64), calls_ns)
        return slot

    def _times(self, of: int, at: int) -> Floats:
        """When the others called each operator of an iteration and went on, by a log's own clock; NaN: nobody tells."""
        seen: list[Floats] = []
        for other in np.flatnonzero(self.known[:, at]).tolist():
            ahead = self._clock_ahead(of, other, at) if len(seen) < _WITNESSES else None
            if ahead is not None:
                seen.append(self.logs[other].times(at) + ahead)
        return median_of_known(np.array(seen)) if seen else np.full((2, self.usual), np.nan)

    def _clock_ahead(self, of: int, other: int, at: int) -> float | None:
        """By how many ns a log's clock is ahead of another's, in the nearest iteration that is known of both."""
        both = np.flatnonzero(self.known[of] & self.known[other])
        for n in both[np.argsort(np.abs(both - at), kind="stable")].tolist():
            apart = (self.logs[of].times(n) - self.logs[other].times(n))[1]
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
