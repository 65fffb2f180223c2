"""A communication that takes longer though nobody sends for longer: hosts and fabrics (Pulse 6.2, 9).

Proxy threads move the data between GPUs and NICs. Where a CPU delays them, the operators of its host last longer, but
starts and actual times stay as they were; that rules out the network. Silences spread over the whole group, so that
the evidence reaches no further than to it. Where the actual time of all ranks has grown alike, the network is slow
for all of them.

A step beyond the paper: a send between two ranks waits for no third. So where ranks send to each other as well, there
are silences in the sends of the slow host alone, which tell which of the group it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from diagnosis.collective.grid import ComparisonRules, Grid, Usual, kind_of
from diagnosis.collective.participation import COMPLETE, UNKNOWN, Participation
from diagnosis.collective.stragglers import extended
from diagnosis.collective.verdict import BESIDE, Cause, Verdict
from diagnosis.job import Job

_LEAST_HOSTS = 3
"""Hosts of which one can be told from the others."""

_SILENT = 0.01
"""Share of its sends' time in which a slow host is silent at least. It is ``BESIDE`` times that of any other host."""


def slow_groups(
    grids: Sequence[Grid], table: Participation, job: Job, rules: ComparisonRules, usual: Usual | None = None
) -> list[Verdict]:
    """Groups whose built-in collectives last longer though no rank is a straggler and none begins late.

    Longer than usual where that is known, else than in the parallel groups that run the same operator. Groups of one
    cause are one answer. Of a group that is not seen whole nothing is said: it may be who is not seen that all wait
    for.
    """
    by_cause: dict[Cause, list[tuple[Grid, float, float]]] = {}
    for grid in grids:
        if set(job.members.get(grid.communicator, ())) - set(grid.rank.tolist()):
            continue
        longer, active = _excess(grid, grids, rules, usual)
        if longer >= rules.longer:
            # of what the duration has gained, sending takes the smaller part, or all but that
            cause: Cause = "communication_slow" if 2 * (active - 1) >= longer - 1 else "host_slow"
            by_cause.setdefault(cause, []).append((grid, longer, active))
    found = [_of_groups(cause, slow, job) for cause, slow in sorted(by_cause.items())]
    return [_on_its_host(verdict, table, job) if verdict.cause == "host_slow" else verdict for verdict in found]


def _on_its_host(verdict: Verdict, table: Participation, job: Job) -> Verdict:
    """A verdict on a group, or on the only host of it in whose sends there are silences."""
    silent: dict[str, list[float]] = {}
    for rank in verdict.ranks:
        own = (table.rank == rank) & table.direct & (table.state == COMPLETE) & (table.duration_ns > 0)
        if own.any():
            each = np.sort(1.0 - table.actual_time_ns[own] / table.duration_ns[own])
            # some wait long for receivers that are not ready
            silent.setdefault(job.clock(rank), []).append(float(np.mean(each[: max(3 * len(each) // 4, 1)])))
    share = {host: median(of_ranks) for host, of_ranks in silent.items()}
    worst = max(share, key=lambda host: share[host], default="")
    others = [of_host for host, of_host in share.items() if host != worst]
    if len(others) + 1 < _LEAST_HOSTS or share[worst] < max(_SILENT, BESIDE * max(others)):
        return verdict
    ranks = tuple(rank for rank in verdict.ranks if job.clock(rank) == worst)
    evidence = {**verdict.evidence, "silent_share": share[worst], "others": max(others)}
    return replace(verdict, level="machine", ranks=ranks, method="silences_of_sends", evidence=evidence)


def _of_groups(cause: Cause, slow: Sequence[tuple[Grid, float, float]], job: Job) -> Verdict:
    """Where hosts are slow, those of all members: which of their ranks show it changes with the iterations."""
    worst, longer, active = max(slow, key=lambda one: one[1])
    ranks = {int(rank) for grid, *_ in slow for rank in grid.rank}
    if cause == "host_slow":
        ranks = {beside for rank in ranks for beside in job.ranks_beside(rank)}
    return Verdict(
        cause=cause,
        level="group",
        ranks=tuple(sorted(ranks)),
        method="duration",
        communicator=worst.communicator,
        evidence={"duration_ratio": longer, "actual_time_ratio": active, "groups": float(len(slow))},
        coverage=min(grid.coverage for grid, *_ in slow),
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
