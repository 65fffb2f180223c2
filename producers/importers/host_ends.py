"""Ends that are the host's: a call that only queues the work returns at once, whatever the GPU does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnosis.columns import integers

_LEAST_BYTES = 1 << 20
"""Smaller operators may be over at once."""

_LEAST_OPERATORS = 20

_FASTEST = 4_000
"""Bytes a nanosecond, twice as many as any link carries."""


def without_host_ends(table: pa.Table) -> tuple[pa.Table, str | None]:
    """The table without ends where these can only be the host's, and why; None: they may be the GPU's.

    ``table`` has the columns of telemetry.comm_ops. That a rank went on is known all the same, by its next call.
    """
    size, call_ns, end_ns = (integers(table, name) for name in ("bytes", "call_ns", "end_ns"))
    told = (size >= _LEAST_BYTES) & (end_ns >= 0)
    if np.count_nonzero(told) < _LEAST_OPERATORS:
        return table, None
    took_ns = np.maximum(end_ns - np.maximum(call_ns, integers(table, "start_ns")), 1)[told]
    if np.median(size[told] / took_ns) <= _FASTEST:
        return table, None
    for name in ("start_ns", "end_ns"):
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.nulls(table.num_rows, field.type))
    megabytes, us = np.median(size[told]) / 1e6, np.median(took_ns) / 1e3
    why = "the host's, which only queues the work, and taken for unknown"
    return table, f"ends are {why}: in the median {megabytes:.3g} MB in {us:.3g} us"
