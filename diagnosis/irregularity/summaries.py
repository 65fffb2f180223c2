"""What the ranks of a job tell of one iteration in their summaries, as far as comparing them needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.job import Job
from diagnosis.operators import POINT_TO_POINT, UNKNOWN, ints

_FEW_LOST = 0.05
"""Of a rank's operators; with more of them lost, what it says of itself is not what it did."""

_MOST_NS = 1 << 55
"""A year and more: a rank that is told to have been in operators for longer has a broken clock."""


class RankSummary(NamedTuple):
    """How long an iteration was on a rank, how much of that it was in no operator (``alone_ns``) and in no collective
    (``apart_ns``), which of the programs it runs, and whether it sends and receives (``pipelined``).
    """

    span_ns: int
    alone_ns: int
    apart_ns: int
    program: int
    pipelined: bool


class ChannelSummary(NamedTuple):
    """For how long the member of a communicator that waited least was in its collectives, how many members told, and
    what its operators are, as far as anybody saw: how many, and which.
    """

    least_ns: int
    members: int
    operators: int
    kind: str

    def joined(self, other: ChannelSummary) -> ChannelSummary:
        """What both tell together."""
        operators, kind = max(self[2:], other[2:])
        return ChannelSummary(min(self.least_ns, other.least_ns), self.members + other.members, operators, kind)


@dataclass
class Summaries:
    """What has been told of one iteration so far. Of a rank with an unknown time, or of which more than a few lines are
    lost, nothing is known: such are ``unknown``.
    """

    ranks: dict[int, RankSummary] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    channels: dict[str, ChannelSummary] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)

    @property
    def heard(self) -> int:
        """How many ranks have told anything."""
        return len(self.ranks) + len(self.unknown)

    def take(self, batch: pa.RecordBatch, job: Job) -> None:
        """Take in rows of telemetry.iteration_summaries, all of one iteration; ranks that told already are left out."""
        rows = batch.filter(pc.and_(pc.is_valid(batch["end_ns"]), pc.is_valid(batch["by_operator"])))
        spent = _Spent.of(rows)
        span = ints(rows, "end_ns") - ints(rows, "start_ns")
        for at, rank in enumerate(ints(rows, "rank").tolist()):
            told_before = rank in self.ranks or rank in self.unknown
            if told_before or rank not in job.place or not spent.known[at] or span[at] <= 0:
                continue
            shapes = []
            for part in spent.parts[at]:
                shapes.append(f"{shape(job, part.communicator)} {' '.join(sorted(part.ops))}")
                if part.collective:
                    known, told = self.channels.get(part.communicator), part.told()
                    self.channels[part.communicator] = told if known is None else known.joined(told)
            program = "; ".join([str(spent.operators[at]), *sorted(shapes)])
            self.ranks[rank] = RankSummary(
                int(span[at]),
                int(span[at] - spent.in_operators[at]),
                int(span[at] - spent.in_collectives[at]),
                self.programs.setdefault(program, len(self.programs)),
                any(part.ops.keys() & set(POINT_TO_POINT) for part in spent.parts[at]),
            )
        self.unknown |= set(ints(batch, "rank").tolist()) & job.place.keys() - self.ranks.keys()

    def to_state(self) -> dict[str, Any]:
        """A form that JSON can carry."""
        return {
            "ranks": list(self.ranks.items()),
            "unknown": sorted(self.unknown),
            "channels": list(self.channels.items()),
            "programs": list(self.programs),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """What ``to_state`` described."""
        return cls(
            {rank: RankSummary(*told) for rank, told in state["ranks"]},
            set(state["unknown"]),
            {name: ChannelSummary(*told) for name, told in state["channels"]},
            {program: number for number, program in enumerate(state["programs"])},
        )


def shape(job: Job, communicator: str) -> str:
    """How many members a communicator has, and over what they communicate."""
    size = len(job.members.get(communicator, ()))
    return f"{size} local" if communicator in job.within_hosts else str(size)


@dataclass
class _Part:
    """What a rank did on one communicator: how many operators of each name, and how long its collectives took (ns)."""

    communicator: str
    ops: dict[str, int] = field(default_factory=dict)
    in_collectives_ns: int = 0

    @property
    def collective(self) -> bool:
        """Whether there are collectives among them."""
        return bool(self.ops.keys() - set(POINT_TO_POINT))

    def told(self) -> ChannelSummary:
        """What that says of the communicator."""
        kind = ", ".join(f"{op} {times}" for op, times in sorted(self.ops.items()))
        return ChannelSummary(self.in_collectives_ns, 1, sum(self.ops.values()), kind)


@dataclass(frozen=True, slots=True)
class _Spent:
    """What ranks spent in operators in one iteration, in ns, a row a rank; arrays of shape (ranks,).

    ``operators`` counts lost ones as well, which are taken to have lasted as long as the others. Of ranks that are not
    ``known`` a duration is unknown, or they are longer than can be, or too much is lost.
    """

    known: Bools
    operators: Ints
    in_operators: Ints
    in_collectives: Ints
    parts: list[list[_Part]]

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Self:
        """Of rows of telemetry.iteration_summaries."""
        seen, lost = ints(rows, "operators"), ints(rows, "lost_lines")
        row = pc.list_parent_indices(rows["by_operator"]).to_numpy().astype(np.int64)
        listed = pa.RecordBatch.from_struct_array(pc.list_flatten(rows["by_operator"]))
        duration, op = ints(listed, "duration_sum_ns"), listed["op"].to_pylist()
        took = _whole_ns(duration * (1.0 + lost / np.maximum(seen, 1))[row])
        together = np.array([name not in POINT_TO_POINT for name in op], dtype=np.bool_)
        parts: list[dict[str, _Part]] = [{} for _ in seen]
        told = listed["communicator"].to_pylist(), op, ints(listed, "count").tolist(), (took * together).tolist()
        for at, name, what, times, ns in zip(row.tolist(), *told, strict=True):
            part = parts[at].setdefault(name, _Part(name))
            part.ops[what] = times
            part.in_collectives_ns += ns
        in_operators = np.bincount(row, weights=took, minlength=len(seen))
        told_all = np.bincount(row[duration == UNKNOWN], minlength=len(seen)) == 0
        return cls(
            known=told_all & (in_operators < _MOST_NS) & (lost <= _FEW_LOST * seen),
            operators=seen + lost,
            in_operators=_whole_ns(in_operators),
            in_collectives=_whole_ns(np.bincount(row, weights=took * together, minlength=len(seen))),
            parts=[list(of.values()) for of in parts],
        )


def _whole_ns(ns: Floats | Ints) -> Ints:
    """Whole nanoseconds, at most so many that differences of them fit in 64 bits."""
    return np.clip(ns, -_MOST_NS, _MOST_NS).astype(np.int64)
