"""Operators beside their windows, made by hand."""

from typing import Any

import numpy as np
import numpy.typing as npt

from diagnosis.irregularity.samples import Length, Samples
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operators import UNKNOWN

MS = 1_000_000
NAN = float("nan")


def samples(windows: list[list[float]], now: list[float], length: Length | None = None, **columns: Any) -> Samples:
    """An operator a window, whose durations in ms it holds; NaN: a lost line. ``now`` are the durations to judge."""
    of = np.concatenate([np.full(len(window), at) for at, window in enumerate(windows)]).astype(np.int64)
    past = WindowStatistics.of(
        np.zeros_like(of), np.zeros_like(of), of, np.array([d for window in windows for d in window]) * MS, ("c",)
    )
    zeros, places = np.zeros(len(windows), dtype=np.int64), np.arange(len(windows))
    rows = past.rows(zeros, zeros, places, ("c",))
    seen = rows != UNKNOWN

    def beside(column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.array([column[row] if row != UNKNOWN else NAN for row in rows], dtype=np.float64)

    length = length or Length(2e9, 1e9)
    made: dict[str, Any] = {
        "duration_ns": np.array(now, dtype=np.float64) * MS,
        "count": np.where(seen, np.nan_to_num(beside(past.count)), 0).astype(np.int64),
        **{name: beside(getattr(past, name)) for name in ("mean", "std", "q1", "q2", "q3")},
        "iteration_ns": np.full(len(windows), length.iteration_ns),
        "usual_iteration_ns": np.full(len(windows), length.usual_ns),
        "rank": zeros,
        "size": np.full(len(windows), 1 << 20),
        "pattern": zeros,
        "phase": zeros,
        "place": np.zeros(len(windows)),
    }
    return Samples(**{**made, **columns})
