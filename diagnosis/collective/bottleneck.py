"""A communication that takes longer though nobody sends for longer: hosts and fabrics (Pulse 6.2, 9).

Proxy threads move the data between GPUs and NICs. Where a CPU delays them, the operators of its host last longer, but
starts and actual times stay as they were; that rules out the network. Silences spread over the whole group, so that
the evidence reaches no further than to it (``silent_sends`` goes on from there). Where the actual time of all ranks has
grown alike, the network is slow for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from diagnosis.causes import Cause
from diagnosis.collective.grid import ComparisonRules, Grid, Usual, kind_of
from diagnosis.collective.participation import UNKNOWN
from diagnosis.collective.stragglers import extended
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job

_SENDING = 0.25
"""Part of what a duration has gained from which on it is sending that takes longer. Where a CPU delays proxies it is
less than a sixth, where a NIC's rate goes up and down, so that it is no straggler each time, more than a third."""


def slow_groups(grids: Sequence[Grid], job: Job, rules: ComparisonRules, usual: Usual | None = None) -> list[Verdict]:
    """Groups whose built-in collectives last longer though no rank is a straggler and none begins late.

    Longer than usual where that is known, else than in the parallel groups that run the same operator. Groups of one
    cause are one answer; where others seem to have another, it is the one that has grown most which tells. Of a group
    that is not seen whole nothing is said alone: it may be who is not seen that all wait for. But it belongs to others
    that are slow.
    """
    whole: dict[Cause, list[_Slow]] = {}
    in_part: dict[Cause, list[_Slow]] = {}
    for grid in grids:
        longer, active = _excess(grid, grids, rules, usual)
        if longer >= rules.longer:
            members = job.members.get(grid.communicator, tuple(grid.rank.tolist()))
            cause: Cause = "communication_slow" if active - 1 >= _SENDING * (longer - 1) else "host_slow"
            seen = whole if set(members) <= set(grid.rank.tolist()) else in_part
            seen.setdefault(cause, []).append(_Slow(grid, members, longer, active))
    if not whole:
        return []
    plainest = max(whole, key=lambda cause: max(one.longer for one in whole[cause]))
    return [_of_groups(plainest, whole[plainest], in_part.get(plainest, ()), job)]


class _Slow(NamedTuple):
    """A group that lasts longer, by its duration and its actual time over what is usual."""

    grid: Grid
    members: Sequence[int]
    longer: float
    active: float

    @property
    def coverage(self) -> float:
        """Share of its members' rows whose telemetry was there."""
        seen = self.grid.rank.tolist()
        return self.grid.coverage * len(seen) / max(len({*self.members, *seen}), 1)


def _of_groups(cause: Cause, whole: Sequence[_Slow], in_part: Sequence[_Slow], job: Job) -> Verdict:
    """Where hosts are slow, those of all members, each a candidate: which of their ranks show it changes with the
    iterations."""
    worst, slow = max(whole, key=lambda one: one.longer), [*whole, *in_part]
    ranks = {rank for one in slow for rank in one.members}
    hosts: set[tuple[int, ...]] = set()
    if cause == "host_slow":
        hosts = {job.ranks_beside(rank) for rank in ranks}
        ranks = {rank for host in hosts for rank in host}
    return Verdict(
        cause=cause,
        level="group",
        ranks=tuple(sorted(ranks)),
        method="duration",
        communicator=worst.grid.communicator,
        candidates=tuple(sorted(hosts)) if len(hosts) > 1 else (),
        evidence={"duration_ratio": worst.longer, "actual_time_ratio": worst.active, "groups": float(len(slow))},
        coverage=min(one.coverage for one in slow),
    )


def _excess(grid: Grid, grids: Sequence[Grid], rules: ComparisonRules, usual: Usual | None) -> tuple[float, float]:
    """Duration and actual time of a group's collectives over what is usual; 1 where nothing can be said."""
    whole = (grid.row != UNKNOWN).all(axis=0)
    own = grid.choose(grid.complete & whole & ~grid.custom & extended(grid, rules, usual))
    if not len(own.instance) or len(own.rank) < 2:
        return 1.0, 1.0
    usual = usual or Usual.of([other for other in grids if other is not grid])
    ratios = []
    for at in range(len(own.instance)):
        kind = kind_of(own, at)
        alike = [kind] if kind in usual.duration else [other for other in usual.duration if other[1:] == kind[1:]]
        if alike:
            duration, active = (median(of[k] for k in alike) for of in (usual.duration, usual.actual))
            # who begins late waits least: the others last longer because of it
            own_duration, own_active = float(np.nanmin(own.duration[:, at])), float(np.nanmedian(own.actual[:, at]))
            ratios.append((own_duration / max(duration, 1.0), own_active / max(active, 1.0)))
    if not ratios:
        return 1.0, 1.0
    return median(duration for duration, _ in ratios), median(active for _, active in ratios)
