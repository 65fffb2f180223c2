"""The operator that ends a rank's iterations, told by what its NIC sends (Pulse 7.2.1).

Nothing in the traffic says where an iteration ends. But operators come again, and of those that come least often one
is followed by the longest pause: what is computed before the next iteration's first traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median, median_low

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.collective.participation import CUSTOM, UNKNOWN, Participation
from diagnosis.columns import joint_codes

_LEAST = 2
_SPREAD = 0.5
"""Share of a rank's rows, less one period, that an operator must recur over: what is only called at the start does
not."""


LOST = 1.5
"""Marks of custom collectives that are further apart than so many usual iterations may have had others between them."""

_MOST = 1.5
"""By how much more often than most ranks' marks one may come, and how much sooner than their iterations last."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The last operator of a rank's iterations; ``expected`` is ``UNKNOWN`` of custom collectives, whose sizes differ.

    ``every``: by how much its sequence number grows from one to the next; 0 of custom collectives.
    """

    communicator: str
    op: str
    expected: int
    every: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Marked:
    """A rank's mark, and the rows in which it was found, in order of calls."""

    mark: Mark
    rows: Ints


def find_marks(table: Participation) -> dict[int, Marked]:
    """The mark of each rank that shows one. ``table``: some iterations, from anywhere on."""
    size = np.where(table.custom, UNKNOWN, table.expected)
    kind = joint_codes(table.communicator, table.op, size) if len(table) else table.rank
    found = {}
    for rank in np.unique(table.rank).tolist():
        own = np.flatnonzero(table.rank == rank)
        own = own[np.argsort(table.call_ns[own], kind="stable")]
        chosen = _last_of_cycle(kind[own], _pauses(table, own))
        if chosen is not None:
            rows = own[kind[own] == chosen]
            found[rank] = Marked(_mark(table, rows), rows)
    # where telemetry was lost what comes several times an iteration may look like its end
    apart = {rank: np.diff(table.call_ns[one.rows]) for rank, one in found.items()}
    # the shortest iteration: a job that becomes slow meanwhile has long and short ones
    least = median(int(each.min()) for each in apart.values()) / _MOST if apart else 0.0
    most = median(len(one.rows) for one in found.values()) * _MOST if found else 0.0
    kept = {rank: one for rank, one in found.items() if len(one.rows) <= most and np.median(apart[rank]) >= least}
    return _with_steps(table, kept)


def _with_steps(table: Participation, found: Mapping[int, Marked]) -> dict[int, Marked]:
    """The same marks, and by how much their sequence numbers grow, as is usual for all members: what telemetry has lost
    of one makes its own steps larger."""
    steps: dict[Mark, list[int]] = {}
    for one in found.values():
        steps.setdefault(one.mark, []).extend(np.diff(table.instance[one.rows]).tolist())
    every = {mark: 0 if mark.op == CUSTOM else max(median_low(each), 1) for mark, each in steps.items()}
    return {rank: replace(one, mark=replace(one.mark, every=every[one.mark])) for rank, one in found.items()}


def numbered(table: Participation, marked: Mapping[int, Marked]) -> dict[int, Ints]:
    """The iterations that each rank's marks end: the same numbers at the same time, as clocks of hosts nearly agree.

    0 is the first one that any rank shows. Others are held to the rank that shows most; what they show of a time of
    which that one shows nothing, as hosts are polled at different times, tells only where there is nothing else.
    """
    if not marked:
        return {}
    called = {rank: table.call_ns[one.rows] for rank, one in marked.items()}
    first = max(called, key=lambda rank: (len(called[rank]), -called[rank][0]))
    reference, known = called[first], _ordinals(table, marked[first])
    usually = float(np.median(np.diff(reference) / np.diff(known))) if len(reference) > 1 else np.inf
    numbers = {}
    for rank, calls in called.items():
        beyond = np.minimum(calls - reference[0], 0) + np.maximum(calls - reference[-1], 0)
        at = np.interp(calls, reference, known) + beyond / usually
        within = np.abs(beyond) < usually / 2
        # clocks may be off by half an iteration: only marks that are far apart have others between them
        apart = np.where(np.diff(calls) < LOST * usually, 1, np.rint(np.diff(at)).astype(np.int64))
        ordinal = _ordinals(table, marked[rank], apart)
        shift = np.median((np.rint(at) - ordinal)[within if within.any() else slice(None)])
        numbers[rank] = ordinal + int(np.rint(shift))
    least = min(int(of_rank[0]) for of_rank in numbers.values())
    return {rank: of_rank - least for rank, of_rank in numbers.items()}


def _ordinals(table: Participation, one: Marked, apart: Ints | None = None) -> Ints:
    """Iterations from a rank's first mark to each: those that telemetry has lost count as well.

    Sequence numbers tell or, of custom collectives, which have none, how far ``apart`` marks are among another rank's.
    """
    if one.mark.every:
        steps = np.rint(np.diff(table.instance[one.rows]) / one.mark.every).astype(np.int64)
    else:
        steps = np.ones(len(one.rows) - 1, dtype=np.int64) if apart is None else apart
    return np.append(0, np.cumsum(np.maximum(steps, 1)))


def _last_of_cycle(kind: Ints, pause: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> int | None:
    """Of the kinds that come again least often, throughout, the one with the longest pause after it."""
    names, count = np.unique(kind, return_counts=True)
    best: tuple[int, float, int] | None = None
    for name, times in zip(names.tolist(), count.tolist(), strict=True):
        at = np.flatnonzero(kind == name)
        spread = (at[-1] - at[0]) / max(len(kind) * (times - 1) / times, 1.0)
        if times < _LEAST or spread < _SPREAD or not _holds_all(kind, at):
            continue
        after = pause[at][~np.isnan(pause[at])]
        rated = times, -float(np.median(after)) if len(after) else 0.0, name
        best = rated if best is None else min(best, rated)
    return None if best is None else best[2]


def _holds_all(kind: Ints, at: Ints) -> bool:
    """Whether all that comes as often as an operator comes between most of its occurrences, so that these are cycles
    and no row of equal operators within one."""
    cycle = np.searchsorted(at, np.arange(len(kind)), side="right")
    inside = (cycle > 0) & (cycle < len(at))
    names, count = np.unique(kind, return_counts=True)
    often = names[count >= len(at)]
    pairs = np.unique(np.stack((kind[inside], cycle[inside])), axis=1)
    cycles = {name: int(np.count_nonzero(pairs[0] == name)) for name in often.tolist()}
    return all(2 * times >= len(at) - 1 for times in cycles.values())


def _pauses(table: Participation, rows: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """From the end of each row's traffic to the start of the next one's; NaN where one of them was not seen."""
    pause = np.full(len(rows), np.nan)
    start, end = table.start_ns[rows], table.end_ns[rows]
    seen = (start[1:] != UNKNOWN) & (end[:-1] != UNKNOWN)
    pause[:-1] = np.where(seen, start[1:] - end[:-1], np.nan)
    return pause


def _mark(table: Participation, rows: Ints) -> Mark:
    first = int(rows[0])
    return Mark(
        table.communicators[table.communicator[first]],
        table.ops[table.op[first]],
        UNKNOWN if table.custom[first] else int(table.expected[first]),
    )
