"""From what ranks did in an iteration to who is at fault: the order of the rules (Pulse 6.2, 7.2.1).

Computation comes first, pipelines before groups: what a slow computation delays looks like slow communication. Then
the communication itself, and last what only the group shows. Starts that are late by less than what communication has
lost do not count, whether or not a straggler shows: proxies that a CPU delays make some, and so does a straggler of an
exchange.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnosis.causes import Level
from diagnosis.collective.bottleneck import slow_groups
from diagnosis.collective.chronological import Late, by_clock, computing, first_anomaly, late_members
from diagnosis.collective.clocks import clocks
from diagnosis.collective.grid import ComparisonRules, Grid, Usual, grids
from diagnosis.collective.moments import common_moment
from diagnosis.collective.own_lateness import late_of_itself
from diagnosis.collective.participation import UNKNOWN, Participation
from diagnosis.collective.pipelines import Pipelines
from diagnosis.collective.stages import between_replicas
from diagnosis.collective.stragglers import (
    Metric,
    slow_in_collective,
    slow_in_custom,
)
from diagnosis.collective.traffic_map import combines, explained
from diagnosis.collective.verdict import BESIDE, Verdict, by_machine, distinct, strength
from diagnosis.collective.weight import lost_ns, prolonged_ns
from diagnosis.job import Job

_ALIKE = 2 / 3
"""Machines that are late by this part of the latest one's lateness are late of themselves, not because of it. So much
of a lateness that communication has lost explains it: who exchanges with a straggler is late by what that one lost."""


def localise_slow(
    table: Participation,
    job: Job,
    pipelines: Sequence[Sequence[int]] = (),
    usual: Usual | None = None,
    rules: ComparisonRules | None = None,
    metric: Metric = "actual_time",
) -> list[Verdict]:
    """Who makes the operators of a slow iteration slow: the culprits of the first rule that finds any.

    ``table``: what was seen since the iteration before the slow one ended; ``pipelines``: ranks of each pipeline by
    stage; ``usual``: what operators take while nothing is slow. Hot experts come as ``imbalance`` along with what else
    is found.
    """
    rules = rules or ComparisonRules()
    own = grids(table)
    sends = Pipelines.of(table, job, pipelines, common_moment(own, table, job))
    published = rules.pipeline_order == "first_late"
    pipeline = first_anomaly(sends, job, rules, hang=False) if published else late_of_itself(sends, job, rules)
    within, staged = between_replicas(own, table, pipelines)
    # in pipelines the sends tell who computes for long: replicas with unlike microbatches are through at unlike times
    late, imbalance = _late([grid for grid in within if not staged & set(grid.rank.tolist())], table, job, rules)
    straggling = [v for grid in within if (v := slow_in_collective(grid, rules, usual, metric)) is not None]
    hot = {rank for verdict in imbalance for rank in verdict.ranks}
    custom = [
        v for grid in within if (v := slow_in_custom(grid, table, rules, usual, _to_be_seen(grid, job))) is not None
    ]
    # whoever has more to send sends it at another rate
    straggling += [v for v in custom if not hot & set(v.ranks) or strength(v) >= 2 * rules.custom_margin]
    computing = [pipeline] if pipeline is not None else late
    communicating = _stronger(by_machine(distinct(straggling), job), slow_groups(within, job, rules, usual))
    # who begins late makes others last longer: without a straggler it takes all members, and what is usual
    told = within if communicating else [] if usual is None else [_whole(grid, job) for grid in within]
    by_stragglers = [lost_ns(v, within, None) for v in communicating if usual is None and v.method == metric]
    if computing and max([prolonged_ns(told, usual), *by_stragglers]) > _ALIKE * _lateness(computing):
        return [*communicating, *imbalance]
    return [*(computing or communicating), *imbalance]


def _stronger(straggling: list[Verdict], groups: list[Verdict]) -> list[Verdict]:
    """Stragglers, unless groups have grown by far more than these deviate: then it is not them that is waited for."""
    grown = max((verdict.evidence["duration_ratio"] - 1.0 for verdict in groups), default=0.0)
    deviation = max((strength(verdict) for verdict in straggling), default=0.0)
    return straggling if straggling and deviation * BESIDE >= grown else groups


def _to_be_seen(grid: Grid, job: Job) -> Sequence[int]:
    """The members of a communicator, where what each sends goes through a NIC."""
    members = job.members.get(grid.communicator, ())
    return members if job.one_a_host(members) else ()


def _whole(grid: Grid, job: Job) -> Grid:
    """What all members of a communicator were seen to take part in."""
    seen = set(job.members.get(grid.communicator, ())) <= set(grid.rank.tolist())
    return grid.choose((grid.row != UNKNOWN).all(axis=0) & seen)


def _lateness(verdicts: Sequence[Verdict]) -> float:
    return max(verdict.evidence.get("lost_ns", verdict.evidence["late_ns"]) for verdict in verdicts)


def _late(
    own: Sequence[Grid], table: Participation, job: Job, rules: ComparisonRules
) -> tuple[list[Verdict], list[Verdict]]:
    """Machines that compute too long before a collective, and ranks that only have more to compute."""
    slow: dict[str, list[tuple[Grid, Late]]] = {}
    hot: dict[str, list[tuple[Grid, Late]]] = {}
    computed, told = computing(table, own, job), clocks(own, job)
    for grid in own:
        back = combines(grid, table)
        for late in late_members(grid, computed, rules, back):
            if explained(grid, table, computed, back, late, rules.late_share):
                hot.setdefault(job.clock(late.rank), []).append((grid, late))
            else:
                slow.setdefault(job.clock(late.rank), []).append((grid, late))
        for late in late_members(grid, computed, rules, ~back & by_clock(grid, told, job)):
            slow.setdefault(job.clock(late.rank), []).append((grid, late))
    slow = {host: found for host, found in slow.items() if _all_of_it(host, found, own, job)}
    most = max((_lost(found) for found in slow.values()), default=0.0)
    machines = [
        Verdict(
            cause="compute_slow",
            level="machine",
            ranks=job.ranks_beside(found[0][1].rank),
            method="late_start",
            communicator=found[0][0].communicator,
            instance=int(found[0][0].instance[found[0][1].at]),
            evidence=_evidence(found),
            coverage=min(grid.coverage for grid, _ in found),
        )
        for found in slow.values()
        if _lost(found) >= _ALIKE * most
    ]
    return machines, [_more_to_do(found, job) for found in hot.values()]


def _more_to_do(found: Sequence[tuple[Grid, Late]], job: Job) -> Verdict:
    """The answer that ranks of one host only have more to compute."""
    ranks = tuple(sorted({late.rank for _, late in found}))
    level: Level = "machine" if len(ranks) > 1 and ranks == job.ranks_beside(ranks[0]) else "device"
    return Verdict("imbalance", level, ranks, "traffic_map", found[0][0].communicator, evidence=_evidence(found))


def _all_of_it(host: str, found: Sequence[tuple[Grid, Late]], own: Sequence[Grid], job: Job) -> bool:
    """Whether most ranks of a host that have groups are late: those of a tensor group wait for each other. Who was not
    seen is not."""
    groups = (job.members.get(grid.communicator, ()) for grid in own)
    members = {rank for group in groups if job.one_a_host(group) for rank in group}
    ranks = {rank for rank in members.union(*(grid.rank.tolist() for grid in own)) if job.clock(rank) == host}
    return 2 * len({late.rank for _, late in found}) > len(ranks)


def _lost(found: Sequence[tuple[Grid, Late]]) -> float:
    """What a machine's late starts cost; ranks of a host that are late together count once."""
    each: dict[tuple[str, int], float] = {}
    for grid, late in found:
        own = grid.communicator, late.rank
        each[own] = each.get(own, 0.0) + late.late_ns
    return max(each.values(), default=0.0)


def _evidence(found: Sequence[tuple[Grid, Late]]) -> dict[str, float]:
    worst = max((late for _, late in found), key=lambda late: late.late_ns)
    return {
        "late_ns": worst.late_ns,
        "lost_ns": _lost(found),
        "computed_ns": worst.computed_ns,
        "usual_ns": worst.usual_ns,
        "times": float(len(found)),
    }
