"""A moment that ranks of different hosts share, as clocks of hosts differ (Pulse D.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.collective.clocks import clocks
from diagnosis.collective.grid import Grid
from diagnosis.collective.participation import COMPLETE, UNKNOWN_STATE, Participation
from diagnosis.job import Job


@dataclass(frozen=True, slots=True)
class Moments:
    """A moment by each rank's clock: the same for those of a stage, and if ``shared`` for all."""

    of_rank: Mapping[int, int]
    shared: bool


def common_moment(own: Sequence[Grid], table: Participation, job: Job) -> Moments:
    """A moment by each rank's clock, the same for all if collectives connect their hosts, else for those of a stage.

    ``own``: the grids of the table. For a stage it is the end of a collective between its ranks: the last one before a
    rank's first send within its pipeline, or where a host has none, the first one after it; ranks of a host have one
    clock. Without either the clocks of hosts are taken as they are. Ranks of a host of whose collectives nothing was
    seen are left out.
    """
    ranks = np.unique(table.rank).tolist()
    first = int(table.call_ns.min()) if len(table) else 0
    hosts = {rank: job.clock(rank) for rank in ranks}
    ahead = next(iter(clocks(own, job)), {})
    if set(hosts.values()) <= ahead.keys():
        return Moments({rank: first + round(ahead[host]) for rank, host in hosts.items()}, shared=True)
    built_in = ~table.direct
    seen = {hosts[rank] for rank in np.unique(table.rank[built_in & (table.state != UNKNOWN_STATE)]).tolist()}
    unseen = {hosts[rank] for rank in np.unique(table.rank[built_in]).tolist()} - seen
    for ends in _ends(table, ranks):
        moments = _of_hosts(ends, hosts)
        if moments and set(hosts.values()) - unseen == {hosts[rank] for rank in moments}:
            return Moments(moments, shared=False)
    return Moments(dict.fromkeys(ranks, first), shared=False)


def _of_hosts(ends: Mapping[int, int], hosts: Mapping[int, str]) -> dict[int, int]:
    """Moments of ranks; of one that has none, those of the others of its host."""
    each: dict[str, list[int]] = {}
    for rank, end in ends.items():
        each.setdefault(hosts[rank], []).append(end)
    return {rank: ends.get(rank, int(np.median(each[host]))) for rank, host in hosts.items() if host in each}


def _ends(table: Participation, ranks: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """The ends of the last collective before each rank's first send, and of the first one after it."""
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for rank in ranks:
        own = table.rank == rank
        sends = table.call_ns[own & table.direct]
        ends = np.sort(table.end_ns[own & ~table.direct & (table.state == COMPLETE)])
        earlier = ends[ends <= sends.min()] if len(sends) else ends[:0]
        later = ends[len(earlier) :]
        before |= {rank: int(earlier[-1])} if len(earlier) else {}
        after |= {rank: int(later[0])} if len(later) else {}
    return before, after
