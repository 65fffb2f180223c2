"""Records of telemetry.operator_windows as a search wants them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Floats
from diagnosis.columns import codes, integers
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operator_graph.needs import Series


def statistics(batches: Iterable[pa.RecordBatch]) -> WindowStatistics:
    """What operators usually last, of all rows that tell it."""
    return WindowStatistics.joined([_statistics(batch) for batch in batches])


def series(batches: Iterable[pa.RecordBatch]) -> Iterator[Series]:
    """The series, of the rows that hold one; pairs of which one is below zero are left out."""
    for batch in batches:
        for row in batch.filter(pc.is_valid(batch.column("series"))).to_pylist():
            pairs = [(pair["operator_ns"], pair["iteration_ns"]) for pair in row["series"]]
            pairs = [pair for pair in pairs if min(pair) >= 0]
            yield Series(
                row["rank"],
                row["communicator"],
                row["position"],
                tuple(operator_ns for operator_ns, _ in pairs),
                tuple(iteration_ns for _, iteration_ns in pairs),
            )


def _statistics(batch: pa.RecordBatch) -> WindowStatistics:
    table = pa.Table.from_batches([batch.filter(pc.is_valid(batch.column("mean_ns")))])
    communicator, names = codes(table, "communicator")
    return WindowStatistics(
        rank=integers(table, "rank"),
        communicator=communicator,
        position=integers(table, "position"),
        count=integers(table, "samples"),
        mean=_floats(table, "mean_ns"),
        std=_floats(table, "std_ns"),
        q1=_floats(table, "q1_ns"),
        q2=_floats(table, "q2_ns"),
        q3=_floats(table, "q3_ns"),
        communicators=tuple(names),
    )


def _floats(table: pa.Table, name: str) -> Floats:
    """A column of durations; NaN where it is null."""
    return np.asarray(table.column(name).cast(pa.float64()).to_numpy(), dtype=np.float64)
