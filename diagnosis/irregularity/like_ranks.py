"""Who is slow from a job's first iteration on, told by comparing like ranks (a step beyond Holmes 4.2).

Before anything is usual, what a rank does can only be held against what others do that run the same program. All ranks
of an iteration take as long; who computes for longer is in operators for less of it, as it waits for nobody. A slow
channel keeps all of its members in its operators, also the one that waits least.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import NamedTuple, TypeVar

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.causes import Cause, Level
from diagnosis.irregularity.summaries import Summaries, shape
from diagnosis.job import Job
from diagnosis.robust import NORMAL_MAD
from diagnosis.topology import Device

_MATERIAL = 0.25
"""Of a channel's excess a member's other channels show as much at least if they are slow because of it."""

_COMPARABLE = 0.5
"""A member whose other channels lose less than this part of what the worst member's do is no suspect beside it."""

_Key = TypeVar("_Key", int, str)

_SPANNING = -1
"""Where a stage would stand, of ranks of several stages."""


@dataclass(frozen=True, slots=True)
class LikeRanksSettings:
    """When a rank or a channel is slow beside those like it, as a job begins and nothing is usual yet (a step beyond
    Holmes 4.2)."""

    warm_up: int = 5
    """Number of iterations at the start of a job that are not compared."""
    iterations: int = 5
    """Number of iterations that are compared after those, and beyond them for as long as somebody is slow; 0 turns the
    comparison off."""
    in_a_row: int = field(default=3, metadata={"least": 1})
    """Number of iterations in a row in which a rank or channel must be slow to be named (``iterations``, if that is
    more, where only two are alike), and must not be slow for that to be over."""
    delta: float = field(default=1.1, metadata={"above": 1})
    """A rank or channel is slow if it makes the iteration take at least ``delta`` times what it would otherwise; a
    lower value finds smaller slowdowns, and takes more noise for one."""
    sigmas: float = 3.0
    """Number of standard deviations (estimated from the median distance to the median) by which what it loses must
    exceed the median of those alike."""
    comparable: float = 0.75
    """Part of the largest loss that another rank or channel must have to be named beside it."""
    most_share: float = 0.1
    """Largest part of those alike that may be slow: what more of them share is nobody's fault, unless it is a single
    one, or all ranks of a host."""
    least_told: float = 0.5
    """Part of a job's ranks that must have told of an iteration for it to be compared."""
    most_ranks: int = 16_384
    """Jobs of more ranks than this are not compared."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that are slower than those like them; with ``candidates`` (sets) it cannot be told which of these is.

    ``excess_ns`` is what it costs the iteration, ``alike`` how many were compared.
    """

    cause: Cause
    level: Level
    ranks: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]
    devices: tuple[Device, ...]
    communicator: str | None
    excess_ns: int
    alike: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Who is slow, what costs most first; ``ranks`` and ``communicators`` had others to be compared with."""

    slow: tuple[Slow, ...]
    ranks: frozenset[int]
    communicators: frozenset[str]


class _Beyond(NamedTuple):
    """By how much (ns) one is beyond those like it, 0: not; how many these are, itself included, and which group."""

    ns: int
    alike: int
    group: int


def compare(summaries: Summaries, job: Job, settings: LikeRanksSettings) -> Comparison | None:
    """Who makes the iteration longer than it would be if like ranks were alike; None where too few told."""
    if not summaries.ranks or len(summaries.ranks) < settings.least_told * len(job.ranks):
        return None
    whole_ns = int(np.median([rank.span_ns for rank in summaries.ranks.values()]))
    least_ns = whole_ns * (1.0 - 1.0 / settings.delta)
    ranks, channels = _ranks_beyond(summaries, job, settings), _channels_beyond(summaries, job, settings)
    found = [*_computing(ranks, summaries, job, settings, least_ns), *_transferring(channels, job, settings, least_ns)]
    # operators that overlap count several times
    found = [replace(slow, excess_ns=min(slow.excess_ns, whole_ns)) for slow in found]
    most = max((slow.excess_ns for slow in found), default=0)
    kept = [slow for slow in found if slow.excess_ns >= settings.comparable * most]
    kept.sort(key=lambda slow: (-slow.excess_ns, slow.ranks))
    return Comparison(tuple(kept), frozenset(ranks), frozenset(channels))


def _ranks_beyond(summaries: Summaries, job: Job, settings: LikeRanksSettings) -> dict[int, _Beyond]:
    """By how much longer ranks are out of operators than those that run the same program on their pipeline stage.

    Who waits for its pipeline's neighbour is out of collectives for longer as well, and less out of all operators:
    whoever computes for longer is for longer out of both. Ranks of a pipeline of which nobody knows the stages are left
    out: one stage has more to compute than another.
    """
    alike: dict[tuple[int | None, int], list[int]] = {}
    for rank, of in summaries.ranks.items():
        stage = _stage(job, [rank])
        if stage is not None or not of.pipelined:
            alike.setdefault((stage, of.program), []).append(rank)
    beyond: dict[int, _Beyond] = {}
    for group, ranks in enumerate(alike.values()):
        if len(ranks) > 1:
            of_group = [summaries.ranks[rank] for rank in ranks]
            alone = _excess(np.array([of.alone_ns for of in of_group]), settings)
            apart = _excess(np.array([of.apart_ns for of in of_group]), settings)
            by = zip(ranks, np.minimum(alone, apart).tolist(), strict=True)
            beyond |= {rank: _Beyond(ns, len(ranks), group) for rank, ns in by}
    return beyond


def _computing(
    beyond: Mapping[int, _Beyond], summaries: Summaries, job: Job, settings: LikeRanksSettings, least_ns: float
) -> Iterator[Slow]:
    """Ranks that compute for longer than those like them; all of a host's: its CPUs."""
    for ranks in _worst(beyond, settings, least_ns):
        most, alike = max(beyond[rank].ns for rank in ranks), beyond[ranks[0]].alike
        beside = summaries.ranks.keys() & set(job.ranks_beside(ranks[0]))
        if 1 < len(ranks) <= alike / 2 and beside == set(ranks):
            yield Slow("host_slow", "machine", ranks, (), (job.cpu(ranks[0]),), None, most, alike)
        elif len(ranks) <= max(1, settings.most_share * alike):
            for rank in ranks:
                yield Slow("compute_slow", "device", (rank,), (), (job.gpu(rank),), None, beyond[rank].ns, alike)


def _channels_beyond(summaries: Summaries, job: Job, settings: LikeRanksSettings) -> dict[str, _Beyond]:
    """By how much longer collectives keep all members of a communicator than those of others like it: with the same
    operators, as many members, and on the same pipeline stage.

    Two of the same members are not alike, or there would be one; those of pipelines without known stages may not be.
    """
    alike: dict[tuple[int | None, str], list[str]] = {}
    for name, of in summaries.channels.items():
        members = job.members.get(name, ())
        stage = _stage(job, members)
        known = stage is not None or not any(
            summaries.ranks[rank].pipelined for rank in members if rank in summaries.ranks
        )
        if 1 < len(members) == of.members and known:
            alike.setdefault((stage, f"{shape(job, name)} {of.kind}"), []).append(name)
    beyond: dict[str, _Beyond] = {}
    for group, names in enumerate(alike.values()):
        if len(names) > 1 and len({frozenset(job.members[name]) for name in names}) == len(names):
            by = _excess(np.array([summaries.channels[name].least_ns for name in names]), settings)
            beyond |= {name: _Beyond(ns, len(names), group) for name, ns in zip(names, by.tolist(), strict=True)}
    return beyond


def _transferring(
    beyond: Mapping[str, _Beyond], job: Job, settings: LikeRanksSettings, least_ns: float
) -> Iterator[Slow]:
    """The worst of the slow channels, or the one member of it whose other channels are slow as well."""
    slow = [
        name
        for names in _worst(beyond, settings, least_ns)
        if len(names) <= max(1, settings.most_share * beyond[names[0]].alike)
        for name in names
    ]
    if not slow:
        return
    worst = max(slow, key=lambda name: beyond[name].ns)
    members, (excess_ns, alike, _) = job.members[worst], beyond[worst]
    beside = {rank: sum(beyond[name].ns for name in _others(job, rank, worst) if name in beyond) for rank in members}
    least = max(_COMPARABLE * max(beside.values()), _MATERIAL * excess_ns)
    at_fault = tuple(rank for rank, by in beside.items() if by >= least)
    ranks = at_fault if len(at_fault) == 1 else members
    candidates = () if len(ranks) == 1 else tuple((rank,) for rank in ranks)
    level: Level = "device" if len(ranks) == 1 else "group"
    devices = job.carriers(members, ranks)
    yield Slow("communication_slow", level, ranks, candidates, devices, worst, excess_ns, alike)


def _worst(beyond: Mapping[_Key, _Beyond], settings: LikeRanksSettings, least_ns: float) -> list[tuple[_Key, ...]]:
    """Those that lose enough, and nearly as much as the worst of all, by group."""
    most = max((of.ns for of in beyond.values()), default=0)
    groups: dict[int, list[_Key]] = {}
    for one, of in beyond.items():
        if of.ns >= max(least_ns, settings.comparable * most):
            groups.setdefault(of.group, []).append(one)
    return [tuple(sorted(group)) for group in groups.values()]


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
    """The pipeline stage of ranks, ``_SPANNING`` where they are of several; None where nobody knows."""
    if job.layout is None or job.layout.world is None:
        return None
    stages = {job.layout.pipeline_stage(rank) for rank in ranks}
    return (stages.pop() if stages else None) if len(stages) < 2 else _SPANNING


def _excess(values: Ints, settings: LikeRanksSettings) -> Ints:
    """By how much each value (shape (n,), ns) is beyond the median, 0 where that is chance.

    Of two the lesser is the median, since one of two that are slow is slower than the other.
    """
    usual = median_low(values.tolist())
    sigma = NORMAL_MAD * median_low(np.abs(values - usual).tolist())
    return np.where(values - usual > settings.sigmas * sigma, values - usual, 0)
