"""A log that ends while every rank waits for some that have not called: who these are, and in which operator.

It may be of a hang, and looks the same where it was copied, or the job stopped, just then. Whoever logs no operator's
end tells nothing of this, and neither does a log in which some rank goes on. Where all have called what has not ended,
its end may only not have been logged yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.job import Job
from diagnosis.operator_graph.leaf import OperatorRef, reference
from diagnosis.operators import UNKNOWN, Operators

LEAST_ENDED = 0.9
"""Where fewer of a log's operators carry an end, one without an end may well have ended."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """``waiting`` ranks are in operators that have not ended, ``awaited`` ones in none; one of those they have not
    called.

    ``operator`` is the first one that an awaited rank has not called, by a rank that waits in it.
    """

    iteration: int
    waiting: tuple[int, ...]
    awaited: tuple[int, ...]
    operator: OperatorRef


def standstill(operators: Operators, job: Job) -> Standstill | None:
    """Where the log of a job ends with each rank that logs either waiting or awaited by one that waits; None: it does
    not, the job was over by then, or that is not known.
    """
    if job.ended_ns is not None or not len(operators) or operators.ended.mean() < LEAST_ENDED:
        return None
    is_last = np.r_[operators.rank[1:] != operators.rank[:-1], True]
    waiting = set(operators.rank[is_last & ~operators.ended].tolist())
    idle = set(operators.rank[is_last & operators.ended].tolist())
    lacking = _lacking(operators, job)
    awaited = {rank for _, ranks in lacking for rank in ranks}
    roots = awaited & idle
    if not roots or not waiting or not idle <= awaited:
        return None
    row = min((row for row, ranks in lacking if ranks & roots), key=lambda row: int(operators.call_ns[row]))
    operator = reference(operators, row)
    return Standstill(int(operators.iteration[row]), tuple(sorted(waiting)), tuple(sorted(roots)), operator)


def _lacking(operators: Operators, job: Job) -> list[tuple[int, set[int]]]:
    """The operators of the last iterations that have not ended, a row of each, and who has yet to call them."""
    keys = operators.meeting_keys
    newest = operators.iteration >= operators.iteration.max() - 1
    open_keys = np.unique(keys[~operators.ended & newest & (keys != UNKNOWN)])
    rows = np.flatnonzero(np.isin(keys, open_keys))
    rows = rows[np.argsort(keys[rows], kind="stable")]
    meetings = np.split(rows, np.flatnonzero(np.diff(keys[rows])) + 1) if len(rows) else []
    found = []
    for met in meetings:
        row = int(met[~operators.ended[met]][0])
        found.append((row, {*operators.participants(row, job.members)} - {*operators.rank[met].tolist()}))
    return found
