"""From operators that do not end to who keeps them from it: the order of the rules (Pulse 6.2, D.5).

Pipelines come first, then whose NIC takes nothing any more, who never began, and who stopped amid an operator; what
only waits for these is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.collective.chronological import began, first_anomaly, not_entered
from diagnosis.collective.grid import ComparisonRules, Grid, grids
from diagnosis.collective.moments import common_moment
from diagnosis.collective.own_lateness import missing_of_itself
from diagnosis.collective.participation import (
    COMPLETE,
    INCOMPLETE,
    MISSING_START,
    UNKNOWN,
    UNKNOWN_STATE,
    Participation,
)
from diagnosis.collective.pipelines import Pipelines
from diagnosis.collective.resends import partly_sent_again, sent_again
from diagnosis.collective.silence import alive, heard
from diagnosis.collective.stages import between_replicas
from diagnosis.collective.stragglers import stopped_in_collective, stopped_in_custom, unanswered, untaken
from diagnosis.collective.verdict import Verdict, by_machine, distinct, either
from diagnosis.job import Job

_OF_ALL = ("all_reduce", "all_gather", "reduce_scatter")
"""What nobody takes part in without having called it, and each needs the others for."""


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
    found = _hanging(table, job, pipelines, rules or ComparisonRules(), sending)
    return either(heard(found, sending, len(job.ranks)))


def _hanging(
    table: Participation,
    job: Job,
    pipelines: Sequence[Sequence[int]],
    rules: ComparisonRules,
    sending: Mapping[int, bool],
) -> list[Verdict]:
    own = grids(table)
    sends = Pipelines.of(table, job, pipelines, common_moment(own, table, job))
    published = rules.pipeline_order == "first_late"
    pipeline = first_anomaly(sends, job, rules, hang=True) if published else missing_of_itself(sends, job, sending)
    within, _ = between_replicas(own, table, pipelines)
    if pipeline is not None:
        ends = pipeline.candidates if pipeline.level == "device" else ()
        return [v for v in _absent(within, table, job) if _stopped_alone(v, ends, sending)] or [pipeline]
    unheard = [v for grid in within if (v := unanswered(grid, table)) is not None]
    if len(unheard) == 1:
        return unheard
    again = _never_called(own, table, job, sending)
    if again is not None:
        return [again]
    absent = [_taking_nothing(verdict, table, sending) for verdict in _absent(within, table, job)]
    if absent:
        return absent
    untaking = [v for grid in within if (v := untaken(grid, table, job)) is not None]
    if untaking:
        return untaking
    members = [job.members.get(grid.communicator, ()) for grid in own]
    built_in = [
        v
        for grid, of in zip(own, members, strict=True)
        if (v := stopped_in_collective(grid, table, rules, of)) is not None
    ]
    custom = [v for grid in own if (v := stopped_in_custom(grid, table)) is not None]
    stopped = by_machine(distinct(_first(built_in) + _first(custom)), job)
    return [_of_a_host(v, job) for v in stopped] or _absent(within, table, job, begun=False)


def _stopped_alone(verdict: Verdict, ends: Sequence[tuple[int, ...]], sending: Mapping[int, bool]) -> bool:
    """Whether one of the two ends of a send that is stuck has not called what others wait in, and so has stopped; not
    where the other one's NIC is silent, as it may wait for that."""
    others = [rank for end in ends if end != verdict.ranks for rank in end]
    own = verdict.cause == "hang_not_entered" and verdict.ranks in ends
    return own and all(sending.get(rank, True) for rank in others)


def _never_called(own: Sequence[Grid], table: Participation, job: Job, sending: Mapping[int, bool]) -> Verdict | None:
    """The rank whose NIC is down because another one has sent it all of a collective that it never called: nobody
    takes anything before, so that was sent before, and again after a time-out.

    Where a host has several members, their own may not go through NICs, so that it is not known what they have called;
    nor is it of one that was not seen in the operator before.
    """
    down: dict[int, Grid] = {}
    seen = set(table.rank[table.state != UNKNOWN_STATE].tolist())
    for grid in own:
        members = job.members.get(grid.communicator, ())
        if not len(grid.instance) or grid.op[-1] not in _OF_ALL or not job.one_a_host(members):
            continue
        before = seen if len(grid.instance) == 1 else set(grid.rank[grid.state[:, -2] != UNKNOWN_STATE].tolist())
        absent = (set(members) & before) - set(grid.rank[grid.row[:, -1] != UNKNOWN].tolist())
        for row in grid.row[grid.state[:, -1] == COMPLETE, -1].tolist():
            if _again(table, row):
                down |= dict.fromkeys(absent & set(table.peer[table.peers(row)].tolist()), grid)
    silent = [rank for rank in down if not sending.get(rank, False)]
    if len(silent) != 1:
        return None
    grid = down[silent[0]]
    at = int(grid.instance[-1])
    return Verdict(
        "hang_hardware", "device", tuple(silent), "sent_again", grid.communicator, at, coverage=grid.coverage
    )


def _again(table: Participation, row: int) -> bool:
    """Whether a row was something that its rank sent again."""
    own = np.flatnonzero(table.rank == table.rank[row])
    own = own[np.argsort(table.call_ns[own], kind="stable")]
    return bool(sent_again(table, own)[own == row].any())


def _of_a_host(verdict: Verdict, job: Job) -> Verdict:
    """The NICs of a host do not all stop at once: where all of its ranks have stopped, they compute no more."""
    host = job.ranks_beside(verdict.ranks[0])
    whole = verdict.level == "machine" and set(verdict.ranks) == set(host)
    return replace(verdict, cause="hang_not_entered") if whole else verdict


def _first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those on the operators that stopped first: parallel groups call alike, and later ones wait for earlier ones.

    Of these, where some send again what is not answered, the groups in which that happens: the others only wait.
    """
    first = min((verdict.instance or 0 for verdict in verdicts), default=0)
    chosen = [verdict for verdict in verdicts if (verdict.instance or 0) == first]
    return [verdict for verdict in chosen if verdict.evidence.get("sending_again")] or chosen


def _absent(own: Sequence[Grid], table: Participation, job: Job, begun: bool = True) -> list[Verdict]:
    """Who never began an operator that others began; or, not ``begun``, never called one that others only called.

    A tensor group waits for each of its GPUs, so that one which does not compute keeps all ranks of its host from
    their next operators. Where the other ranks of the host began theirs, it was the NIC that did not send, or the rank
    alone that stopped, if it has not even called its own: all that was called is told once it is silent for so long,
    but for calls that telemetry has lost, which show only where the others are through.
    """
    silent: dict[tuple[int, ...], list[tuple[Grid, int, int]]] = {}
    for grid in own:
        at, ranks = not_entered(grid, table) or (0, ())
        for rank in ranks if began(grid)[:, at].any() == begun else ():
            if not _through_without(grid, at, rank):
                silent.setdefault(job.ranks_beside(rank), []).append((grid, at, rank))
    verdicts = []
    for host, each in silent.items():
        grid, at, rank = each[0]
        gone = {rank for *_, rank in each}  # of the host's ranks; the others began the same elsewhere
        others = {int(r) for g in own for r in _began(g, grid, at)} & set(host) - gone
        alone = len(others) >= len(gone)
        uncalled = bool((grid.row[np.isin(grid.rank, list(gone)), at] == UNKNOWN).any())
        verdicts.append(
            Verdict(
                cause="hang_hardware" if alone and not uncalled else "hang_not_entered",
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


def _through_without(grid: Grid, at: int, rank: int) -> bool:
    """Whether the others are through with an operator that a rank has not called as far as telemetry tells: it has, or
    they sent something else again."""
    uncalled = (grid.row[grid.rank == rank, at] == UNKNOWN).any()
    return bool(uncalled and not np.isin(grid.state[:, at], (INCOMPLETE, MISSING_START)).any())


def _taking_nothing(verdict: Verdict, table: Participation, sending: Mapping[int, bool]) -> Verdict:
    """A machine that never began, or the NIC of the one of its ranks that others sent to again, which keeps the machine
    from the next operator: a rank that only computes no more has taken all that it had called for."""
    if verdict.cause != "hang_not_entered" or verdict.level != "machine":
        return verdict
    rows = np.flatnonzero(partly_sent_again(table) & ~np.isin(table.rank, verdict.ranks)).tolist()
    to = {peer: row for row in rows for peer in table.peer[table.peers(row)].tolist() if peer in verdict.ranks}
    if len(to) != 1 or any(sending.get(rank, False) for rank in to):
        return verdict
    ((rank, row),) = to.items()
    communicator, at = table.communicators[table.communicator[row]], int(table.instance[row])
    return Verdict("hang_hardware", "device", (rank,), "sent_again", communicator, at, coverage=verdict.coverage)


def _began(other: Grid, grid: Grid, at: int) -> Ints:
    """Ranks that began the operator of another communicator which parallel groups call together with one of a grid."""
    same = np.flatnonzero(other.instance == grid.instance[at])
    if len(other.rank) != len(grid.rank) or not len(same) or other.op[same[0]] != grid.op[at]:
        return other.rank[:0]
    return other.rank[began(other)[:, same].any(axis=1)]
