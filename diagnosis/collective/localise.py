"""From what ranks did in an iteration to who is at fault: the order of the rules (Pulse 6.2, 7.2.1).

Computation comes first, pipelines before groups: what a slow computation delays looks like slow communication. Then
the communication itself, and last what only the group shows. Starts that are late by less than what communication has
lost do not count beside it: proxies that a CPU delays make some, and so does a straggler of an exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from diagnosis.collective.bottleneck import slow_groups
from diagnosis.collective.chronological import Late, began, computing, first_anomaly, late_members, not_entered
from diagnosis.collective.grid import ComparisonRules, Grid, Usual, grids, kind_of
from diagnosis.collective.own_lateness import late_of_itself, missing_of_itself
from diagnosis.collective.participation import UNKNOWN, UNKNOWN_STATE, Floats, Ints, Participation
from diagnosis.collective.pipelines import Pipelines, common_moment, in_turn
from diagnosis.collective.silence import alive, heard, silent_alone
from diagnosis.collective.stragglers import (
    Metric,
    slow_in_collective,
    slow_in_custom,
    stopped_in_collective,
    stopped_in_custom,
)
from diagnosis.collective.traffic_map import combines, explained
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job

_ALIKE = 2 / 3
"""Machines that are late by this part of the latest one's lateness are late of themselves, not because of it."""

_BESIDE = 5.0
"""A deviation that is this much smaller than another is its consequence."""


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
    stages = _stages(own, table, pipelines)
    within = _between_replicas(own, stages)
    # in pipelines the sends tell who computes for long: replicas with unlike microbatches are through at unlike times
    staged = set().union(*stages)
    late, imbalance = _late([grid for grid in within if not staged & set(grid.rank.tolist())], table, job, rules)
    straggling = [v for grid in within if (v := slow_in_collective(grid, rules, usual, metric)) is not None]
    hot = {rank for verdict in imbalance for rank in verdict.ranks}
    custom = [v for grid in within if (v := slow_in_custom(grid, table, rules, usual)) is not None]
    # whoever has more to send sends it at another rate
    straggling += [v for v in custom if not hot & set(v.ranks) or _strength(v) >= 2 * rules.custom_margin]
    computing = [pipeline] if pipeline is not None else late
    communicating = _stronger(by_machine(distinct(straggling), job), slow_groups(within, job, rules, usual))
    if computing and communicating and _prolonged(within, usual) > _lateness(computing):
        return [*communicating, *imbalance]
    return [*(computing or communicating), *imbalance]


def _stages(own: Sequence[Grid], table: Participation, pipelines: Sequence[Sequence[int]]) -> list[set[int]]:
    """The ranks of each pipeline, also of those that only their sends show."""
    return [*map(set, pipelines), *(set(grid.rank.tolist()) for grid in own if in_turn(grid, table))]


def _between_replicas(own: Sequence[Grid], stages: Sequence[set[int]]) -> list[Grid]:
    """The communicators whose ranks are compared: not those within a pipeline, whose stages have unlike work."""
    return [grid for grid in own if not any(set(grid.rank.tolist()) <= ranks for ranks in stages)]


def _stronger(straggling: list[Verdict], groups: list[Verdict]) -> list[Verdict]:
    """Stragglers, unless groups have grown by far more than these deviate: then it is not them that is waited for."""
    grown = max((verdict.evidence["duration_ratio"] - 1.0 for verdict in groups), default=0.0)
    deviation = max((_strength(verdict) for verdict in straggling), default=0.0)
    return straggling if straggling and deviation * _BESIDE >= grown else groups


def _lateness(verdicts: Sequence[Verdict]) -> float:
    return max(verdict.evidence.get("lost_ns", verdict.evidence["late_ns"]) for verdict in verdicts)


def _prolonged(own: Sequence[Grid], usual: Usual | None) -> float:
    """What communication has lost, on the communicator that lost most.

    Built-in collectives: by how much they have grown beyond what is usual, of the member that waited least. Custom
    ones: by how much one member really sends for longer than it usually does for as many bytes, or where that is not
    known, for longer than the others; where one begins late, all others wait for it.
    """
    most = 0.0
    for grid in own:
        built_in, custom = grid.choose(grid.complete & ~grid.custom), grid.choose(grid.complete & grid.custom)
        if len(built_in.instance) and usual is not None:
            known = [usual.duration.get(kind_of(built_in, at), np.nan) for at in range(len(built_in.instance))]
            most = max(most, float(np.nansum(np.nanmin(built_in.duration, axis=0) - np.array(known))))
        if len(custom.instance):
            most = max(most, float(np.nansum(_sent_for_longer(custom, usual), axis=1).max()))
    return most


def _sent_for_longer(custom: Grid, usual: Usual | None) -> Floats:
    """By how much ranks sent for longer in custom collectives; shape (ranks, instances)."""
    known = [] if usual is None else [usual.rate.get((custom.communicator, int(rank)), np.nan) for rank in custom.rank]
    if not known or np.isnan(known).all():
        return np.asarray(custom.duration - np.nanmedian(custom.duration, axis=0))
    return np.asarray(custom.actual - custom.sent / np.array(known)[:, None] * 1e9)


def localise_hang(
    table: Participation,
    job: Job,
    pipelines: Sequence[Sequence[int]] = (),
    rules: ComparisonRules | None = None,
) -> list[Verdict]:
    """Who keeps operators from ending: the culprits of the first rule that finds any.

    ``table`` ends with operators that have been silent for longer than the time-out.
    """
    sending = alive(table)
    found = _hanging(table, job, pipelines, rules or ComparisonRules())
    return [heard(verdict, sending) for verdict in found] or silent_alone(sending)


def _hanging(
    table: Participation, job: Job, pipelines: Sequence[Sequence[int]], rules: ComparisonRules
) -> list[Verdict]:
    own = grids(table)
    sends = Pipelines.of(table, job, pipelines, common_moment(own, table, job))
    published = rules.pipeline_order == "first_late"
    pipeline = first_anomaly(sends, job, rules, hang=True) if published else missing_of_itself(sends, job)
    if pipeline is not None:
        return [pipeline]
    within = _between_replicas(own, _stages(own, table, pipelines))
    absent = _absent(within, table, job)
    if absent:
        return absent
    built_in = [v for grid in own if (v := stopped_in_collective(grid, rules)) is not None]
    custom = [v for grid in own if (v := stopped_in_custom(grid, table)) is not None]
    return distinct(_first(built_in) + _first(custom)) or _absent(within, table, job, begun=False)


def _first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those on the operators that stopped first: parallel groups call alike, and later ones wait for earlier ones.

    Of these, where some send again what is not answered, the groups in which that happens: the others only wait.
    """
    first = min((verdict.instance or 0 for verdict in verdicts), default=0)
    chosen = [verdict for verdict in verdicts if (verdict.instance or 0) == first]
    return [verdict for verdict in chosen if verdict.evidence.get("sending_again")] or chosen


def distinct(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts on the same culprits of the same cause once: the one with the strongest evidence speaks.

    What deviates far less than another does so because of it.
    """
    verdicts = list(verdicts)
    most = max((_strength(verdict) for verdict in verdicts), default=0.0)
    same: dict[tuple[str, tuple[int, ...]], list[Verdict]] = {}
    for verdict in verdicts:
        if _strength(verdict) * _BESIDE >= most:
            same.setdefault((verdict.cause, verdict.ranks), []).append(verdict)
    return [_united(each) for each in same.values()]


def by_machine(verdicts: Iterable[Verdict], job: Job) -> list[Verdict]:
    """Verdicts on several devices of one machine as one: what they share is slow, not each by itself."""
    together: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        together.setdefault((verdict.cause, job.clock(verdict.ranks[0])), []).append(verdict)
    return [_united(same) for same in together.values()]


def _united(verdicts: Sequence[Verdict]) -> Verdict:
    strongest, *weaker = sorted(verdicts, key=_strength, reverse=True)
    ranks = tuple(sorted({rank for verdict in verdicts for rank in verdict.ranks}))
    return replace(
        strongest,
        level="machine" if len(ranks) > len(strongest.ranks) else strongest.level,
        ranks=ranks,
        coverage=min(verdict.coverage for verdict in verdicts),
        weaker=(*strongest.weaker, *weaker),
    )


def _strength(verdict: Verdict) -> float:
    return abs(verdict.evidence.get("ratio", 1.0) - 1.0)


def _late(
    own: Sequence[Grid], table: Participation, job: Job, rules: ComparisonRules
) -> tuple[list[Verdict], list[Verdict]]:
    """Machines that compute too long before a collective, and ranks that only have more to compute."""
    slow: dict[str, list[tuple[Grid, Late]]] = {}
    hot: dict[int, list[tuple[Grid, Late]]] = {}
    computed = computing(table, own, job)
    for grid in own:
        back = combines(grid, table)
        for late in late_members(grid, computed, rules, back):
            if explained(grid, table, computed, back, late, rules.late_share):
                hot.setdefault(late.rank, []).append((grid, late))
            else:
                slow.setdefault(job.clock(late.rank), []).append((grid, late))
        for late in late_members(grid, computed, rules, ~back):
            slow.setdefault(job.clock(late.rank), []).append((grid, late))
    most = max((_lost(found) for found in slow.values()), default=0.0)
    machines = [
        Verdict(
            cause="compute_slow",
            level="machine",
            ranks=_ranks_of(job, found[0][1].rank),
            method="late_start",
            communicator=found[0][0].communicator,
            instance=int(found[0][0].instance[found[0][1].at]),
            evidence=_evidence(found),
            coverage=min(grid.coverage for grid, _ in found),
        )
        for host, found in slow.items()
        if _lost(found) >= _ALIKE * most and _all_of_it(host, found, own, job)
    ]
    imbalance = [
        Verdict("imbalance", "device", (rank,), "traffic_map", found[0][0].communicator, evidence=_evidence(found))
        for rank, found in hot.items()
    ]
    return machines, imbalance


def _all_of_it(host: str, found: Sequence[tuple[Grid, Late]], own: Sequence[Grid], job: Job) -> bool:
    """Whether most ranks of a host that have groups are late: those of a tensor group wait for each other."""
    ranks = {int(rank) for grid in own for rank in grid.rank if job.clock(int(rank)) == host}
    return 2 * len({late.rank for _, late in found}) > len(ranks)


def _lost(found: Sequence[tuple[Grid, Late]]) -> float:
    """What a machine's late starts cost; ranks of a host that are late together count once."""
    by_communicator: dict[str, float] = {}
    for grid, late in found:
        by_communicator[grid.communicator] = by_communicator.get(grid.communicator, 0.0) + late.late_ns
    return max(by_communicator.values(), default=0.0)


def _evidence(found: Sequence[tuple[Grid, Late]]) -> dict[str, float]:
    worst = max((late for _, late in found), key=lambda late: late.late_ns)
    return {
        "late_ns": worst.late_ns,
        "lost_ns": _lost(found),
        "computed_ns": worst.computed_ns,
        "usual_ns": worst.usual_ns,
        "times": float(len(found)),
    }


def _absent(own: Sequence[Grid], table: Participation, job: Job, begun: bool = True) -> list[Verdict]:
    """Who never began an operator that others began; or, not ``begun``, never called one that others only called.

    A tensor group waits for each of its GPUs, so that one which does not compute keeps all ranks of its host from
    their next operators. Where the other ranks of the host began theirs, it was the NIC that did not send; of a rank
    that alone has not called it may be that it is not told of yet.
    """
    silent: dict[tuple[int, ...], list[tuple[Grid, int, int]]] = {}
    for grid in own:
        at, ranks = not_entered(grid, table) or (0, ())
        for rank in ranks if began(grid)[:, at].any() == begun else ():
            silent.setdefault(_ranks_of(job, rank), []).append((grid, at, rank))
    verdicts = []
    for host, each in silent.items():
        grid, at, rank = each[0]
        gone = {rank for *_, rank in each}  # of the host's ranks; the others began the same elsewhere
        others = {int(r) for g in own for r in _began(g, grid, at)} & set(host) - gone
        alone = len(others) >= len(gone)
        if alone and (grid.row[np.isin(grid.rank, list(gone)), at] == UNKNOWN).any():
            continue
        verdicts.append(
            Verdict(
                cause="hang_hardware" if alone else "hang_not_entered",
                level="device" if alone else "machine",
                ranks=tuple(sorted(gone)) if alone else host,
                method="missing_start",
                communicator=grid.communicator,
                instance=int(grid.instance[at]),
                evidence={"missing": float(len(gone)), "began": float(len(others))},
                coverage=float(np.mean((grid.state[:, at] != UNKNOWN_STATE) | (grid.row[:, at] == UNKNOWN))),
            )
        )
    most = max((verdict.evidence["missing"] for verdict in verdicts), default=0.0)
    return [verdict for verdict in verdicts if verdict.evidence["missing"] == most]


def _began(other: Grid, grid: Grid, at: int) -> Ints:
    """Ranks that began the operator of another communicator which parallel groups call together with one of a grid."""
    same = np.flatnonzero(other.instance == grid.instance[at])
    if len(other.rank) != len(grid.rank) or not len(same) or other.op[same[0]] != grid.op[at]:
        return other.rank[:0]
    return other.rank[began(other)[:, same].any(axis=1)]


def _ranks_of(job: Job, rank: int) -> tuple[int, ...]:
    """All ranks of a rank's host."""
    place = job.place.get(rank)
    return job.ranks_of_host.get(place.host, (rank,)) if place is not None and place.host is not None else (rank,)
