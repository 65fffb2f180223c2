"""Who computes slowly or not at all: the first operator that starts late, or never (Pulse 6.2, D.4, D.5).

What a computation delays first is the operator after it; from there delays spread. So operators are looked at in the
order in which they should start, and each is compared with the same operator elsewhere: of the same stage of a
parallel pipeline, or of another member of its collective. A machine is as far as that reaches, since the ranks of a
tensor group wait for each other within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from diagnosis.arrays import Bools, Floats
from diagnosis.collective.clocks import Clocks, clocks
from diagnosis.collective.grid import ComparisonRules, Grid
from diagnosis.collective.participation import (
    COMPLETE,
    INCOMPLETE,
    MISSING_START,
    UNKNOWN,
    UNKNOWN_STATE,
    Participation,
)
from diagnosis.collective.pipelines import Pipelines
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
    told, known = comparable(computed, np.ones(len(grid.instance), dtype=np.bool_) if chosen is None else chosen)
    computed, ranks = computed[told], grid.rank[told]
    if len(ranks) < 2 or not known.any():
        return []
    total = computed[:, known].sum(axis=1)
    found = []
    for own in range(len(total)):
        usual = float(np.median(np.delete(total, own)))
        if total[own] - usual >= max(rules.late_ns, rules.late_share * usual):
            beyond = computed[own, known] - np.median(np.delete(computed[:, known], own, axis=0), axis=0)
            at = int(np.flatnonzero(known)[np.argmax(beyond)])
            found.append(Late(int(ranks[own]), at, float(total[own] - usual), float(total[own]), usual))
    return found


def comparable(computed: Floats, chosen: Bools) -> tuple[Bools, Bools]:
    """The ranks of which anything is known, and the chosen operators in which all of them are; shapes (ranks,) and
    (instances,)."""
    unknown = np.isnan(computed)
    told = ~np.all(unknown, axis=1)
    return np.asarray(told), np.asarray(chosen & ~np.any(unknown[told], axis=0))


def on_grid(grid: Grid, values: Floats) -> Floats:
    """Values of the table's rows where the grid has them, else NaN; shape (ranks, instances)."""
    return np.where(grid.row == UNKNOWN, np.nan, values[grid.row]) if len(values) else np.full(grid.row.shape, np.nan)


def computing(table: Participation, own: Sequence[Grid], job: Job) -> Floats:
    """What each rank computed before each of its operators: since the one before was over for it, by its own clock.

    ``own``: the grids of the table. Built-in collectives end for all together. A custom one is over for a rank once
    it and all who send to it have sent, and their clocks are set right by the built-in ones. Shape (n,); NaN where one
    of the two was not seen, or of the rank hardly anything was, so that there may be others between them.
    """
    over = np.where(table.end_ns == UNKNOWN, np.nan, table.end_ns)
    told = clocks(own, job)
    for grid in own:
        if grid.custom.any():
            shift = _shifts(grid, told, job)[:, None]
            last = _received(grid, table, grid.end - shift) + shift
            known = (grid.row != UNKNOWN) & grid.custom
            over[grid.row[known]] = last[known]
    computed = np.full(len(table), np.nan)
    started = np.where(table.start_ns == UNKNOWN, np.nan, table.start_ns)
    for rank in sorted(set(table.rank.tolist()) - _hardly_told(own, job)):
        rows = np.flatnonzero(table.rank == rank)
        rows = rows[np.argsort(table.call_ns[rows], kind="stable")]
        before = np.where(np.isnan(over[rows]), np.nan, np.fmax.accumulate(over[rows]))[:-1]
        # operators that overlap leave nothing to compute in between
        computed[rows[1:]] = np.maximum(started[rows[1:]] - before, 0.0)
    return computed


def _hardly_told(own: Sequence[Grid], job: Job) -> set[int]:
    """Ranks that show less than half as many operators of a communicator as its members usually do. Of several on a
    host some may send to nobody through a NIC, so that those without any do not count."""
    found: set[int] = set()
    for grid in own:
        shown = dict(zip(grid.rank.tolist(), np.count_nonzero(grid.row != UNKNOWN, axis=1).tolist(), strict=True))
        members = job.members.get(grid.communicator, ())
        times = {rank: shown.get(rank, 0) for rank in {*(members if job.one_a_host(members) else ()), *shown}}
        usual = median(times.values())
        found |= {rank for rank, own_times in times.items() if 2 * own_times < usual}
    return found


def _received(grid: Grid, table: Participation, end: Floats) -> Floats:
    """When each rank and all members that send to it have sent, by a common clock; shape (ranks, instances). NaN where
    one of them was not seen; whom a rank sends to sends to it as well, if nothing else is known of it."""
    sends = table.take(grid.row[(grid.row != UNKNOWN) & grid.custom])
    sender, seen = (
        np.repeat(sends.rank, np.diff(sends.peer_offset)),
        np.unique(sends.rank[np.diff(sends.peer_offset) > 0]),
    )
    over = np.full(end.shape, np.nan)
    for own, rank in enumerate(grid.rank.tolist()):
        unseen = np.setdiff1d(sends.peer[sender == rank], seen)
        senders = np.unique(np.concatenate((sender[sends.peer == rank], unseen, [rank])))
        if np.isin(senders, grid.rank).all():
            over[own] = np.maximum.reduce(end[np.isin(grid.rank, senders)], axis=0)
    return over


def _shifts(grid: Grid, told: Sequence[Clocks], job: Job) -> Floats:
    """By how much each rank's clock is ahead, up to what is common: ``told`` by built-in collectives that
    connect their hosts, or where there are none by the starts of the grid's own. Shape (ranks,)."""
    known = _common(grid, told, job)
    if known is not None:
        return np.array([known[job.clock(int(rank))] for rank in grid.rank])
    start = grid.start[:, ~np.isnan(grid.start).all(axis=0)]
    ahead = start - np.nanmedian(start, axis=0)
    seen = ~np.isnan(ahead).all(axis=1)
    shifts = np.zeros(len(grid.rank))
    shifts[seen] = np.nanmedian(ahead[seen], axis=1)
    return shifts


def by_clock(grid: Grid, told: Sequence[Clocks], job: Job) -> Bools:
    """The operators of which it can be told who is late for them; shape (instances,). ``told``: as ``clocks`` has them.

    A custom one is over for a rank when others have sent. That takes clocks which something else sets right than when
    ranks began, as whoever computes for long begins late.
    """
    known = _common(grid, told, job) is not None
    return np.full(len(grid.instance), True) if known else ~grid.custom


def _common(grid: Grid, told: Sequence[Clocks], job: Job) -> Clocks | None:
    """The clocks of a grid's hosts, if built-in collectives connect them."""
    hosts = {job.clock(int(rank)) for rank in grid.rank}
    return next((known for known in told if known.keys() >= hosts), None)


def not_entered(grid: Grid, table: Participation) -> tuple[int, tuple[int, ...]] | None:
    """The first operator that some members began, or at least called, and others did not; None if there is none.

    A sender waits until its receiver is ready. So of those that sent nothing, the ones all of whose receivers sent
    nothing either, or were not seen, may only have waited for them, and are left out. What nobody began waits for those
    who never called it, if it is the first that did not end; the table must tell of all ranks up to the same time.
    """
    begun = began(grid)
    called = grid.row != UNKNOWN
    last = called.shape[1] - 1 - np.argmax(called[:, ::-1], axis=1)
    open_ = np.isin(grid.state, (INCOMPLETE, MISSING_START)).any(axis=0)
    uncalled = (np.arange(called.shape[1]) > last[:, None]) & (np.cumsum(open_) - open_ == 0)
    missing = (grid.state == MISSING_START) | uncalled
    for at in np.flatnonzero((begun.any(axis=0) & missing.any(axis=0)) | (called & uncalled.any(axis=0)).any(axis=0)):
        if not begun[:, at].any():
            return int(at), tuple(grid.rank[uncalled[:, at]].tolist())
        silent = grid.rank[missing[:, at]].tolist()
        receivers = {
            rank: [] if row == UNKNOWN else table.peer[table.peers(int(row))].tolist()
            for rank, row in zip(silent, grid.row[missing[:, at], at], strict=True)
        }
        to = {receiver for each in receivers.values() for receiver in each}
        seen = set(grid.rank[grid.state[:, at] != UNKNOWN_STATE].tolist()) | set(silent)
        waiting = set(silent) | to - seen
        first = [rank for rank in silent if not receivers[rank] or not set(receivers[rank]) <= waiting]
        return int(at), tuple(first or (() if to - seen else silent))
    return None


def began(grid: Grid) -> Bools:
    """Which operators each rank is known to have begun; shape (ranks, instances)."""
    return np.isin(grid.state, (COMPLETE, INCOMPLETE))


def first_anomaly(pipelines: Pipelines, job: Job, rules: ComparisonRules, hang: bool) -> Verdict | None:
    """The machine whose send is the first to start late, or with ``hang`` not to start.

    A send also waits for its receiver. Where that one had to send something back at the same time and did so late as
    well, either may have computed too long: both are candidates.
    """
    expected = pipelines.expected()
    if not expected.size:
        return None
    late, threshold = pipelines.lateness(), late_from(expected, rules)
    wrong = pipelines.lacking & ~np.isnan(expected) if hang else late >= threshold
    if not wrong.any():
        return None
    order = np.where(wrong, expected, np.inf)
    machine, send = (int(i) for i in np.unravel_index(int(np.argmin(order)), order.shape))
    if hang and not pipelines.absent[machine, send]:
        return stuck(pipelines, machine, send, "pipeline_order")
    peer = int(pipelines.peer[machine, send])
    chosen = {machine}
    if peer != UNKNOWN:
        together = wrong[peer] & (
            np.abs(expected[peer] - expected[machine, send]) <= max(threshold, step_ns(expected) / 2)
        )
        chosen |= {peer} if (together & (pipelines.peer[peer] == machine)).any() else set()
    evidence = {
        "stage": float(pipelines.stage[machine]),
        "send": float(send),
        "expected_ns": float(expected[machine, send]),
        **({} if hang else {"late_ns": float(np.nanmax(late[machine]))}),
    }
    return computing_too_long(pipelines, job, sorted(chosen), "pipeline_order", evidence, hang)


def late_from(expected: Floats, rules: ComparisonRules) -> float:
    """From when on a send is late that is ``expected`` like this; nanoseconds."""
    return max(float(rules.late_ns), rules.late_share * step_ns(expected))


def step_ns(expected: Floats) -> float:
    """What usually passes between two sends of a machine; 0 where there is but one."""
    between = np.diff(np.sort(expected, axis=1), axis=1)
    return float(np.nanmedian(between)) if (~np.isnan(between)).any() else 0.0


def computing_too_long(
    pipelines: Pipelines, job: Job, machines: Sequence[int], method: str, evidence: Mapping[str, float], hang: bool
) -> Verdict:
    """The answer that a machine computes too long, or one of several that cannot be told apart."""
    candidates = [job.ranks_of_host.get(pipelines.host[at], ()) for at in machines]
    return Verdict(
        cause="hang_not_entered" if hang else "compute_slow",
        level="machine",
        ranks=tuple(sorted({rank for ranks in candidates for rank in ranks})),
        method=method,
        candidates=tuple(candidates) if len(candidates) > 1 else (),
        evidence=evidence,
        coverage=pipelines.coverage,
    )


def stuck(pipelines: Pipelines, machine: int, send: int, method: str) -> Verdict:
    """The answer that one send of a machine does not end: its NIC is down, or that of its receiver."""
    ends = sorted({int(pipelines.stuck[machine, send]), int(pipelines.stuck_to[machine, send])} - {UNKNOWN})
    return Verdict(
        cause="hang_hardware",
        level="device",
        ranks=tuple(ends),
        method=method,
        candidates=tuple((rank,) for rank in ends) if len(ends) > 1 else (),
        evidence={"stage": float(pipelines.stage[machine]), "send": float(send)},
        coverage=pipelines.coverage,
    )
