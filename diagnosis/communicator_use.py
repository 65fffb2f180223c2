"""What is done on each communicator: who takes part, which operators, and in which part of an iteration.

Ids of communicators are opaque: what one is for is told from its members and from this (layout.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers, sizes

_SAMPLE = 8
"""Iterations that are looked at, from the middle of the log."""

_LIGHT_SHARE = 0.01
"""What carries less of a rank's bytes moves no gradients and no activations."""

_REST = 0.2
"""Share of the time for which gradients are not reduced: a third of a step is its forward pass."""


@dataclass(frozen=True, slots=True)
class CommunicatorUse:
    """One communicator: its ranks (ascending), what runs on it, and how often a rank calls it in an iteration.

    ``in_step`` says whether it belongs to the optimizer step rather than to the passes of microbatches.
    """

    communicator: str
    ranks: tuple[int, ...]
    ops: frozenset[str]
    calls: float
    largest_bytes: int
    in_step: bool

    @property
    def point_to_point(self) -> bool:
        """Whether ranks send to one another on it."""
        return bool(self.ops & {"send", "recv"})


def membership(rank: Ints, communicator: Ints, peer: Ints) -> dict[int, tuple[int, ...]]:
    """Ranks of each communicator (by its code), ascending: those that logged it and their peers on it.

    The arguments have an entry a row of the log; ``peer`` is -1 where there is none.
    """
    met = peer >= 0
    who = np.concatenate([rank, peer[met]])
    what = np.concatenate([communicator, communicator[met]])
    span = int(who.max(initial=0)) + 1
    keys = np.unique(what * span + who)
    found, ranks = keys // span, keys % span
    heads = np.flatnonzero(np.diff(found, prepend=-1))
    return {int(found[h]): tuple(part.tolist()) for h, part in zip(heads, np.split(ranks, heads[1:]), strict=True)}


def communicator_uses(table: pa.Table, members: Mapping[str, tuple[int, ...]]) -> list[CommunicatorUse]:
    """The use of each communicator that a log shows.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order, with iterations.
    """
    log = _Sample.of(table)
    uses = []
    for code, name in enumerate(log.communicators):
        rank = log.example[code]
        if rank >= 0:
            uses.append(log.use(code, rank, members.get(name, (rank,))))
    return uses


@dataclass(frozen=True)
class _Sample:
    """Some iterations of all ranks, as columns; ``example`` is one rank that uses each communicator, -1: none."""

    rank: Ints
    iteration: Ints
    communicator: Ints
    op: Ints
    size: Ints
    phase: Ints
    call_ns: Ints
    done_ns: Ints
    communicators: list[str]
    ops: list[str]
    phases: list[str]
    example: Ints

    @classmethod
    def of(cls, table: pa.Table) -> _Sample:
        iteration = integers(table, "iteration")
        known = np.unique(iteration[iteration >= 0])
        first = max((len(known) - _SAMPLE) // 2, 0)
        table = table.filter(pa.array(np.isin(iteration, known[first : first + _SAMPLE])))
        communicator, communicators = codes(table, "communicator")
        op, ops = codes(table, "op")
        phase, phases = codes(table, "phase")
        rank, call, end = integers(table, "rank"), integers(table, "call_ns"), integers(table, "end_ns")
        example = np.full(len(communicators), -1)
        example[communicator[::-1]] = rank[::-1]
        return cls(
            rank=rank,
            iteration=integers(table, "iteration"),
            communicator=communicator,
            op=op,
            size=sizes(table),
            phase=phase,
            call_ns=call,
            done_ns=np.where(end >= 0, end, call),
            communicators=communicators,
            ops=ops,
            phases=phases,
            example=example,
        )

    def use(self, code: int, rank: int, ranks: tuple[int, ...]) -> CommunicatorUse:
        low, high = np.searchsorted(self.rank, [rank, rank + 1])
        rows = np.arange(low, high)
        own = rows[self.communicator[rows] == code]
        iterations = len(np.unique(self.iteration[rows]))
        return CommunicatorUse(
            communicator=self.communicators[code],
            ranks=ranks,
            ops=frozenset(self.ops[c] for c in np.unique(self.op[own])),
            calls=len(own) / iterations,
            largest_bytes=int(self.size[own].max()),
            in_step=self._in_step(own, rows),
        )

    def _in_step(self, own: Ints, rows: Ints) -> bool:
        """Told by the phases; without them in a pipeline by whether most calls lie before an iteration's first or
        after its last point-to-point operator; else by whether it rests for a good part of each iteration (gradients
        are reduced in the backward pass at the earliest), and longer than the one that rests least.
        """
        passes = [c for c, name in enumerate(self.phases) if name in ("forward", "backward")]
        if (self.phase[own] >= 0).any():
            return bool(np.isin(self.phase[own], passes).mean() < 0.5)
        paired = rows[np.isin(self.op[rows], [c for c, name in enumerate(self.ops) if name in ("send", "recv")])]
        if len(paired):
            last = np.searchsorted(self.iteration[paired], self.iteration[own], side="right") - 1
            first = np.searchsorted(self.iteration[paired], self.iteration[own])
            outside = (own < paired[np.minimum(first, len(paired) - 1)]) | (own > paired[last])
            return bool(outside.mean() > 0.5)
        if len(own) <= len(np.unique(self.iteration[rows])):
            return True
        carried = np.bincount(self.communicator[rows], weights=np.maximum(self.size[rows], 0))
        heavy = np.flatnonzero(carried > _LIGHT_SHARE * carried.sum())
        rests = {int(d): self._rest(rows[self.communicator[rows] == d], rows) for d in heavy}
        rest = self._rest(own, rows)
        least = min(rests.values(), default=rest)
        return rest > _REST + (least if len(rests) > 1 else 0.0)

    def _rest(self, own: Ints, rows: Ints) -> float:
        """Share of the time that one long pause an iteration takes."""
        pause = np.maximum(self.call_ns[own][1:] - self.done_ns[own][:-1], 0)
        iterations = max(len(np.unique(self.iteration[rows])) - 1, 1)
        longest = np.sort(pause)[::-1][:iterations].sum()
        return float(longest / max(int(self.call_ns[rows[-1]] - self.call_ns[rows[0]]), 1))
