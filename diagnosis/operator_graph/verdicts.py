"""Which operators of an iteration lasted longer than they usually do, as Algorithm 1 asks (Holmes 4.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.irregularity.operator_detector import OperatorDetector, judgeable
from diagnosis.irregularity.samples import Length, Samples
from diagnosis.irregularity.tuning import tuned_to
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operator_graph.delays import end_times
from diagnosis.operator_graph.logs import Logs
from diagnosis.operators import UNKNOWN, Operators


class Call(NamedTuple):
    """One operator, whatever else is fetched meanwhile: rows move, this does not."""

    rank: int
    call_ns: int
    communicator: str
    seq: int
    p2p_seq: int


@dataclass(frozen=True)
class Verdicts:
    """The fetched logs with the verdict on each operator of the iteration; arrays of shape (n,).

    An operator that is not ``judged`` (of another iteration, its end or what is usual not known) is neither normal
    nor abnormal. ``excess_ns`` is its duration beyond the mean, ``keys`` say what meets (``Operators.meeting_keys``),
    ``here`` what belongs to the iteration.
    """

    operators: Operators
    judged: Bools
    abnormal: Bools
    excess_ns: Ints
    keys: Ints
    here: Bools

    def call(self, row: int) -> Call:
        """The operator of a row."""
        operators = self.operators
        return Call(
            int(operators.rank[row]),
            int(operators.call_ns[row]),
            operators.communicators[operators.communicator[row]],
            int(operators.seq[row]),
            int(operators.p2p_seq[row]),
        )

    def row(self, call: Call) -> int:
        """The row of an operator."""
        low, high = np.searchsorted(self.operators.rank, [call.rank, call.rank + 1])
        at = low + np.flatnonzero(self.operators.call_ns[low:high] == call.call_ns)
        return next(int(row) for row in at if self.call(int(row)) == call)

    def abnormal_before(self, rank: int, row: int | None = None, *, most: int | None = None) -> list[Call]:
        """The rank's abnormal operators that it called before the row's, nearest first, no more than ``most``."""
        low, high = np.searchsorted(self.operators.rank, [rank, rank + 1])
        rows = low + np.flatnonzero(self.abnormal[low : high if row is None else min(high, row)])
        return [self.call(int(at)) for at in rows[::-1][:most]]

    def met(self, row: int) -> Ints:
        """The iteration's rows of the row's operator, on whichever rank; none where it has no key."""
        low, high = np.searchsorted(self._keys_in_order, [self.keys[row], self.keys[row] + 1])
        return self._by_key[low:high]

    @cached_property
    def _by_key(self) -> Ints:
        rows = np.flatnonzero(self.here & (self.keys != UNKNOWN))
        return rows[np.argsort(self.keys[rows], kind="stable")]

    @cached_property
    def _keys_in_order(self) -> Ints:
        return self.keys[self._by_key]


def judge(
    logs: Logs,
    iteration: int,
    baseline: Sequence[int],
    detector: OperatorDetector,
    length: Length | None = None,
    pivots: Sequence[int] = (),
) -> Verdicts:
    """Judge ``iteration`` of everything fetched so far by what its operators lasted in the baseline iterations: by the
    statistics of these that came, or where rows were asked for instead, by theirs.

    ``length``: how long the iteration took; detectors that ask for it call nothing abnormal where it is not given.
    ``pivots``: what their operators usually last tells a detector how far the job has drifted, where that is known of
    all of them.
    """
    operators = logs.operators
    end = end_times(logs.view, logs.view.clocks)
    duration = np.where(end == UNKNOWN, np.nan, end - operators.call_ns)
    here, past = operators.iteration == iteration, np.isin(operators.iteration, sorted(set(baseline)))
    usual = logs.usual if logs.window else WindowStatistics.of_operators(operators.take(past), duration[past])
    length = length or Length(np.nan, np.nan)
    samples = Samples.of(operators.take(here), duration[here], usual, length, logs.job.members)
    judged, abnormal, excess = here.copy(), np.zeros_like(here), np.zeros(len(operators), dtype=np.int64)
    judged[here] = judgeable(samples)
    own = usual.take(np.isin(usual.rank, list(pivots)))
    known = set(pivots) <= set(own.rank.tolist())  # what some of them last is no drift of what all do
    abnormal[here] = (tuned_to(detector, own, length.usual_ns) if known else detector).predict(samples)
    excess[here] = np.nan_to_num(samples.duration_ns - samples.mean)
    return Verdicts(operators, judged, judged & abnormal, excess, operators.meeting_keys, here)
