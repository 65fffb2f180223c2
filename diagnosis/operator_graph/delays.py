"""Where each rank's time went: computing, waiting for a member to enter, transferring; and how much more than usual.

A rank's time splits without remainder: until it calls an operator it computes; until the last member has
called it waits for that member; then the transfer runs. Overlapping operators count once. What is usual is the
mean of the same operator (rank, communicator, position) over the baseline iterations, so a constant clock
offset that is left over cancels out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.clocks import Clocks
from diagnosis.job import Job
from diagnosis.numbering import numbered
from diagnosis.operator_graph.log_view import LogView
from diagnosis.operator_graph.meetings import Met, meet, queued
from diagnosis.operator_graph.spread import Spreads, spreads
from diagnosis.operators import ONE_SIDED, UNKNOWN, Operators

Kind = Literal["compute", "transfer", "step", "exposed"]
"""What time is spent on, as sums of it are judged."""

LEAST_BASELINE = 3
"""An operator seen less often in the baseline has no usual duration."""


KNOWN_SHARE = 0.5
"""Of the time that a rank's rows took: where less can be compared with what is usual, its loss is not known."""


@dataclass(frozen=True)
class Delays:
    """Time of each operator beyond what is usual, in ns, worked out when it is first asked for; every array has shape
    (n,), NaN: not known.

    ``compute`` is spent before the call, ``exposed`` within the operator; ``exposed = wait + transfer`` where all
    members were seen. ``step`` is ``exposed``, or where nobody tells when the operator ended, the time until the next
    call of the rank; ``until_next`` is from one call to the next, whoever tells of it; ``onward`` is the time from its
    end until that call. ``spent`` has the times themselves. ``behind`` is how much later than the first member the rank
    went on, known where calls are queued (``queued``): there all that the GPU had to do is within the operator.
    ``after`` is the time from when all were there until the rank went on. ``awaited`` is the rank that entered last,
    ``meeting`` the communication (``Operators.meeting_keys``), ``channel`` what it runs over: the communicator, or the
    ends of a send or recv. ``transfer_usual`` is how long the transfer usually takes. ``met``: with whom each operator
    met; ``in_baseline``: which ones tell what is usual.
    """

    operators: Operators
    spent: Split
    met: Met
    in_baseline: Bools

    @property
    def meeting(self) -> Ints:
        return self.met.keys

    @cached_property
    def awaited(self) -> Ints:
        return np.where(self.met.complete, self.operators.rank[self.met.last], UNKNOWN)

    @cached_property
    def channel(self) -> Ints:
        return _channels(self.operators)

    @cached_property
    def compute(self) -> Floats:
        of_gap = numbered(self._operator, np.r_[UNKNOWN, self._operator][:-1])
        return self.spent.compute - usual_by_number(self.spent.compute, of_gap, self.in_baseline)

    @cached_property
    def exposed(self) -> Floats:
        return self._beyond_usual(self.spent.exposed)

    @cached_property
    def wait(self) -> Floats:
        return self._beyond_usual(self.spent.wait)

    @cached_property
    def transfer_usual(self) -> Floats:
        return usual_by_number(self.spent.transfer, self._operator, self.in_baseline)

    @cached_property
    def transfer(self) -> Floats:
        return self.spent.transfer - self.transfer_usual

    @cached_property
    def step(self) -> Floats:
        return self._beyond_usual(self.spent.step)

    @cached_property
    def until_next(self) -> Floats:
        operators = self.operators
        following = operators.next_calls
        known = (following != UNKNOWN) & ~self.met.amid
        return self._beyond_usual(np.where(known, following - operators.call_ns, np.nan))

    @cached_property
    def onward(self) -> Floats:
        return self._beyond_usual(self.spent.onward)

    @cached_property
    def after(self) -> Floats:
        known = self.met.complete & (self.met.following != UNKNOWN)
        return self._beyond_usual(np.where(known, self.met.following - self.met.entered, np.nan))

    @cached_property
    def behind(self) -> Floats:
        return self._beyond_usual(_behind(self.operators, self.met))

    @cached_property
    def _operator(self) -> Ints:
        """A number for each operator of a rank's cycle."""
        return numbered(self.operators.rank, self.operators.communicator, self.operators.position)

    def _beyond_usual(self, spent: Floats) -> Floats:
        return spent - usual_by_number(spent, self._operator, self.in_baseline)

    def rows(self, rank: int, iterations: Sequence[int], until_ns: int | None = None) -> Ints:
        """Indices of a rank's operators in the iterations that were called by ``until_ns`` (its own clock)."""
        low, high = np.searchsorted(self.operators.rank, [rank, rank + 1])
        chosen = np.isin(self.operators.iteration[low:high], iterations)
        if until_ns is not None:
            chosen &= self.operators.call_ns[low:high] <= until_ns
        return np.asarray(low + np.flatnonzero(chosen), dtype=np.int64)

    def members(self, row: int, job: Job) -> tuple[int, ...]:
        """Ranks that share a row's channel."""
        return tuple(sorted(self.operators.participants(row, job.members)))

    def spread(self, values: Floats, rows: Bools, baseline: Sequence[int]) -> float:
        """Standard deviation of an iteration's sum of ``values`` in the chosen rows (a mask), over those iterations of
        the baseline of which it is known.
        """
        sums = self.series(values, rows, baseline)
        sums = sums[~np.isnan(sums)]
        return float(np.std(sums, ddof=1)) if len(sums) > 1 else float("inf")

    def spreads(self, kind: Kind, group: Ints, baseline: Sequence[int], rows: Bools | None = None) -> Spreads:
        """Of each rank and group (shape (n,)), how much the sum over an iteration varies; None: of all rows."""
        operators, chosen = self.operators, np.ones(len(group), dtype=np.bool_) if rows is None else rows
        of = (operators.rank, group, operators.iteration, getattr(self.spent, kind), getattr(self, kind))
        return spreads(*of, baseline, chosen)

    def series(self, values: Floats, rows: Bools, iterations: Sequence[int]) -> Floats:
        """Sum of ``values`` over the chosen rows (a mask) in each iteration, NaN where none of them is known; shape
        (len(iterations),).
        """
        order = np.asarray(sorted(iterations), dtype=np.int64)
        inside = np.flatnonzero(rows & np.isin(self.operators.iteration, order) & ~np.isnan(values))
        place = np.searchsorted(order, self.operators.iteration[inside])
        sums = np.bincount(place, weights=values[inside], minlength=len(order))
        return np.where(np.bincount(place, minlength=len(order)) > 0, sums, np.nan)

    def usual(self, kind: Kind, rows: Ints) -> float:
        """How long rows usually take, those of which it is known, in ns."""
        return float(np.nansum(self._spent(kind, rows) - self._excess(kind, rows)))

    def knows(self, kind: Kind, rows: Ints) -> bool:
        """Whether of most of the time that rows took it is known what is usual."""
        spent, known = np.nan_to_num(self._spent(kind, rows)), ~np.isnan(self._excess(kind, rows))
        return bool(known.any() and spent[known].sum() >= KNOWN_SHARE * spent.sum())

    def _excess(self, kind: Kind, rows: Ints) -> Floats:
        values: Floats = getattr(self, kind)
        return values[rows]

    def _spent(self, kind: Kind, rows: Ints) -> Floats:
        values: Floats = getattr(self.spent, kind)
        return values[rows]


@dataclass(frozen=True, slots=True)
class Split:
    """Where the time of each operator went, in ns; every array has shape (n,), NaN: not known.

    On a complete log ``compute`` and ``exposed`` of a rank add up to the time from its first call to its last end.
    """

    compute: Floats
    exposed: Floats
    wait: Floats
    step: Floats
    onward: Floats

    @property
    def transfer(self) -> Floats:
        """What is left of the exposed time once all members are there."""
        return self.exposed - self.wait


def measure(view: LogView, clocks: Clocks, baseline: Sequence[int]) -> Delays:
    """Split the time of every fetched operator and subtract what is usual."""
    operators, met = view.operators, meet(view, clocks)
    return Delays(
        operators, _split(operators, met, view.paused), met, np.isin(operators.iteration, np.asarray(baseline))
    )


def end_times(view: LogView, clocks: Clocks) -> Ints:
    """When each operator ended, on its own rank's clock; shape (n,). ``UNKNOWN`` where not even its members tell."""
    met = meet(view, clocks)
    return np.where(met.end == UNKNOWN, UNKNOWN, met.end + view.operators.call_ns - met.call)


def _split(operators: Operators, met: Met, paused: Mapping[int, int]) -> Split:
    ended = met.end != UNKNOWN
    busy = _busy_until(operators, met)
    # after an operator that ended nobody knows when, nobody knows since when the rank computed
    computes = _continues(operators) & np.r_[False, (ended & ~met.amid)[:-1]]
    rested = _rested(operators, paused)
    compute = np.where(computes, np.maximum(met.call - busy - rested, 0), np.nan)
    begin = np.maximum(met.call, busy)
    begin, end = _batched(operators, met.call, begin, met.end, np.where(met.complete & ended, met.entered, UNKNOWN))
    exposed = np.where(ended, np.maximum(end - begin, 0), np.nan)
    wait = np.where(met.complete & ended, np.clip(np.minimum(met.entered, end) - begin, 0, None), np.nan)
    on = np.where(met.following == UNKNOWN, np.nan, np.maximum(met.following - begin, 0))
    onward = np.where(ended & (met.following != UNKNOWN), met.following - met.end, np.nan)
    step = np.where(ended, exposed, on)
    split = (compute, exposed, wait, step, onward)
    return Split(*(np.where(met.amid, np.nan, spent) for spent in split) if met.amid.any() else split)


def _rested(operators: Operators, paused: Mapping[int, int]) -> Ints:
    """What of the time before each operator is a pause of all ranks: that before the first one of an iteration."""
    rested = np.zeros(len(operators), dtype=np.int64)
    first = np.flatnonzero(np.r_[False, np.diff(operators.iteration) > 0])
    for iteration, pause_ns in paused.items():
        rested[first[operators.iteration[first] == iteration]] = pause_ns
    return rested


def _behind(operators: Operators, met: Met) -> Floats:
    """How much later than the first member each rank went on after a collective that all end together; NaN where calls
    are not queued.
    """
    chosen = met.complete & (met.keys != UNKNOWN) & (met.following != UNKNOWN)
    chosen &= ~operators.ended & ~operators.point_to_point & ~operators.is_op(*ONE_SIDED)
    behind = np.full(len(operators), np.nan)
    if not chosen.any():
        return behind
    first = np.full(int(met.keys.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, met.keys[chosen], met.following[chosen])
    first_of_row = first[np.maximum(met.keys, 0)]
    if queued(first_of_row[chosen], met.entered[chosen]):
        behind[chosen] = (met.following - first_of_row)[chosen]
    return behind


def _channels(operators: Operators) -> Ints:
    between = operators.point_to_point
    low = np.where(between, np.minimum(operators.rank, operators.peer), UNKNOWN)
    high = np.where(between, np.maximum(operators.rank, operators.peer), UNKNOWN)
    return numbered(operators.communicator, low + 1, high + 1)


def _busy_until(operators: Operators, met: Met) -> Ints:
    """Until when the rank was inside an earlier operator; its own call where it has none, as once its clock was set."""
    if not len(met.call):
        return met.call
    done = np.where(met.end == UNKNOWN, met.call, met.end)
    anew = np.r_[True, (operators.rank[1:] != operators.rank[:-1]) | (met.amid[:-1] & ~met.amid[1:])]
    running = np.concatenate([np.maximum.accumulate(of) for of in np.split(done, np.flatnonzero(anew)[1:])])
    return np.where(anew, met.call, np.r_[met.call[:1], running[:-1]])


def _batched(operators: Operators, call: Ints, begin: Ints, end: Ints, entered: Ints) -> tuple[Ints, Ints]:
    """Give the time of sends and receives that run at once to the one whose peer came last.

    A pipeline stage posts its send and its receive together and waits for both, so both seem to last until the
    later one is done, and the first posted would be charged with the other's delay. Returns begin and end, where
    the others of a batch take no time. A batch with a peer not seen stays as it is.
    """
    at = np.flatnonzero(operators.point_to_point)
    if len(at) < 2:
        return begin, end
    follows = (np.diff(at) == 1) & (operators.rank[at[1:]] == operators.rank[at[:-1]])
    follows &= begin[at[1:]] > call[at[1:]]
    batch = np.r_[0, np.cumsum(~follows)]
    starts = np.flatnonzero(np.r_[True, ~follows])
    known = np.minimum.reduceat(entered[at], starts) != UNKNOWN
    several = np.diff(np.r_[starts, len(at)]) > 1
    whole_end = np.maximum.reduceat(end[at], starts)
    order = np.lexsort((entered[at], batch))
    decisive = np.zeros(len(at), dtype=np.bool_)
    decisive[order[np.r_[starts[1:], len(at)] - 1]] = True
    inside = (known & several)[batch]
    begin, end = begin.copy(), end.copy()
    first_begin = begin[at[starts]][batch]
    begin[at[inside]] = first_begin[inside]
    end[at[inside]] = np.where(decisive, whole_end[batch], first_begin)[inside]
    return begin, end


def _continues(operators: Operators) -> Bools:
    """Whether the operator before is the rank's, and not from before a hole in the log."""
    same_rank = np.r_[False, operators.rank[1:] == operators.rank[:-1]]
    step = np.r_[0, np.diff(operators.iteration)]
    return np.asarray(same_rank & (step >= 0) & (step <= 1), dtype=np.bool_)


def usual_by_number(values: Floats, numbers: Ints, baseline: Bools) -> Floats:
    """Mean of each number's values over the baseline rows; NaN where it was seen too seldom."""
    if not len(values):
        return values
    used = baseline & ~np.isnan(values) & (numbers != UNKNOWN)
    size = int(numbers.max(initial=0)) + 1
    count = np.bincount(numbers[used], minlength=size)
    total = np.bincount(numbers[used], weights=values[used], minlength=size)
    mean = np.divide(total, count, out=np.full(size, np.nan), where=count >= LEAST_BASELINE)
    return np.where(numbers != UNKNOWN, mean[np.maximum(numbers, 0)], np.nan)
