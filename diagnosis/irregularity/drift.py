"""What drifts while a job runs, and how far (Holmes 4.2.2, appendix E).

Over weeks everything takes longer, and thresholds in ns that were right no longer are. Instead of labelling and
training anew, each threshold is moved by as much as its feature's level has moved (``forest``, ``tuning``). The
scale-free features have nothing to tune: they are ratios to the very window that drifts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from diagnosis.irregularity.features import IN_NS, complete, matrix
from diagnosis.irregularity.samples import Samples
from diagnosis.irregularity.window import WindowStatistics

Statistic = Literal["mean", "p75", "p99"]

STATISTICS: tuple[Statistic, ...] = get_args(Statistic)


@dataclass(frozen=True, slots=True)
class Levels:
    """Where the features in ns stand, by name, in each of ``STATISTICS``; in ns. ``ranks`` are those of the operators
    that they are of: stages call other operators, so that levels of others tell of no drift. Empty: any. ``others`` are
    those of other numbers of pivots.
    """

    mean: Mapping[str, float]
    p75: Mapping[str, float]
    p99: Mapping[str, float]
    ranks: tuple[int, ...] = ()
    others: tuple[Levels, ...] = ()

    @classmethod
    def of(cls, samples: Samples) -> Levels:
        """Of unlabelled operators of any iterations; raises ``ValueError`` where none has every feature."""
        features = matrix(samples, IN_NS)
        known = features[complete(features)].astype(np.float64)
        if not len(known):
            raise ValueError("none of the operators has a duration and a usual one")

        return cls._of_columns(known)

    @classmethod
    def of_usual(cls, usual: WindowStatistics, usual_iteration_ns: float) -> Levels:
        """Of what operators usually last, which no irregular iteration enters: durations stand where their means do.

        Raises ``ValueError`` where nothing is usual.
        """
        if not len(usual) or not np.isfinite(usual_iteration_ns):
            raise ValueError("neither operators nor iterations have a usual duration")
        iteration = np.full(len(usual), usual_iteration_ns)
        columns = {
            "elapsed": usual.mean,
            **{name: getattr(usual, name) for name in ("mean", "std", "q1", "q2", "q3")},
            "iqr": usual.q3 - usual.q1,
            "iteration": iteration,
            "iteration_mean": iteration,
        }
        of_columns = cls._of_columns(np.column_stack([columns[name] for name in IN_NS]))
        return replace(of_columns, ranks=tuple(np.unique(usual.rank).tolist()))

    @classmethod
    def _of_columns(cls, known: npt.NDArray[np.float64]) -> Levels:
        """Of the features in ns of some operators; shape (n, features)."""

        def by_name(values: npt.NDArray[np.float64]) -> dict[str, float]:
            return dict(zip(IN_NS, values.tolist(), strict=True))

        p75, p99 = np.percentile(known, [75, 99], axis=0)
        return cls(by_name(known.mean(axis=0)), by_name(p75), by_name(p99))

    def of_ranks(self, ranks: tuple[int, ...]) -> Levels | None:
        """Those of the operators of exactly these ranks; None where they are not known."""
        return next((levels for levels in (self, *self.others) if levels.ranks in ((), ranks)), None)

    def shift_since(self, earlier: Levels, statistic: Statistic = "mean") -> dict[str, float]:
        """How far each feature has moved since, ns."""
        now, then = getattr(self, statistic), getattr(earlier, statistic)
        return {name: now[name] - then[name] for name in IN_NS}
