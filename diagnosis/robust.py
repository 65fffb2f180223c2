"""Statistics that a few outliers do not move."""

from __future__ import annotations

NORMAL_MAD = 1.4826
"""A normal distribution's standard deviation over its median distance from the median."""
