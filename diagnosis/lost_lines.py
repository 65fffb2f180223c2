"""Which operators of a communicator a log without sequence numbers lacks, told by what it calls where in other
iterations, and by when others went on from theirs.

Where a rank logged fewer operators in an iteration than the others did, counting does not tell which ones are
missing. A program calls the same in each iteration, and the members of a communicator leave each of its collectives
together: of all ways to leave out as many as are missing, the right one is that by which the operators are those of
their places, and the rank left them when the others did. Where several ways are about as good, the operators that they
tell otherwise are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.robust import median_of_known

_WITNESSES = 8
"""Other members whose times are taken, at most."""

_DOUBT = 24.0
"""An operator is known if every other way costs more than the best one by so many times as much as operators are apart
from their slots: each is late or early with its neighbours, so that many err together."""

_OTHER = 100.0
"""As many slots as an operator that is another one is apart from its slot: it goes before all times."""

_LEAST_WHOLE = 3
"""Iterations without a hole that tell what members call in each, at least, and"""

_ALIKE = 0.75
"""the share of them that must agree: one may have been counted from its second line on."""

_ODD = 2
"""Operators that may be others than those of their slots, where no times tell: one follows upon another than usual
where a line between is lost."""

_ELSEWHERE = 0.25
"""As much of that costs each slot that is left out elsewhere than after a hole."""

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
    went on, by its own clock. ``mark`` is what tells it from others of its iteration, alike in all iterations; 0:
    nothing. ``after_hole``: what precedes is lost, so that what its first iteration lacks is its beginning, where
    nothing else tells.
    """

    iteration: Ints
    call_ns: Ints
    left_ns: Ints
    mark: Ints
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
    stretches = [(of, *stretch) for of, log in enumerate(group.logs) for stretch in log.stretches()]
    for of, first, last in stretches * 2:  # whom nobody told before those may tell who are told meanwhile
        fit = group.fit(of, first, last)
        if fit is not None:
            group.settle(of, fit, first, last)
    return {
        rank: Places(group.iterations[log.ordinal], log.position, log.known)
        for rank, log in zip(members, group.logs, strict=True)
    }


@dataclass(frozen=True)
class Fit:
    """The slot of each operator, ascending, and whether it is known that it is this one; shape (n,)."""

    slot: Ints
    known: Bools


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
        unsure = lacking.copy()
        if counted:
            unsure[:-1] |= lacking[1:]
            early = slice(ordinal[0], ordinal[0] + _BEGINNING)
            unsure[early][1:] |= lacking[early][:-1]
        unsure[: ordinal[0]] = unsure[ordinal[-1] + 1 :] = False
        return cls(member, usual, ordinal, begin, lacking, unsure, position, ~(unsure | more)[ordinal])

    def times(self, at: int) -> Floats:
        """When the rank called each operator of an iteration and went on from it; shape (2, usual), NaN: lost."""
        rows = np.arange(self.begin[at], self.begin[at + 1])
        rows = rows[self.known[rows]]
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

    def marks(self) -> Ints:
        """The marks of each iteration that has as many operators as usual; shape (iterations, usual)."""
        whole = np.flatnonzero(np.diff(self.begin) == self.usual)
        return np.asarray(self.member.mark[self.begin[whole][:, None] + np.arange(self.usual)], dtype=np.int64)

    def lacks_beginning(self, first: int, missing: int) -> bool:
        """Whether what is missing from an iteration on is what the first one after a hole lacks."""
        own = self.begin[first + 1] - self.begin[first]
        return self.member.after_hole and first == self.ordinal[0] and self.usual - own == missing

    def settle(self, fit: Fit, first: int, last: int) -> None:
        """Take over where the operators of some iterations belong, counted from the first one of these."""
        rows = self.rows(first, last)
        self.ordinal[rows], self.position[rows] = first + fit.slot // self.usual, fit.slot % self.usual
        self.known[rows] = fit.known
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
    marks: Ints

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
        return cls(usual, iterations, logs, known, _alike(np.concatenate([log.marks() for log in logs])))

    def settle(self, of: int, fit: Fit, first: int, last: int) -> None:
        """Take over where the operators of a log's iterations belong."""
        self.logs[of].settle(fit, first, last)
        self.known[of, first : last + 1] = True

    def fit(self, of: int, first: int, last: int) -> Fit | None:
        """Where the operators of some iterations of a log belong, by what they are and the times of the others; None:
        nothing tells.
        """
        log = self.logs[of]
        rows = log.rows(first, last)
        mark, usual = log.member.mark[rows], np.tile(self.marks, last + 1 - first)
        missing = len(usual) - len(mark)
        if not len(mark) or missing < 0:
            return None
        if log.lacks_beginning(first, missing) and _differ(mark, usual[missing:]).sum() <= _ODD:
            return Fit(np.arange(missing, len(usual)), np.ones(len(mark), dtype=np.bool_))
        if (missing + 1) * len(mark) > _MOST_STEPS:
            return None
        told = self._told(of, first, last)
        if told is None and missing and not usual.any():
            return None
        differs = _differ(mark, np.lib.stride_tricks.sliding_window_view(usual, len(mark)))
        begins = log.member.after_hole and first == log.ordinal[0]
        if told is None:
            fit = fitted(np.zeros(differs.shape), 1.0, differs, _ODD, after_hole=begins)
            if np.diff(fit.slot).max(initial=0) > self.usual // 2:
                return None  # marks come again in each iteration, so that they do not tell which one is lost
        else:
            fit = fitted_in_time(log.member.left_ns[rows].astype(np.float64), told[1], differs, after_hole=begins)
            _recall(fit.slot, log.member.call_ns[rows].astype(np.float64), told[0])
        return fit if fit.known.any() else None

    def _told(self, of: int, first: int, last: int) -> Floats | None:
        """When the others called each operator of some iterations and went on, by a log's own clock; shape (2, slots).
        None: of too few of them anybody tells.
        """
        times = np.concatenate([self._times(of, at) for at in range(first, last + 1)], axis=1)
        known = np.flatnonzero(np.isfinite(times[1]))
        if len(known) < _TOLD * times.shape[1]:
            return None
        return np.array([np.interp(np.arange(times.shape[1]), known, kind[known]) for kind in times])

    def _times(self, of: int, at: int) -> Floats:
        """When the others called each operator of an iteration and went on, by a log's own clock; NaN: nobody tells."""
        seen: list[Floats] = []
        for other in np.flatnonzero(self.known[:, at]).tolist():
            tells = other != of and len(seen) < _WITNESSES
            ahead = self._clock_ahead(of, other, at) if tells else None
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


def _alike(marks: Ints) -> Ints:
    """Of marks of shape (iterations, usual) those that most iterations have; 0: no such one."""
    if len(marks) < _LEAST_WHOLE:
        return np.zeros(marks.shape[1], dtype=np.int64)
    usual = np.sort(marks, axis=0)[len(marks) // 2]
    return np.where((marks == usual).mean(axis=0) >= _ALIKE, usual, 0)


def _differ(mark: Ints, usual: Ints) -> Bools:
    """Whether marks are others than those of their slots, as far as these have any."""
    return np.asarray((usual != mark) & (usual != 0), dtype=np.bool_)


def fitted_in_time(left_ns: Floats, slots_ns: Floats, differs: Bools, *, after_hole: bool = False) -> Fit:
    """The slots of n operators so that they lie as close to the times of all m slots as can be; as ``fitted``."""
    late = np.abs(left_ns - np.lib.stride_tricks.sliding_window_view(slots_ns, len(left_ns)))
    other = _OTHER * float(np.median(np.diff(slots_ns)))
    return fitted(late, other, differs, after_hole=after_hole)


def fitted(apart: Floats, other: float, differs: Bools, doubt: float | None = None, *, after_hole: bool = False) -> Fit:
    """The slot of each of n operators, ascending, of as many ways to leave slots out the one that costs least.

    ``apart`` is how far each is from its slot, by how many slots before it are left out, and ``differs`` whether it is
    another one than that of the slot, which costs ``other``; shape (m - n + 1, n). An operator is known where every
    other way costs more by ``doubt``; None: by how far operators usually are apart. ``after_hole``: what precedes is
    lost, so that the first slots are the likeliest to be left out.
    """
    costs = apart + other * differs
    if after_hole:
        costs[:, 0] -= _ELSEWHERE * other * np.arange(len(costs))
    ways = _least(costs) + _least(costs[::-1, ::-1])[::-1, ::-1] - costs
    left_out = np.maximum.accumulate(ways.argmin(axis=0))
    rows = np.arange(costs.shape[1])
    if doubt is None:
        usual = float(np.median(apart[left_out, rows])) + other * float(differs[left_out, rows].mean())
        doubt = _DOUBT * usual
    return Fit(rows + left_out, np.asarray((ways <= ways.min() + doubt).sum(axis=0) == 1, dtype=np.bool_))


def _least(apart: Floats) -> Floats:
    """By how much the operators up to each are apart at least, by how many slots before it are left out."""
    least = np.empty_like(apart)
    with_fewer = np.full(apart.shape[1], np.inf)
    for left_out, own in enumerate(apart):
        up_to = np.cumsum(own)
        entered = np.append(0.0, with_fewer[:-1]) - np.append(0.0, up_to[:-1])
        least[left_out] = np.minimum.accumulate(entered) + up_to
        with_fewer = np.minimum(with_fewer, least[left_out])
    return least


def _recall(slot: Ints, call_ns: Floats, calls_ns: Floats) -> None:
    """Move operators before a hole back, in place, to the slots of their calls.

    Where ends are not known a rank seems to have gone on from such an operator when it called the first one that is
    not lost, as if it were the last one that is.
    """
    for row in np.flatnonzero(np.diff(slot, prepend=-1) > 1).tolist():
        among = np.arange(slot[row - 1] + 1 if row else 0, slot[row] + 1)
        slot[row] = among[np.abs(calls_ns[among] - call_ns[row]).argmin()]
