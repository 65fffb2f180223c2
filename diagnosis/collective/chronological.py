"""Who computes slowly or not at all: the first operator that starts late, or never (Pulse 6.2, D.4, D.5).

What a computation delays first is the operator after it; from there delays spread. So operators are looked at in the
order in which they should start, and each is compared with the same operator elsewhere: of the same stage of a
parallel pipeline, or of another member of its collective. A machine is as far as that reaches, since the ranks of a
tensor group wait for each other within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.collective.grid import ComparisonRules, Grid
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
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that computed ``computed_ns`` before operators of one communicator, ``late_ns`` more than the others'
    median ``usual_ns``; ``at``: the operator that it was latest to begin."""

    rank: int
    at: int
    late_ns: float
    computed_ns: float
    usual_ns: float


def late_members(grid: Grid, computed_ns: Floats, rules: ComparisonRules, chosen: Bools | None = None) -> list[Late]:
    """Members that begin operators of one communicator late.

    As published, the first late start counts. A slow GPU delays each of many starts by little, no more than chance
    delays some; so here what a rank has computed before all of them is added up. ``computed_ns``: of each row of the
    table, as ``computing`` has it; ``chosen``: the operators to look at, shape (instances,).
    """
    computed = on_grid(grid, computed_ns)
    known = ~np.isnan(computed).any(axis=0) & (True if chosen is None else chosen)
    if len(grid.rank) < 2 or not known.any():
        return []
    total = computed[:, known].sum(axis=1)
    found = []
    for own in range(len(total)):
        usual = float(np.median(np.delete(total, own)))
        if total[own] - usual >= max(rules.late_ns, rules.late_share * usual):
            beyond = computed[own, known] - np.median(np.delete(computed[:, known], own, axis=0), axis=0)
            at = int(np.flatnonzero(known)[np.argmax(beyond)])
            found.append(Late(int(grid.rank[own]), at, float(total[own] - usual), float(total[own]), usual))
    return found


def on_grid(grid: Grid, values: Floats) -> Floats:
    """Values of the table's rows where the grid has them, else NaN; shape (ranks, instances)."""
    return np.where(grid.row == UNKNOWN, np.nan, values[grid.row]) if len(values) else np.full(grid.row.shape, np.nan)


def computing(table: Participation, own: Sequence[Grid], job: Job) -> Floats:
    """What each rank computed before each of its operators: since the one before was over for it, by its own clock.

    ``own``: the grids of the table. Built-in collectives end for all together. A custom one is over for a rank once
    the last of its members has sent, and the clocks of these are set right by the built-in ones. Shape (n,); NaN where
    one of the two was not seen.
    """
    over = np.where(table.end_ns == UNKNOWN, np.nan, table.end_ns)
    for grid in own:
        if grid.custom.any():
            shift = _shifts(grid, own, job)[:, None]
            last = np.fmax.reduce(grid.end - shift, axis=0) + shift
            known = (grid.row != UNKNOWN) & grid.custom
            over[grid.row[known]] = last[known]
    computed = np.full(len(table), np.nan)
    started = np.where(table.start_ns == UNKNOWN, np.nan, table.start_ns)
    for rank in np.unique(table.rank).tolist():
        rows = np.flatnonzero(table.rank == rank)
        rows = rows[np.argsort(table.call_ns[rows], kind="stable")]
        before = np.fmax.accumulate(over[rows])[:-1]
        # operators that overlap leave nothing to compute in between
        computed[rows[1:]] = np.maximum(started[rows[1:]] - before, 0.0)
    return computed


def _shifts(grid: Grid, own: Sequence[Grid], job: Job) -> Floats:
    """By how much each rank's clock is ahead, up to what is common: told by the ends of built-in collectives between
    the same hosts, or where there is none by the starts of the grid's own. Shape (ranks,)."""
    hosts = [job.clock(int(rank)) for rank in grid.rank]
    ahead: dict[str, list[float]] = {}
    for other in own:
        clocks = [job.clock(int(rank)) for rank in other.rank]
        if sorted(clocks) == sorted(hosts) and (~other.custom & other.complete).any():
            ends = other.end[:, ~other.custom & other.complete]
            for clock, value in zip(clocks, np.nanmedian(ends - np.nanmedian(ends, axis=0), axis=1), strict=True):
                ahead.setdefault(clock, []).append(float(value))
    if ahead:
        return np.array([float(np.median(ahead[host])) for host in hosts])
    return np.asarray(np.nanmedian(grid.start - np.nanmedian(grid.start, axis=0), axis=1))


def not_entered(grid: Grid, table: Participation) -> tuple[int, tuple[int, ...]] | None:
    """The first operator that some members began and others never did, and who these are; None if there is none.

    A sender waits until its receiver is ready. So of those that sent nothing, the ones all of whose receivers sent
    nothing either may only have waited for them, and are left out.
    """
    began = np.isin(grid.state, (COMPLETE, INCOMPLETE))
    missing = grid.state == MISSING_START
    for at in np.flatnonzero(began.any(axis=0) & missing.any(axis=0)).tolist():
        silent = grid.rank[missing[:, at]].tolist()
        receivers = {
            rank: table.peer[table.peers(int(row))].tolist()
            for rank, row in zip(silent, grid.row[missing[:, at], at], strict=True)
        }
        first = [rank for rank in silent if not receivers[rank] or not set(receivers[rank]) <= set(silent)]
        return at, tuple(first or silent)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Pipelines:
    """Sends between pipeline stages by machine; arrays of shape (machines, sends).

    A machine is one stage on one host; ``stage`` and ``host`` have shape (machines,). ``start`` is nanoseconds since
    a moment that the ranks of a stage share, NaN where nothing was seen; ``absent``: covered, and nothing was sent.
    ``peer`` is the machine that is sent to, or ``UNKNOWN``. ``stuck`` is the rank whose send did not end though those
    of most other ranks of its machine did, and ``stuck_to`` whom it sent to; ``UNKNOWN`` where there is none.
    """

    host: tuple[str, ...]
    stage: Ints
    start: Floats
    absent: Bools
    peer: Ints
    stuck: Ints
    stuck_to: Ints
    coverage: float

    @classmethod
    def of(
        cls, table: Participation, job: Job, pipelines: Sequence[Sequence[int]], moment_ns: Mapping[int, int]
    ) -> Pipelines:
        """Collect the sends of an iteration within ``pipelines``: ranks by stage.

        ``moment_ns``: a moment by each rank's clock that is the same for the ranks of a stage, so that clocks of hosts
        need not agree.
        """
        place = {rank: (at, job.clock(rank)) for ranks in pipelines for at, rank in enumerate(ranks)}
        machines = sorted(set(place.values()))
        number = {machine: i for i, machine in enumerate(machines)}
        rows = {rank: _sends(table, rank, ranks) for ranks in pipelines for rank in ranks if rank in moment_ns}
        sends = max((len(own) for own in rows.values()), default=0)
        start = np.full((len(machines), sends), np.nan)
        absent = np.zeros((len(machines), sends), dtype=np.bool_)
        peer, stuck, stuck_to = (np.full((len(machines), sends), UNKNOWN, dtype=np.int64) for _ in range(3))
        for machine, at in number.items():
            own = [rank for rank in rows if place[rank] == machine]
            if own:
                times, states = zip(
                    *(_relative(table, rows[rank], sends, moment_ns[rank]) for rank in own), strict=True
                )
                start[at] = _median(np.stack(times))
                state, to = np.stack(states), np.array([_receivers(table, rows[rank], sends) for rank in own])
                absent[at] = (state == MISSING_START).sum(axis=0) * 2 > len(own)
                lacking = np.isin(state, (MISSING_START, INCOMPLETE))
                alone = lacking.any(axis=0) & ((state == COMPLETE).sum(axis=0) * 2 >= len(own))
                which, columns = np.argmax(lacking, axis=0), np.arange(sends)
                stuck[at] = np.where(alone, np.array(own)[which], UNKNOWN)
                stuck_to[at] = np.where(alone, to[which, columns], UNKNOWN)
                peer[at] = [number[place[rank]] if rank in place else UNKNOWN for rank in to[0].tolist()]
        return cls(
            host=tuple(host for _, host in machines),
            stage=np.array([at for at, _ in machines], dtype=np.int64),
            start=start,
            absent=absent,
            peer=peer,
            stuck=stuck,
            stuck_to=stuck_to,
            coverage=len(rows) / max(len(place), 1),
        )

    def expected(self) -> Floats:
        """When each send starts on the same stage of parallel pipelines: their lower median; shape as ``start``."""
        usual = np.full(self.start.shape, np.nan)
        for stage in np.unique(self.stage).tolist():
            own = self.stage == stage
            ordered = np.sort(self.start[own], axis=0)  # NaN last
            known = np.count_nonzero(~np.isnan(ordered), axis=0)
            middle = np.maximum((known - 1) // 2, 0)
            usual[own] = ordered[middle, np.arange(ordered.shape[1])]
        return usual


def first_anomaly(pipelines: Pipelines, job: Job, rules: ComparisonRules, hang: bool) -> Verdict | None:
    """The machine whose send is the first to start late, or with ``hang`` not to start.

    A send also waits for its receiver. Where that one had to send something back at the same time and did so late as
    well, either may have computed too long: both are candidates.
    """
    expected = pipelines.expected()
    if not expected.size:
        return None
    step = np.nanmedian(np.diff(np.sort(expected, axis=1), axis=1)) if expected.shape[1] > 1 else np.nan
    step = 0.0 if np.isnan(step) else float(step)
    late = pipelines.start - expected
    threshold = max(rules.late_ns, rules.late_share * step)
    wrong = (pipelines.absent | (pipelines.stuck != UNKNOWN)) & ~np.isnan(expected) if hang else late >= threshold
    if not wrong.any():
        return None
    order = np.where(wrong, expected, np.inf)
    machine, send = (int(i) for i in np.unravel_index(int(np.argmin(order)), order.shape))
    if hang and not pipelines.absent[machine, send]:
        return _stuck(pipelines, machine, send)
    peer = int(pipelines.peer[machine, send])
    chosen = {machine}
    if peer != UNKNOWN:
        together = wrong[peer] & (np.abs(expected[peer] - expected[machine, send]) <= max(threshold, step / 2))
        chosen |= {peer} if (together & (pipelines.peer[peer] == machine)).any() else set()
    candidates = [job.ranks_of_host.get(pipelines.host[at], ()) for at in sorted(chosen)]
    return Verdict(
        cause="hang_not_entered" if hang else "compute_slow",
        level="machine",
        ranks=tuple(sorted({rank for ranks in candidates for rank in ranks})),
        method="pipeline_order",
        candidates=tuple(candidates) if len(candidates) > 1 else (),
        evidence={
            "stage": float(pipelines.stage[machine]),
            "send": float(send),
            "expected_ns": float(expected[machine, send]),
            **({} if hang else {"late_ns": float(np.nanmax(late[machine]))}),
        },
        coverage=pipelines.coverage,
    )


def _stuck(pipelines: Pipelines, machine: int, send: int) -> Verdict:
    """One send of a machine does not end: its NIC is down, or that of its receiver."""
    ends = sorted({int(pipelines.stuck[machine, send]), int(pipelines.stuck_to[machine, send])} - {UNKNOWN})
    return Verdict(
        cause="hang_hardware",
        level="device",
        ranks=tuple(ends),
        method="pipeline_order",
        candidates=tuple((rank,) for rank in ends) if len(ends) > 1 else (),
        evidence={"stage": float(pipelines.stage[machine]), "send": float(send)},
        coverage=pipelines.coverage,
    )


def _sends(table: Participation, rank: int, pipeline: Sequence[int]) -> list[int]:
    """Rows in which a rank sends within its pipeline, in order of calls."""
    own = np.flatnonzero((table.rank == rank) & table.direct)
    within = [row for row in own.tolist() if np.isin(table.peer[table.peers(row)], pipeline).all()]
    return sorted((row for row in within if len(table.peer[table.peers(row)])), key=lambda row: int(table.call_ns[row]))


def _relative(table: Participation, rows: Sequence[int], sends: int, moment_ns: int) -> tuple[Floats, Ints]:
    """Start of each send from the common moment on, and its state; what was never called is missing."""
    start, state = np.full(sends, np.nan), np.full(sends, MISSING_START)
    for at, row in enumerate(rows):
        state[at] = table.state[row]
        if table.start_ns[row] != UNKNOWN:
            start[at] = table.start_ns[row] - moment_ns
    if (state == UNKNOWN_STATE).any():  # what follows a loss is no silence
        state[int(np.argmax(state == UNKNOWN_STATE)) :] = UNKNOWN_STATE
    return start, state


def _receivers(table: Participation, rows: Sequence[int], sends: int) -> list[int]:
    to = [int(table.peer[table.peers(row)][0]) for row in rows]
    return to + [UNKNOWN] * (sends - len(to))


def _median(values: Floats) -> Floats:
    """Median of each column; NaN where at least half are."""
    ordered = np.sort(values, axis=0)
    known = np.count_nonzero(~np.isnan(ordered), axis=0)
    middle = ordered[np.maximum((known - 1) // 2, 0), np.arange(values.shape[1])]
    return np.where(2 * known > len(values), middle, np.nan)
