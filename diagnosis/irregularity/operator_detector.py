"""Which operators last longer than they usually do (Holmes 4.2.2): the common shape, and the simplest detector.

A detector learns from one series an operator (its durations over the window, NaN where a line was lost) and
judges new durations of the same operators. Every detector shares ``fit`` and ``predict``, so that the
search takes any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LEAST_SAMPLES = 3
"""An operator seen less often has no usual duration; it is never called abnormal."""


class OperatorDetector(Protocol):
    """Learns usual durations, tells abnormal ones."""

    def fit(self, history_ns: Floats) -> Self:
        """Learn from durations of shape (iterations, operators); NaN: not seen."""
        ...

    def predict(self, duration_ns: Floats) -> Bools:
        """Which of the durations, shape (operators,), are abnormal; a NaN is not."""
        ...


@dataclass
class SigmaDetector:
    """Abnormal: beyond the mean by ``sigmas`` standard deviations of the operator's own series.

    Holmes' appendix F calls mu +- 1 sigma its 3-sigma rule; only the upper side says that an operator lasted long.
    """

    sigmas: float = 3.0
    _limit: Floats = field(default_factory=lambda: np.empty(0), repr=False)

    def fit(self, history_ns: Floats) -> Self:
        """Learn each operator's mean and standard deviation from durations of shape (iterations, operators)."""
        if history_ns.ndim != 2:
            raise ValueError(f"history has shape (iterations, operators), not {history_ns.shape}")
        known = ~np.isnan(history_ns)
        count = known.sum(axis=0)
        enough = count >= LEAST_SAMPLES
        filled = np.where(known, history_ns, 0.0)
        mean = np.divide(filled.sum(axis=0), count, out=np.zeros(len(count)), where=enough)
        squares = np.where(known, (history_ns - mean) ** 2, 0.0).sum(axis=0)
        deviation = np.sqrt(np.divide(squares, count - 1, out=np.zeros(len(count)), where=enough))
        self._limit = np.where(enough, mean + self.sigmas * deviation, np.inf)
        return self

    def predict(self, duration_ns: Floats) -> Bools:
        """Which of the durations, shape (operators,), exceed their operator's limit."""
        if duration_ns.shape != self._limit.shape:
            raise ValueError(f"{len(self._limit)} operators were learned, {len(duration_ns)} are asked about")
        return np.asarray(np.nan_to_num(duration_ns, nan=-np.inf) > self._limit, dtype=np.bool_)
