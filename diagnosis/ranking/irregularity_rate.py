"""Irregularity rate (Holmes 4.4): how much an operator's time explains the iteration's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def irregularity_rate(operator_ns: npt.ArrayLike, iteration_ns: npt.ArrayLike) -> float:
    """Pearson correlation of two series of shape (n,); 0 where it is negative or not defined.

    A series that is constant, has fewer than three known pairs or correlates negatively explains nothing.
    """
    x, y = np.asarray(operator_ns, dtype=float), np.asarray(iteration_ns, dtype=float)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"two series of one length are needed, not {x.shape} and {y.shape}")
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:  # a mean that is rounded must not pass for variance
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return max(0.0, min(1.0, float(x @ y) / scale)) if scale > 0 else 0.0


def rate_told(operator_ns: Sequence[float | None], iteration_ns: Sequence[float | None], stored: float | None) -> float:
    """The rate that a finding tells of: of its series, or the stored one where it carries no pair of series.

    The series decide, because anybody can check them; findings without them (of methods that correlate nothing, or
    made when series were not kept) would else count for nothing. In [0, 1]; what is not a number explains nothing.
    """
    if operator_ns and len(operator_ns) == len(iteration_ns):
        return irregularity_rate(np.array(operator_ns, dtype=float), np.array(iteration_ns, dtype=float))
    return min(1.0, max(0.0, stored)) if stored is not None and np.isfinite(stored) else 0.0
