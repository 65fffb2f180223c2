"""Statistics that a few outliers do not move."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from diagnosis.arrays import Floats

NORMAL_MAD = 1.4826
"""A normal distribution's standard deviation over its median distance from the median."""


def of_most(amounts: Sequence[float]) -> float:
    """The greatest of some amounts that at least three in four of them reach; raises ``IndexError`` where there are
    none.
    """
    return sorted(amounts)[len(amounts) // 4]


def median_of_known(values: Floats) -> Floats:
    """The median along the first axis of what is not NaN; NaN where all are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a median of nothing
        return np.asarray(np.nanmedian(values, axis=0), dtype=np.float64)


def running_median(values: Floats, width: int) -> Floats:
    """The median of each value and its neighbours, ``width`` in all, of what is not NaN; fewer values are as they are.

    A single value that differs leaves no trace, and a step stays where it is.
    """
    if len(values) < width:
        return values
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(values, width // 2, mode="symmetric"), width)
    return median_of_known(windows.T)
