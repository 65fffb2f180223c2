"""Which operators of an iteration lasted longer than they usually do, as Algorithm 1 asks (Holmes 4.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diagnosis.irregularity.operator_detector import LEAST_SAMPLES, OperatorDetector
from diagnosis.operator_graph.delays import end_times
from diagnosis.operator_graph.logs import Logs
from diagnosis.operators import UNKNOWN, Bools, Ints, Operators, meeting_keys, numbered


class Call(NamedTuple):
    """One operator, whatever else is fetched meanwhile: rows move, this does not."""

    rank: int
    call_ns: int
    communicator: str
    seq: int
    p2p_seq: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The fetched logs with the verdict on each operator of the iteration; arrays of shape (n,).

    An operator that is not ``judged`` (of another iteration, its end or what is usual not known) is neither normal
    nor abnormal. ``excess_ns`` is its duration beyond the mean, ``keys`` say what meets (``meeting_keys``),
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

    def abnormal_before(self, rank: int, row: int | None = None) -> list[Call]:
        """The rank's abnormal operators that it called before the row's, nearest first."""
        low, high = np.searchsorted(self.operators.rank, [rank, rank + 1])
        rows = low + np.flatnonzero(self.abnormal[low:high])
        return [self.call(int(at)) for at in rows[::-1] if row is None or at < row]


def judge(logs: Logs, iteration: int, baseline: Sequence[int], detector: OperatorDetector) -> Verdicts:
    """Let a detector learn the baseline iterations of everything fetched so far, and judge ``iteration``."""
    operators = logs.operators
    learned = np.array(sorted(set(baseline)), dtype=np.int64)
    end = end_times(logs, logs.clocks())
    duration = np.where(end == UNKNOWN, np.nan, end - operators.call_ns)
    series = numbered(operators.rank, operators.communicator, operators.position + 1)
    here = operators.iteration == iteration
    history = np.full((len(learned), int(series.max(initial=-1)) + 1), np.nan)
    past = np.flatnonzero(np.isin(operators.iteration, learned) & (operators.position != UNKNOWN))
    history[np.searchsorted(learned, operators.iteration[past]), series[past]] = duration[past]
    now = np.full(history.shape[1], np.nan)
    now[series[here]] = duration[here]
    count = (~np.isnan(history)).sum(axis=0)
    mean = np.divide(np.nansum(history, axis=0), count, out=np.full(len(count), np.nan), where=count > 0)
    judged = here & ((count >= LEAST_SAMPLES) & ~np.isnan(now))[series]
    abnormal = detector.fit(history).predict(now)[series]
    excess = np.nan_to_num(now - mean)[series].astype(np.int64)
    return Verdicts(operators, judged, judged & abnormal, excess, meeting_keys(operators), here)
