"""Working with a decoded batch, as whoever reads it does."""

from __future__ import annotations

import pyarrow as pa


def use(batch: pa.RecordBatch) -> None:
    """What was let through can be worked with: Arrow ends the process where it cannot."""
    batch.to_pylist()
    pa.Table.from_batches([batch, batch]).combine_chunks()
    columns = list(batch.columns)
    while columns:
        column = columns.pop()
        pa.concat_arrays([column, column])
        if pa.types.is_list(column.type):
            columns += [column.values, column.flatten()]
        elif pa.types.is_struct(column.type):
            columns += column.flatten()
