"""What a log agent works out next to its logs: what operators usually last, and series of one (Holmes 4.2.2, 4.4).

An operator's duration runs from its call to its end; where no end was logged it is not known. Nothing is kept
between requests: a window is whatever iterations are asked for, as far as the store still has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Floats, Ints
from diagnosis.columns import codes, integers
from diagnosis.irregularity.window import WindowStatistics
from producers.log_store import LogSource
from schemas.catalogue import OPERATOR_WINDOWS

COLUMNS = ("rank", "communicator", "position", "iteration", "call_ns", "end_ns")
"""What of the rows is needed."""

_STATISTICS = ("mean", "std", "q1", "q2", "q3")


def statistics(rows: pa.Table) -> pa.RecordBatch:
    """Records of telemetry.operator_windows of the operators of a window, given by its ``rows``."""
    communicator, names = codes(rows, "communicator")
    position = integers(rows, "position")
    usual = WindowStatistics.of(integers(rows, "rank"), communicator, position, durations(rows), names)
    return OPERATOR_WINDOWS.batch(
        {
            "rank": usual.rank,
            "communicator": _named(usual.communicator, names),
            "position": usual.position,
            "samples": usual.count,
            **{f"{name}_ns": np.rint(getattr(usual, name)).astype(np.int64) for name in _STATISTICS},
        }
    )


def series(logs: LogSource, rows: pa.Table, communicator: str, position: int) -> pa.RecordBatch:
    """Records of telemetry.operator_windows: of each rank how long one operator and its iterations took.

    ``rows`` are that operator's. Iterations of which either is not known are left out, and so are ranks without any.
    """
    rank, iteration, lasted = integers(rows, "rank"), integers(rows, "iteration"), durations(rows)
    told = []
    for one in np.unique(rank).tolist():
        own = np.flatnonzero((rank == one) & ~np.isnan(lasted))
        seen, first = np.unique(iteration[own], return_index=True)
        lengths = _lengths(logs, one, seen.tolist())
        columns = (seen.tolist(), lasted[own[first]].astype(np.int64).tolist(), lengths)
        known = [triple for triple in zip(*columns, strict=True) if triple[2] is not None]
        names = ("iteration", "operator_ns", "iteration_ns")
        if known:
            told.append((one, [dict(zip(names, triple, strict=True)) for triple in known]))
    return OPERATOR_WINDOWS.from_rows(
        [
            {
                "rank": one,
                "communicator": communicator,
                "position": position,
                "samples": len(of_rank),
                "series": of_rank,
            }
            for one, of_rank in told
        ]
    )


def durations(rows: pa.Table) -> Floats:
    """How long each operator lasted, in ns; shape (rows,), NaN where its end was not logged."""
    end = integers(rows, "end_ns")
    return np.where(end < 0, np.nan, end - integers(rows, "call_ns"))


def _lengths(logs: LogSource, rank: int, iterations: Iterable[int]) -> list[int | None]:
    """How long a rank's iterations took, in ns; None: not known."""
    lengths = []
    for iteration in iterations:
        spans = logs.spans(iteration, [rank])
        [*length] = (spans.end_ns - spans.start_ns)[(spans.end_ns >= 0) & (spans.start_ns >= 0)]
        lengths.append(int(length[0]) if length else None)
    return lengths


def _named(code: Ints, names: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), pa.array(names, pa.string()))
