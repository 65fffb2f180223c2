"""Who met whom in which operator, when all of them had entered it and when it ended, on a clock that they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.clocks import Clocks
from diagnosis.job import Job
from diagnosis.operator_graph.log_view import LogView
from diagnosis.operators import UNKNOWN, Operators, last_callers

QUEUED_SHARE = 0.05
"""Collectives that a member leaves before all have called, above which calls are taken to be queued."""


@dataclass(frozen=True, slots=True)
class Met:
    """Every operator and those that it meets; arrays of shape (n,), times on a clock that those share.

    ``following`` is when the rank went on after it (UNKNOWN: not known), ``last`` the row of the member that entered
    last, ``entered`` when it did; ``complete``: all members were seen,
    on clocks that can be compared. ``amid``: the rank's clock was set in this iteration, which tells no durations.
    """

    keys: Ints
    call: Ints
    following: Ints
    end: Ints
    last: Ints
    entered: Ints
    complete: Bools
    amid: Bools


def meet(view: LogView, clocks: Clocks) -> Met:
    operators = view.operators
    shift = clocks.correction(view.clock_of_rank, operators.rank, operators.iteration)
    call = operators.call_ns - shift
    keys = operators.meeting_keys
    last, entered, seen = last_callers(keys, call)
    complete = seen >= _expected_members(operators, view.job)
    complete &= _alike(keys, clocks.islands(view.clock_of_rank, operators.rank, operators.iteration))
    following = operators.next_calls
    following = np.where(following == UNKNOWN, UNKNOWN, following - shift)
    end = np.where(alone(operators, view.job), call, _ends(operators, keys, shift, entered, complete))
    amid = clocks.amid(view.clock_of_rank, operators.rank, operators.iteration)
    return Met(keys, call, following, end, last, entered, complete, amid)


def alone(operators: Operators, job: Job) -> Bools:
    """Which operators, whose end is not known, have a single member: that waits for nobody, and transfers nothing."""
    return np.asarray(~operators.ended & (_expected_members(operators, job) == 1), dtype=np.bool_)


def _expected_members(operators: Operators, job: Job) -> Ints:
    """How many ranks take part in each operator; of a communicator that the job does not list, nobody knows."""
    unknown = len(job.ranks) + 1
    sizes = [len(job.members.get(name, ())) or unknown for name in operators.communicators]
    return np.where(operators.point_to_point, 2, np.array([*sizes, unknown])[operators.communicator])


def _alike(keys: Ints, values: Ints) -> Bools:
    """Whether all operators that meet have the same value; shape (n,)."""
    known = keys != UNKNOWN
    least = np.full(int(keys.max(initial=0)) + 1, np.iinfo(np.int64).max)
    most = np.full(len(least), np.iinfo(np.int64).min)
    np.minimum.at(least, keys[known], values[known])
    np.maximum.at(most, keys[known], values[known])
    return np.asarray(~known | (least == most)[np.maximum(keys, 0)], dtype=np.bool_)


def _first_to_go_on(operators: Operators, keys: Ints, shift: Ints, entered: Ints) -> Ints:
    """When the first member called its next operator: the operator had ended by then, if the log does not say when.

    A sender may go on before its receiver has come, so never before the last member entered.
    """
    following = operators.next_calls
    known = (following != UNKNOWN) & (keys != UNKNOWN)
    if not known.any():
        return np.full(len(operators), UNKNOWN, dtype=np.int64)
    first = np.full(int(keys.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, keys[known], (following - shift)[known])
    ends = first[np.maximum(keys, 0)]
    found = (keys != UNKNOWN) & (ends != np.iinfo(np.int64).max)
    return np.where(found, np.maximum(ends, entered), UNKNOWN)


def _ends(operators: Operators, keys: Ints, shift: Ints, entered: Ints, complete: Bools) -> Ints:
    """Ends on the reference clock: as logged, else from when the members went on."""
    told = _first_to_go_on(operators, keys, shift, entered)
    end = np.where(operators.ended, operators.end_ns - shift, told)
    return np.where(operators.ended | complete, end, UNKNOWN)


def queued(first: Ints, entered: Ints) -> bool:
    """Whether calls only queue operators, and return before these have run: a member goes on (``first``) before the
    last one has ``entered`` more often than lines are wrong.
    """
    return float((first < entered).mean()) > QUEUED_SHARE
