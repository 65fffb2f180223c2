"""Ends that tell nothing: those that are the call's own time once more, and those that are the host's, of a call that
only queues the work and returns at once, whatever the GPU does.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools
from diagnosis.columns import integers, nullable

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
    megabytes, us = np.median(size[told]) / 1e6, np.median(took_ns) / 1e3
    why = "the host's, which only queues the work, and taken for unknown"
    everywhere = np.ones(table.num_rows, dtype=np.bool_)
    return _without_ends(table, everywhere), f"ends are {why}: in the median {megabytes:.3g} MB in {us:.3g} us"


def without_copied_ends(table: pa.Table) -> tuple[pa.Table, str | None]:
    """The table without the ends of ranks that tell the time of its call as that of each end, and whose they are; None:
    nobody's.
    """
    rank, call_ns, end_ns = (integers(table, name) for name in ("rank", "call_ns", "end_ns"))
    told = end_ns >= 0
    differ = np.bincount(rank, weights=told & (end_ns != call_ns)) > 0
    copied = told & ~differ[rank]
    if not copied.any():
        return table, None
    first, *others = np.unique(rank[copied]).tolist()
    whose = f"{first} (and of {len(others)} more)" if others else first
    return _without_ends(table, copied), f"ends of rank {whose} are the times of calls, and taken for unknown"


def _without_ends(table: pa.Table, rows: Bools) -> pa.Table:
    """The table without starts and ends in some rows."""
    for name in ("start_ns", "end_ns"):
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        times = integers(table, name)
        table = table.set_column(at, field, nullable(times, (times >= 0) & ~rows, field.type))
    return table
