"""Turns a log into that of a host that queues its calls: it runs ahead of the GPU, and waits only now and then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers

SPACING_NS = 400_000
"""From one call that is only queued to the next."""


def queued(table: pa.Table, tensor: Callable[[str], bool], behind_ns: Callable[[Ints, Ints], Ints]) -> pa.Table:
    """The table with the calls on tensor communicators at the times at which a host would queue them.

    ``table`` has ends, and is sorted by rank and call order. A host waits for its GPU at every other operator: it goes
    on when that has ended, queues the tensor group's operators until the next one, and comes to that when the GPU does.
    ``behind_ns`` of (rank, iteration) is what the GPU has to do after a tensor group's last operator.
    """
    rank, iteration = integers(table, "rank"), integers(table, "iteration")
    call, end = integers(table, "call_ns").copy(), integers(table, "end_ns")
    communicator, names = codes(table, "communicator")
    waits = ~np.isin(communicator, [code for code, name in enumerate(names) if tensor(name)])
    late = behind_ns(rank, iteration)
    call[waits] += late[waits]
    at = np.flatnonzero(waits)
    before = np.searchsorted(at, np.arange(len(rank))) - 1
    known = ~waits & (before >= 0)
    resumed = at[np.maximum(before, 0)]
    known &= rank[resumed] == rank
    nth = np.arange(len(rank)) - resumed
    ahead = end[resumed] + late[resumed] + nth * SPACING_NS
    call[known] = np.minimum(call, ahead)[known]
    place = table.schema.get_field_index("call_ns")
    table = table.set_column(place, table.schema.field(place), pa.array(call))
    return table.take(pa.array(np.lexsort((call, rank))))
