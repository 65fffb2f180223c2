"""The ranks of each pipeline by stage, and what they send to each other in an iteration (Pulse 5.2, 7.2.1, D.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from diagnosis.collective.clocks import clocks
from diagnosis.collective.grid import Grid
from diagnosis.collective.participation import (
    COMPLETE,
    INCOMPLETE,
    MISSING_START,
    UNKNOWN,
    UNKNOWN_STATE,
    Bools,
    Floats,
    Ints,
    Participation,
)
from diagnosis.collective.resends import sent_again
from diagnosis.job import Job

_LEAST_TOGETHER = 3
"""Ranks of a machine of which one that sends alone does so for a reason of its own."""

Stages = tuple[int, ...]
"""The ranks of one pipeline, by stage."""


@dataclass(frozen=True, slots=True)
class Moments:
    """A moment by each rank's clock: the same for those of a stage, and if ``shared`` for all."""

    of_rank: Mapping[int, int]
    shared: bool


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


@dataclass(frozen=True, slots=True, eq=False)
class Pipelines:
    """Sends between pipeline stages by machine; arrays of shape (machines, sends).

    A machine is one stage on one host; ``stage`` and ``host`` have shape (machines,). ``start`` and ``end`` (of the
    last rank) are nanoseconds since a moment that at least the ranks of a stage share, NaN where nothing was seen;
    ``shared``: those of all stages do. ``absent``: covered, and nothing was sent. ``peer`` is the machine that is sent
    to, or ``UNKNOWN``. ``stuck`` is the rank whose send did not end though those of most other ranks of its machine
    did, and ``stuck_to`` whom it sent to; ``UNKNOWN`` where there is none. ``after`` and ``before``: the machines of
    the next stage and of the one before, ``UNKNOWN`` at the ends; shape (machines,).
    """

    host: tuple[str, ...]
    stage: Ints
    start: Floats
    end: Floats
    absent: Bools
    peer: Ints
    stuck: Ints
    stuck_to: Ints
    again_to: Ints
    after: Ints
    before: Ints
    shared: bool
    coverage: float

    @classmethod
    def of(cls, table: Participation, job: Job, pipelines: Sequence[Sequence[int]], moments: Moments) -> Pipelines:
        """Collect the sends of an iteration within ``pipelines``: ranks by stage. ``moments`` are what times count
        from, so that clocks of hosts need not agree.
        """
        moment_ns = moments.of_rank
        place = {rank: (at, job.clock(rank)) for ranks in pipelines for at, rank in enumerate(ranks)}
        machines = sorted(set(place.values()))
        number = {machine: i for i, machine in enumerate(machines)}
        of_rank = {rank: number[machine] for rank, machine in place.items()}
        rows = {rank: _sends(table, rank, ranks) for ranks in pipelines for rank in ranks if rank in moment_ns}
        elsewhere = _held_elsewhere(table, rows)
        sends = max((len(own) for own in rows.values()), default=0)
        start, end = (np.full((len(machines), sends), np.nan) for _ in range(2))
        absent = np.zeros((len(machines), sends), dtype=np.bool_)
        peer, stuck, stuck_to, again_to = (np.full((len(machines), sends), UNKNOWN, dtype=np.int64) for _ in range(4))
        for machine, at in number.items():
            own = [rank for rank in rows if place[rank] == machine]
            if own:
                starts, ends, states = zip(
                    *(_relative(table, rank, rows[rank], sends, moment_ns[rank], elsewhere) for rank in own),
                    strict=True,
                )
                start[at] = _median(np.stack(starts))
                end[at] = np.where(np.isnan(start[at]), np.nan, np.fmax.reduce(np.stack(ends)))
                state, to = np.stack(states), np.array([_receivers(table, rows[rank], sends) for rank in own])
                absent[at] = (state == MISSING_START).sum(axis=0) * 2 > len(own)
                lacking = np.isin(state, (MISSING_START, INCOMPLETE))
                alone = lacking.any(axis=0) & ((state == COMPLETE).sum(axis=0) * 2 >= len(own))
                which, columns = np.argmax(lacking, axis=0), np.arange(sends)
                stuck[at] = np.where(alone, np.array(own)[which], UNKNOWN)
                stuck_to[at] = np.where(alone, to[which, columns], UNKNOWN)
                again = np.zeros(state.shape, dtype=np.bool_)
                for i, rank in enumerate(own):
                    again[i, : len(rows[rank])] = sent_again(table, np.array(rows[rank], dtype=np.int64))
                waiting = (state == MISSING_START).sum(axis=0) == len(own) - 1
                only = waiting & (len(own) >= _LEAST_TOGETHER) & again.any(axis=0)
                again_to[at] = np.where(only, to[np.argmax(again, axis=0), columns], UNKNOWN)
                peer[at] = [of_rank.get(rank, UNKNOWN) for rank in to[0].tolist()]
        return cls(
            host=tuple(host for _, host in machines),
            stage=np.array([at for at, _ in machines], dtype=np.int64),
            start=start,
            end=end,
            absent=absent,
            peer=peer,
            stuck=stuck,
            stuck_to=stuck_to,
            again_to=again_to,
            after=_next_to(pipelines, of_rank, len(machines), 1),
            before=_next_to(pipelines, of_rank, len(machines), -1),
            shared=moments.shared,
            coverage=len(rows) / max(len(place), 1),
        )

    @property
    def lacking(self) -> Bools:
        """Sends that did not start, or did not end; shape as ``start``."""
        return np.asarray(self.absent | (self.stuck != UNKNOWN))

    def lateness(self) -> Floats:
        """By how much each send starts later than on the same stage of parallel pipelines; NaN where none of them was
        seen to. Shape as ``start``."""
        return self._late(self.start)

    def end_lateness(self) -> Floats:
        """By how much each send ends later than on the same stage of parallel pipelines; as ``lateness``."""
        return self._late(self.end)

    def _late(self, times: Floats) -> Floats:
        known = ~np.isnan(times)
        pipelines = np.stack(
            [np.count_nonzero(known[self.stage == at], axis=0) for at in range(int(self.stage.max()) + 1)]
        )
        others = np.count_nonzero(self.stage == self.stage[:, None], axis=1) > 1
        alone = others[:, None] & (pipelines[self.stage] < 2)
        return np.where(alone, np.nan, times - self._expected(times))

    def expected(self) -> Floats:
        """When each send starts on the same stage of parallel pipelines: their lower median; shape as ``start``."""
        return self._expected(self.start)

    def expected_end(self) -> Floats:
        """When each send ends there; as ``expected``."""
        return self._expected(self.end)

    def _expected(self, times: Floats) -> Floats:
        usual = np.full(times.shape, np.nan)
        for stage in np.unique(self.stage).tolist():
            own = self.stage == stage
            ordered = np.sort(times[own], axis=0)  # NaN last
            known = np.count_nonzero(~np.isnan(ordered), axis=0)
            middle = np.maximum((known - 1) // 2, 0)
            usual[own] = ordered[middle, np.arange(ordered.shape[1])]
        return usual


def _next_to(pipelines: Sequence[Sequence[int]], machine: Mapping[int, int], machines: int, step: int) -> Ints:
    """The machine that is so many stages further on; shape (machines,). ``machine``: of each rank."""
    found = np.full(machines, UNKNOWN, dtype=np.int64)
    for ranks in pipelines:
        for at, rank in enumerate(ranks):
            if 0 <= at + step < len(ranks):
                found[machine[rank]] = machine[ranks[at + step]]
    return found


def _sends(table: Participation, rank: int, pipeline: Sequence[int]) -> list[int]:
    """Rows in which a rank sends within its pipeline, in order of calls."""
    own = np.flatnonzero((table.rank == rank) & table.direct)
    within = [row for row in own.tolist() if np.isin(table.peer[table.peers(row)], pipeline).all()]
    return sorted((row for row in within if len(table.peer[table.peers(row)])), key=lambda row: int(table.call_ns[row]))


def _held_elsewhere(table: Participation, sends: Mapping[int, Sequence[int]]) -> set[int]:
    """The ranks whose first operator that did not end is none of their sends: pipelines wait for it."""
    of_pipelines = np.zeros(len(table), dtype=np.bool_)
    for rows in sends.values():
        of_pipelines[rows] = True
    lacking = np.flatnonzero(np.isin(table.state, (INCOMPLETE, MISSING_START)))
    lacking = lacking[np.lexsort((table.call_ns[lacking], table.rank[lacking]))]
    ranks, first = np.unique(table.rank[lacking], return_index=True)
    return set(ranks[~of_pipelines[lacking[first]]].tolist())


def _relative(
    table: Participation, rank: int, rows: Sequence[int], sends: int, moment_ns: int, elsewhere: Set[int]
) -> tuple[Floats, Floats, Ints]:
    """Start and end of each send from the common moment on, and its state; what was never called is missing.

    What follows a loss is no silence, until a send is seen to end; nor is what waits for something else than the
    pipeline, on either side. A send of which nothing was seen does not tell to whom it was, so that none that is
    called later is known.
    """
    start, end, state = np.full(sends, np.nan), np.full(sends, np.nan), np.full(sends, MISSING_START)
    for at, row in enumerate(rows):
        state[at] = table.state[row]
        if table.start_ns[row] != UNKNOWN:
            start[at] = table.start_ns[row] - moment_ns
        if state[at] == COMPLETE:
            end[at] = table.end_ns[row] - moment_ns
        if state[at] != COMPLETE and {rank, *table.peer[table.peers(row)].tolist()} & elsewhere:
            state[at] = UNKNOWN_STATE
    to_nobody = (table.state == UNKNOWN_STATE) & (np.diff(table.peer_offset) == 0)
    unseen_ns = table.call_ns[(table.rank == rank) & table.direct & to_nobody]
    if len(unseen_ns):
        known = np.count_nonzero(table.call_ns[list(rows)] < unseen_ns.min())
        start[known:], end[known:], state[known:] = np.nan, np.nan, UNKNOWN_STATE
    ended = np.flatnonzero(state == COMPLETE)
    lost = np.flatnonzero(state == UNKNOWN_STATE)
    lost = lost[lost > (ended[-1] if len(ended) else -1)]
    state[lost[0] if len(lost) else sends :] = UNKNOWN_STATE
    return start, end, state


def _receivers(table: Participation, rows: Sequence[int], sends: int) -> list[int]:
    to = [int(table.peer[table.peers(row)][0]) for row in rows]
    return to + [UNKNOWN] * (sends - len(to))


def _median(values: Floats) -> Floats:
    """Median of each column; NaN where at least half are."""
    ordered = np.sort(values, axis=0)
    known = np.count_nonzero(~np.isnan(ordered), axis=0)
    middle = ordered[np.maximum((known - 1) // 2, 0), np.arange(values.shape[1])]
    return np.where(2 * known > len(values), middle, np.nan)
