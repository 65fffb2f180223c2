"""Who is slow from a job's first iteration on, told by comparing like ranks (a step beyond Holmes 4.2).

Before anything is usual, what a rank does can only be held against what others do that run the same program. All ranks
of an iteration take as long; who computes for longer is in operators for less of it, as it waits for nobody. A slow
channel keeps all of its members in its operators, also the one that waits least.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job
from diagnosis.operators import POINT_TO_POINT, UNKNOWN, Bools, Ints, ints
from diagnosis.topology import Device

_MATERIAL = 0.25
"""Of a channel's excess a member's other channels show as much at least if they are slow because of it."""

_COMPARABLE = 0.5
"""A member whose other channels lose less than this part of what the worst member's do is no suspect beside it."""


_FEW_LOST = 0.05
"""Of a rank's operators; with more of them lost, what it says of itself is not what it did."""


@dataclass(frozen=True, slots=True)
class LikeRanksSettings:
    """Of a job's first iterations, ``warm_up`` left out, so many (``iterations``; 0: none) are compared, and those
    after them for as long as somebody is slow: who is in ``in_a_row`` of them.

    Slow is what makes an iteration longer than ``delta`` times what it would take otherwise, and is no chance
    (``sigmas`` by the median distance from the median). Beside the slowest those count that lose ``comparable`` of what
    it does; of ranks that are alike at most ``most_share`` may, or one: what many share is nobody's fault. An iteration
    of which fewer than ``least_told`` of the ranks told is not compared, nor are jobs of more than ``most_ranks``.
    """

    warm_up: int = 5
    iterations: int = 5
    in_a_row: int = 3
    delta: float = 1.1
    sigmas: float = 3.0
    comparable: float = 0.75
    most_share: float = 0.1
    least_told: float = 0.5
    most_ranks: int = 16_384


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that are slower than those like them; with ``candidates`` (sets) it cannot be told which of these is.

    ``excess_ns`` is what it costs the iteration.
    """

    cause: str
    level: str
    ranks: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]
    devices: tuple[Device, ...]
    communicator: str | None
    excess_ns: int


@dataclass
class Told:
    """What the ranks have told of one iteration so far; a rank with an unknown time, or of which more than a few lines
    are lost, has told nothing.

    Of each rank how long the iteration was (``span``), how much of that it was in no operator (``alone``) and in no
    collective (``apart``), in ns, and which of the ``programs`` it runs (``program``). Of each communicator for how
    long who waited least was in its collectives, how many members told, and what its operators are, as far as anybody
    saw (``kind``: how many and which).
    """

    span: dict[int, int] = field(default_factory=dict)
    alone: dict[int, int] = field(default_factory=dict)
    apart: dict[int, int] = field(default_factory=dict)
    program: dict[int, int] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    kind: dict[str, tuple[int, str]] = field(default_factory=dict)

    def take(self, summaries: pa.RecordBatch, job: Job) -> None:
        """Take in rows of telemetry.iteration_summaries, all of one iteration; ranks that told already are left out."""
        rows = summaries.filter(pc.and_(pc.is_valid(summaries["end_ns"]), pc.is_valid(summaries["by_operator"])))
        spent = _Spent.of(rows)
        rank, span = ints(rows, "rank"), ints(rows, "end_ns") - ints(rows, "start_ns")
        new = np.array([one in job.place and one not in self.span for one in rank.tolist()], dtype=np.bool_)
        told = np.flatnonzero(new & spent.known & (span > 0)).tolist()
        shapes = {at: self._channels(spent, at, job) for at in told}
        for at in told:
            who = int(rank[at])
            self.span[who] = int(span[at])
            self.alone[who] = int(span[at] - spent.in_operators[at])
            self.apart[who] = int(span[at] - spent.in_collectives[at])
            program = "; ".join([str(spent.operators[at]), *sorted(shapes[at])])
            self.program[who] = self.programs.setdefault(program, len(self.programs))

    def _channels(self, spent: _Spent, at: int, job: Job) -> list[str]:
        """Take in what a row says of communicators; returns what these are to its rank, by whatever name."""
        shapes = []
        for part in spent.parts[at]:
            shapes.append(f"{_shape(job, part.communicator)} {' '.join(sorted(part.ops))}")
            kind = sum(part.ops.values()), ", ".join(f"{op} {times}" for op, times in sorted(part.ops.items()))
            self.kind[part.communicator] = max(kind, self.kind.get(part.communicator, kind))
            if part.ops.keys() - set(POINT_TO_POINT):
                least = self.least.get(part.communicator, part.in_collectives)
                self.least[part.communicator] = min(part.in_collectives, least)
                self.members[part.communicator] = self.members.get(part.communicator, 0) + 1
        return shapes

    def to_state(self) -> dict[str, Any]:
        """A form that JSON can carry."""
        return {of.name: list(getattr(self, of.name).items()) for of in fields(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """What ``to_state`` described."""
        told = cls(**{name: dict(items) for name, items in state.items()})
        told.kind = {name: (count, what) for name, (count, what) in told.kind.items()}
        return told


@dataclass
class _Part:
    """What a rank did on one communicator: how many operators of each name, and how long its collectives took (ns)."""

    communicator: str
    ops: dict[str, int] = field(default_factory=dict)
    in_collectives: int = 0


@dataclass(frozen=True, slots=True)
class _Spent:
    """What ranks spent in operators in one iteration, in ns, a row a rank; arrays of shape (ranks,).

    ``operators`` counts lost ones as well, which are taken to have lasted as long as the others. Of ranks that are not
    ``known`` a duration is unknown, or too much is lost.
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
        took = (duration * (1.0 + lost / np.maximum(seen, 1))[row]).astype(np.int64)
        together = np.array([name not in POINT_TO_POINT for name in op], dtype=np.bool_)
        parts: list[dict[str, _Part]] = [{} for _ in seen]
        told = listed["communicator"].to_pylist(), op, ints(listed, "count").tolist(), (took * together).tolist()
        for at, name, what, times, ns in zip(row.tolist(), *told, strict=True):
            part = parts[at].setdefault(name, _Part(name))
            part.ops[what] = times
            part.in_collectives += ns
        return cls(
            known=(np.bincount(row[duration == UNKNOWN], minlength=len(seen)) == 0) & (lost <= _FEW_LOST * seen),
            operators=seen + lost,
            in_operators=np.bincount(row, weights=took, minlength=len(seen)).astype(np.int64),
            in_collectives=np.bincount(row, weights=took * together, minlength=len(seen)).astype(np.int64),
            parts=[list(of.values()) for of in parts],
        )


def _shape(job: Job, communicator: str) -> str:
    """How many members a communicator has, and over what they communicate."""
    size = len(job.members.get(communicator, ()))
    return f"{size} local" if communicator in job.within_hosts else str(size)


def slower_than_alike(told: Told, job: Job, settings: LikeRanksSettings) -> tuple[Slow, ...]:
    """Who makes the iteration longer than it would be if like ranks were alike; those that cost most first."""
    if not told.span or not settings.least_told * len(job.ranks) <= len(told.span):
        return ()
    whole_ns = int(np.median(list(told.span.values())))
    least_ns = whole_ns * (1.0 - 1.0 / settings.delta)
    found = [*_computing(told, job, settings, least_ns), *_transferring(told, job, settings, least_ns)]
    # operators that overlap count several times
    found = [replace(slow, excess_ns=min(slow.excess_ns, whole_ns)) for slow in found]
    most = max((slow.excess_ns for slow in found), default=0)
    kept = [slow for slow in found if slow.excess_ns >= settings.comparable * most]
    return tuple(sorted(kept, key=lambda slow: (-slow.excess_ns, slow.ranks)))


def _computing(told: Told, job: Job, settings: LikeRanksSettings, least_ns: float) -> Iterator[Slow]:
    """Ranks that are out of operators for longer than those that run the same program on the same pipeline stage.

    Who waits for its pipeline's neighbour is out of collectives for longer as well, and less out of all operators:
    whoever computes for longer is for longer out of both.
    """
    slow: dict[int, int] = {}
    alike: dict[tuple[int | None, int], list[int]] = {}
    for rank, program in told.program.items():
        alike.setdefault((_stage(job, [rank]), program), []).append(rank)
    for ranks in alike.values():
        excess = np.minimum(
            *(_excess(np.array([of[rank] for rank in ranks]), settings) for of in (told.alone, told.apart))
        )
        beyond = {rank: int(by) for rank, by in zip(ranks, excess, strict=True) if by >= least_ns}
        slow |= beyond if _few(len(beyond), len(ranks), job, beyond, settings) else {}
    most = max(slow.values(), default=0)
    slow = {rank: by for rank, by in slow.items() if by >= settings.comparable * most}
    hosts = {job.clock(rank) for rank in slow}
    if len(slow) > 1 and len(hosts) == 1 and set(job.ranks_beside(min(slow))) & told.span.keys() == slow.keys():
        of_host = tuple(sorted(slow))
        yield Slow("host_slow", "machine", of_host, (), (job.cpu(of_host[0]),), None, most)
        return
    for rank, by in slow.items():
        yield Slow("compute_slow", "device", (rank,), (), (job.gpu(rank),), None, by)


def _few(slow: int, alike: int, job: Job, ranks: Collection[int], settings: LikeRanksSettings) -> bool:
    """Whether few enough of those alike are slow: one of them, a small share, or one host's."""
    return slow <= max(1, settings.most_share * alike) or (2 * slow <= alike and job.on_one_host(ranks))


def _transferring(told: Told, job: Job, settings: LikeRanksSettings, least_ns: float) -> Iterator[Slow]:
    """The communicator whose collectives keep all of its members for longer than those like it keep theirs, or the
    one member of it whose other communicators are slow as well.
    """
    alike: dict[tuple[int | None, str], list[str]] = {}
    for name, count in told.members.items():
        members = job.members.get(name, ())
        if len(members) > 1 and count == len(members):
            alike.setdefault((_stage(job, members), f"{_shape(job, name)} {told.kind[name][1]}"), []).append(name)
    excess: dict[str, float] = {}
    for names in alike.values():
        if len(names) > 1:
            beyond = _excess(np.array([told.least[name] for name in names]), settings)
            excess |= dict(zip(names, beyond.tolist(), strict=True))
    slow = {name: by for name, by in excess.items() if by >= least_ns}
    if not slow:
        return
    worst = max(slow, key=slow.__getitem__)
    members = job.members[worst]
    beside = {rank: sum(excess.get(name, 0.0) for name in _others(job, rank, worst)) for rank in members}
    most = max(beside.values())
    at_fault = [rank for rank, by in beside.items() if by >= max(_COMPARABLE * most, _MATERIAL * slow[worst])]
    ranks = tuple(at_fault) if len(at_fault) == 1 else members
    candidates = () if len(ranks) == 1 else tuple((rank,) for rank in ranks)
    level = "device" if len(ranks) == 1 else "group"
    devices = job.carriers(members, ranks)
    yield Slow("communication_slow", level, ranks, candidates, devices, worst, int(slow[worst]))


def _others(job: Job, rank: int, communicator: str) -> list[str]:
    """The rank's other communicators over the same medium, but for those of all of the communicator's members."""
    members = job.members[communicator]
    local = communicator in job.within_hosts
    return [
        name
        for name in job.communicators_of.get(rank, ())
        if (name in job.within_hosts) == local and not set(members) <= set(job.members[name])
    ]


def _stage(job: Job, ranks: Collection[int]) -> int | None:
    """The pipeline stage that ranks share; None where they do not, or it is not known."""
    stages = {job.layout.pipeline_stage(rank) if job.layout else None for rank in ranks}
    return stages.pop() if len(stages) == 1 else None


def _excess(values: Ints, settings: LikeRanksSettings) -> Ints:
    """By how much each value (shape (n,), ns) is beyond the median, 0 where that is chance.

    Of two the lesser is the median, since one of two that are slow is slower than the other.
    """
    usual = _median(values)
    sigma = 1.4826 * _median(np.abs(values - usual))
    return np.where(values - usual > settings.sigmas * sigma, values - usual, 0)


def _median(values: Ints) -> int:
    return int(np.sort(values)[(len(values) - 1) // 2])
