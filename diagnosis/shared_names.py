"""Several groups of ranks under one communicator's name, told by when they call: their operators must not be joined.

Nobody leaves a collective that synchronises before all members have entered it. So what two members call with the same
numbers bounds how far their clocks may be apart, from both sides; where these bounds contradict each other within an
iteration, in which clocks hardly drift, it was not the same collectives that they called. So they do where ends are
those of the host, which only queues the work: each must have a member beside it that it leaves together with, whenever
either came.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.columns import codes, integers, joint_codes
from diagnosis.operators import POINT_TO_POINT

_SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

_SAMPLE = 16
"""Iterations that are looked at, spread over the log."""

_LEAST_ITERATIONS = 8
"""In fewer of them two ranks cannot be compared."""

_LEAST_CALLS = 3
"""By fewer operators that both called an iteration tells nothing."""

_MOST = 0.5
"""Part of their iterations in which ranks must contradict each other to be of two groups, or leave together to be of
one.
"""

_CLOSER = 0.8
"""Who leaves together is at most this part as far apart then, by the standard deviation, as when entering."""

_LEAST_CONTRADICTION = 0.01
"""Part of an iteration's usual length. In real logs of one group it is at most 0.004, where a host queues the work."""


class SharedName(NamedTuple):
    """A communicator's name that groups share, and a rank of one and of another of these."""

    communicator: str
    one: int
    other: int


def shared_name(table: pa.Table) -> SharedName | None:
    """The first name that is certainly that of several groups, each with two members or more that logged; None: none.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order, with iterations, and numbers that
    join operators of one group. Operators without an end tell nothing.
    """
    iteration = integers(table, "iteration")
    known = np.unique(iteration[iteration >= 0])
    if len(known) < _LEAST_ITERATIONS:
        return None
    sample = known[np.linspace(0, len(known) - 1, min(_SAMPLE, len(known))).astype(np.int64)]
    table = table.filter(pa.array(np.isin(iteration, sample)))
    calls, (code, names) = _Calls.of(table), codes(table, "communicator")
    paired = np.unique(code[_bears(table, POINT_TO_POINT)])  # their numbers do not line up
    synchronises = _bears(table, _SYNCHRONISING) & ~np.isin(code, paired)
    rows = np.flatnonzero(synchronises & (calls.seq >= 0) & (calls.end_ns >= 0))
    rows = rows[np.argsort(code[rows], kind="stable")]
    least_ns = _LEAST_CONTRADICTION * calls.usual_ns
    for own in np.split(rows, np.flatnonzero(np.diff(code[rows])) + 1) if len(rows) else ():
        apart = _apart(calls.take(own), least_ns)
        if apart is not None:
            return SharedName(names[code[own[0]]], *apart)
    return None


def _bears(table: pa.Table, kinds: Collection[str]) -> Bools:
    """Which rows are of operators of some kinds."""
    op, ops = codes(table, "op")
    return np.asarray(np.isin(op, [code for code, name in enumerate(ops) if name in kinds]), dtype=np.bool_)


def _apart(calls: _Calls, least_ns: float) -> tuple[int, int] | None:
    """A rank of one group and one of another, of the ranks that call on one communicator; None: not known."""
    ranks = np.unique(calls.rank)
    if len(ranks) < 4:
        return None
    one = int(ranks[0])
    with_one, beyond = calls.beside(one, ranks, least_ns)
    if with_one.sum() < 2 or beyond.sum() < 2:
        return None
    other = int(ranks[beyond][0])
    with_other, beyond_other = calls.beside(other, ranks, least_ns)
    told = (with_other & beyond).sum() >= 2 and beyond_other[with_one].all()
    return (one, other) if told else None


@dataclass(frozen=True)
class _Calls:
    """Operators by rank and call order, as columns of shape (n,); -1: not known."""

    rank: Ints
    iteration: Ints
    seq: Ints
    call_ns: Ints
    end_ns: Ints

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        return cls(**{field.name: integers(table, field.name) for field in fields(cls)})

    def take(self, index: Ints | Bools) -> Self:
        """The chosen ones."""
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @property
    def usual_ns(self) -> float:
        """How long a rank's calls of an iteration usually last together."""
        cell = joint_codes(self.rank, self.iteration)
        heads = np.flatnonzero(np.diff(cell, prepend=-1))
        first, last = np.minimum.reduceat(self.call_ns, heads), np.maximum.reduceat(self.call_ns, heads)
        return float(np.median(last - first))

    def beside(self, rank: int, ranks: Ints, least_ns: float) -> tuple[Bools, Bools]:
        """Which of ``ranks`` leave together with a rank, itself included, and which contradict it by more than
        ``least_ns``; each of shape (ranks,). Of whom too little is known does neither.
        """
        own = self.take(self.rank == rank)
        own = own.take(np.argsort(own.seq, kind="stable"))
        at = np.minimum(np.searchsorted(own.seq, self.seq), len(own.seq) - 1)
        met = own.seq[at] == self.seq
        here, there = own.take(at[met]), self.take(met)
        cell = joint_codes(there.rank, here.iteration)
        count = np.bincount(cell)
        least_ahead, most_ahead = np.full(len(count), -np.inf), np.full(len(count), np.inf)  # one's clock, in ns
        np.maximum.at(least_ahead, cell, here.call_ns - there.end_ns)
        np.minimum.at(most_ahead, cell, here.end_ns - there.call_ns)
        leave, enter = (_scatter(of, cell) for of in (here.end_ns - there.end_ns, here.call_ns - there.call_ns))
        together = (least_ahead <= most_ahead) & (leave <= _CLOSER * enter)
        whose = np.zeros(len(count), dtype=np.int64)
        whose[cell] = np.searchsorted(ranks, there.rank)

        tells = count >= _LEAST_CALLS
        told = np.bincount(whose[tells], minlength=len(ranks))

        def mostly(cells: Bools) -> Bools:
            often = np.bincount(whose[cells & tells], minlength=len(ranks)) > _MOST * told
            return np.asarray(often & (told >= _LEAST_ITERATIONS), dtype=np.bool_)

        return mostly(together), mostly(least_ahead - most_ahead > least_ns)


def _scatter(values: Ints, cell: Ints) -> Floats:
    """Standard deviation of the values of each cell."""
    count = np.bincount(cell)
    centred = values - (np.bincount(cell, weights=values) / count)[cell]
    return np.asarray(np.sqrt(np.bincount(cell, weights=centred**2) / count), dtype=np.float64)
