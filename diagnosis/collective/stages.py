"""Who is in which stage of which pipeline: by the layout that a job tells, or by who sends to whom (Pulse 5.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from diagnosis.collective.grid import Grid
from diagnosis.collective.moments import common_moment
from diagnosis.collective.participation import UNKNOWN, UNKNOWN_STATE, Participation
from diagnosis.job import Job

Stages = tuple[int, ...]
"""The ranks of one pipeline, by stage."""


def of_layout(job: Job) -> list[Stages] | None:
    """The pipelines of a job that tells its layout; None: it does not. What was inferred may be wrong, and who is
    compared with whom hangs on it."""
    layout = job.layout
    if layout is None or layout.source != "given" or layout.world is None or layout.pp is None:
        return None
    if layout.pp < 2:
        return []
    apart = layout.world // layout.pp
    return [tuple(first + apart * stage for stage in range(layout.pp)) for first in range(apart)]


def of_traffic(own: Sequence[Grid], table: Participation, job: Job) -> list[Stages]:
    """The pipelines of a job that does not tell its layout, by an iteration that shows all of their sends.

    As published: sends that go from one to the next and back. Each one's first send goes to the next stage, but for
    that of the last, which goes back. So the first stage is the one that nobody sends to first; of two, the one that
    sends first. Where telemetry of a host begins later that is wrong, but pipelines of other GPUs of the same hosts
    have the same order, and replicas of a stage, which reduce their gradients together, the same place in theirs.
    """
    moment_ns = common_moment(own, table, job).of_rank
    shown = [_sequence(grid, table, job, moment_ns) for grid in own if in_turn(grid, table)]
    known = _by_replicas([stages for stages in shown if stages is not None], own)
    order = _orders(known, job)
    found = {_in_order(stages, order[frozenset(map(job.clock, stages))], job): None for stages in known}
    for group in job.communicators:
        on_host = {job.clock(rank): rank for rank in group.ranks}
        hosts = order.get(frozenset(on_host))
        if hosts is not None and len(hosts) == len(on_host) == len(group.ranks):
            found.setdefault(tuple(on_host[host] for host in hosts))
    return list(found)


def _by_replicas(pipelines: Sequence[Stages], own: Sequence[Grid]) -> list[Stages]:
    """The pipelines with each rank where most of those are that it shares a built-in collective with."""
    place = {rank: at for stages in pipelines for at, rank in enumerate(stages)}
    pipeline = {rank: stages for stages in pipelines for rank in stages}
    of_rank: dict[int, Counter[int]] = {}
    for grid in own:
        members = [rank for rank in grid.rank.tolist() if rank in place]
        if grid.custom.all() or len({pipeline[rank] for rank in members}) < 2:
            continue
        usual, times = Counter(place[rank] for rank in members).most_common(1)[0]
        for rank in members if 2 * times > len(members) else ():
            of_rank.setdefault(rank, Counter())[usual] += 1
    found = []
    for stages in pipelines:
        wanted = [of_rank[rank].most_common(1)[0][0] if rank in of_rank else UNKNOWN for rank in stages]
        told = sorted(wanted) == list(range(len(stages)))
        found.append(tuple(stages[wanted.index(at)] for at in range(len(stages))) if told else stages)
    return found


def _orders(pipelines: Sequence[Stages], job: Job) -> dict[frozenset[str], tuple[str, ...]]:
    """The order of each set of hosts that most of their pipelines show: of one its first sends may be lost."""
    shown: dict[frozenset[str], Counter[tuple[str, ...]]] = {}
    for stages in pipelines:
        hosts = tuple(map(job.clock, stages))
        shown.setdefault(frozenset(hosts), Counter())[hosts] += 1
    return {hosts: orders.most_common(1)[0][0] for hosts, orders in shown.items()}


def _in_order(stages: Stages, hosts: Sequence[str], job: Job) -> Stages:
    """The ranks in the order of their hosts, where each has one."""
    if len(set(hosts)) < len(stages):
        return stages
    return tuple(sorted(stages, key=lambda rank: hosts.index(job.clock(rank))))


def _sequence(grid: Grid, table: Participation, job: Job, moment_ns: Mapping[int, int]) -> Stages | None:
    if set(job.members.get(grid.communicator, ())) != set(grid.rank.tolist()):
        return None
    began: dict[int, int] = {}
    following: dict[int, int] = {}
    for at, rank in enumerate(grid.rank.tolist()):
        rows = grid.row[at][grid.row[at] != UNKNOWN]
        first = int(rows[np.argmin(table.call_ns[rows])])
        if table.start_ns[first] == UNKNOWN or rank not in moment_ns:
            return None
        began[rank] = int(table.start_ns[first]) - moment_ns[rank]
        following[rank] = int(table.peer[table.peer_offset[first]])
    unfollowed = set(following) - set(following.values())
    order = [unfollowed.pop() if len(unfollowed) == 1 else min(began, key=lambda rank: began[rank])]
    while (peer := following[order[-1]]) not in order and peer in following:
        order.append(peer)
    return tuple(order) if len(order) == len(grid.rank) else None


def in_turn(grid: Grid, table: Participation) -> bool:
    """Whether ranks only send to one other at a time, and are sent to by it, as far as is seen: stages of a pipeline.
    They have unlike work, so that they are not compared."""
    rows = grid.row[(grid.row != UNKNOWN) & (grid.state != UNKNOWN_STATE)]
    if not len(rows) or not table.direct[rows].all() or (np.diff(table.peer_offset)[rows] != 1).any():
        return False
    links = set(zip(table.rank[rows].tolist(), table.peer[table.peer_offset[rows]].tolist(), strict=True))
    return all((receiver, sender) in links for sender, receiver in links)


def between_replicas(
    own: Sequence[Grid], table: Participation, pipelines: Sequence[Sequence[int]]
) -> tuple[list[Grid], set[int]]:
    """The communicators whose ranks are compared, and the ranks that are stages of pipelines.

    Left out are those within a pipeline, also where only their sends show it: its stages have unlike work.
    """
    stages = [*map(set, pipelines), *(set(grid.rank.tolist()) for grid in own if in_turn(grid, table))]
    within = [grid for grid in own if not any(set(grid.rank.tolist()) <= ranks for ranks in stages)]
    return within, set().union(*stages)
