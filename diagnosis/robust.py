"""Statistics that a few outliers do not move."""

from __future__ import annotations

from collections.abc import Sequence

NORMAL_MAD = 1.4826
"""A normal distribution's standard deviation over its median distance from the median."""


def of_most(amounts: Sequence[float]) -> float:
    """The greatest of some amounts that at least three in four of them reach; raises ``IndexError`` where there are
    none.
    """
    return sorted(amounts)[len(amounts) // 4]
