"""Sequence numbers for logs that carry none: by iteration and position, as far as lines are not missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.anchors import SILENCE
from diagnosis.arrays import Bools, Ints
from diagnosis.columns import codes, integers, joint_codes, left_ns, nullable, sizes
from diagnosis.lost_lines import Member, place

_FEW = 0.1
"""Share of an iteration's operators that most iterations may lack."""

_OFTEN = 0.05
"""Share of ranks and iterations that have as many operators, where these are all of an iteration's."""


def number_by_position(table: pa.Table, *, inferred: bool = True) -> tuple[pa.Table, int]:
    """The table with ``seq`` on communicators that have none, and how many lines are missing there at least.

    ``table`` has iterations and positions, sorted by rank and call order. Members of a communicator call as many
    operators an iteration; where a rank called another number, lines are missing. Which ones they are is told by what
    ranks call where in other iterations, and by when the other members went on (lost_lines.py); ``iteration`` and
    ``position`` of the others are corrected accordingly. Operators of which nothing tells stay without a number:
    unknown, rather than mistaken for others.
    ``inferred``: the iterations are.
    """
    rows = _Rows.of(table)
    missing = 0
    for code in rows.counted():
        missing += rows.number(code, inferred=inferred)
    for name, values in (("iteration", rows.iteration), ("position", rows.position), ("seq", rows.seq)):
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, nullable(values, values >= 0, field.type))
    return table, missing


@dataclass
class _Rows:
    """Columns of the table, an entry a row; ``iteration``, ``position`` and ``seq`` are filled in."""

    rank: Ints
    communicator: Ints
    iteration: Ints
    position: Ints
    seq: Ints
    call_ns: Ints
    left_ns: Ints
    mark: Ints
    between: Bools

    @classmethod
    def of(cls, table: pa.Table) -> _Rows:
        rank, call_ns, end_ns = (integers(table, name) for name in ("rank", "call_ns", "end_ns"))
        iteration, position, seq = (integers(table, name).copy() for name in ("iteration", "position", "seq"))
        between = pc.is_in(table.column("op").cast(pa.string()), pa.array(["send", "recv"]))
        return cls(
            rank=rank,
            communicator=codes(table, "communicator")[0],
            iteration=iteration,
            position=position,
            seq=seq,
            call_ns=call_ns,
            left_ns=left_ns(rank, call_ns, end_ns),
            mark=_marks(table, rank),
            between=np.asarray(between.to_numpy(), dtype=np.bool_),
        )

    def counted(self) -> list[Ints]:
        """The rows of each communicator without any number."""
        order = np.argsort(self.communicator, kind="stable")
        heads = np.flatnonzero(np.diff(self.communicator[order], prepend=-1))
        parts = [part[self.iteration[part] >= 0] for part in np.split(order, heads[1:])]
        return [part for part in parts if len(part) and (self.seq[part] < 0).all()]

    def _after_hole(self, rank: int) -> bool:
        """Whether a rank's first iteration follows a silence in which anything may have been lost."""
        low, high = np.searchsorted(self.rank, [rank, rank + 1])
        iteration, call_ns = self.iteration[low:high], self.call_ns[low:high]
        first = int((iteration >= 0).argmax())
        if not first:
            return False
        begins_ns = call_ns[first:][np.flatnonzero(np.diff(iteration[first:], prepend=-1) > 0)]
        return bool(call_ns[first] - call_ns[first - 1] > SILENCE * np.median(np.diff(begins_ns)))

    def number(self, rows: Ints, *, inferred: bool) -> int:
        """Number the operators of one communicator as far as that can be told; returns how many lines are missing."""
        groups = joint_codes(self.rank[rows], self.iteration[rows])
        counts = np.bincount(groups)
        usual = _usual(counts)
        heads = np.flatnonzero(np.diff(self.rank[rows], prepend=-1))
        logs = {int(self.rank[own[0]]): own for own in np.split(rows, heads[1:])}
        between = bool(self.between[rows].any())
        missing = _missing([self.iteration[own] for own in logs.values()], None if between else usual)
        falls = any((np.diff(self.iteration[own]) < 0).any() for own in logs.values())  # resumed from a checkpoint
        if falls or between:
            told = rows[(counts == usual)[groups]]
        else:
            told = np.concatenate([*self._placed(logs, usual, inferred=inferred)])
        self.seq[told] = self.iteration[told] * usual + self.position[told]
        return missing

    def _placed(self, logs: Mapping[int, Ints], usual: int, *, inferred: bool) -> Iterator[Ints]:
        """Correct what counting says of operators around holes; yields the rows of each rank that are known then."""
        members = {
            rank: Member(
                self.iteration[own],
                self.call_ns[own],
                self.left_ns[own],
                self.mark[own],
                inferred and self._after_hole(rank),
            )
            for rank, own in logs.items()
        }
        for rank, places in place(members, usual, counted=inferred).items():
            own = logs[rank]
            self.iteration[own], self.position[own] = places.iteration, places.position
            yield own[places.known]


def _marks(table: pa.Table, rank: Ints) -> Ints:
    """What tells operators of a communicator apart, from 1: what is sent, and whether the rank called another
    communicator's just before, as a program does in the same places of each iteration.
    """
    communicator = codes(table, "communicator")[0]
    follows = (np.diff(communicator, prepend=-1) == 0) & (np.diff(rank, prepend=-1) == 0)
    return joint_codes(codes(table, "op")[0], sizes(table), follows.astype(np.int64)) + 1


def _usual(counts: Ints) -> int:
    """How many operators an iteration has, by those of each rank and iteration: most often as many, or a few more
    where lines are lost in most iterations.
    """
    often = np.bincount(counts)
    most_often = usual = int(often.argmax())
    while usual + 1 < min(len(often), (1 + _FEW) * most_often) and often[usual + 1] >= _OFTEN * len(counts):
        usual += 1
    return usual


def _missing(logs: Sequence[Ints], usual: int | None) -> int:
    """Lines that the logs of a communicator's members lack, each without its first and last iteration, which may not be
    whole. ``logs`` are the iterations of their lines.

    An iteration has ``usual`` operators, or as many as any member has where that is fewer; None: each member calls a
    number of its own, as the stages of a pipeline do.
    """
    iterations = np.unique(np.concatenate(logs))
    counts = np.array([np.bincount(np.searchsorted(iterations, own), minlength=len(iterations)) for own in logs])
    missing = 0
    for own, count in zip(logs, counts, strict=True):
        first, last = np.searchsorted(iterations, [own.min(), own.max()])
        inner = slice(int(first) + 1, int(last))
        if usual is None:
            expected = np.full(len(count[inner]), _usual(count[count > 0]))
        else:
            expected = np.minimum(counts.max(axis=0), usual)[inner]
        missing += max(int((expected - count[inner]).sum()), 0)
    return missing
