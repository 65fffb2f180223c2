"""Sends that were waited for long after they were posted: what their log tells is when somebody waited, not their end.

A rank may post its sends and wait for all of them once its iteration is done. It computes meanwhile, and takes part in
other operators, so that the time until then is not the send's. Where the rank does have to wait for such a send in the
end, that is taken for computing: nobody knows any better.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import integers

_OPEN = np.iinfo(np.int64).max
"""Stands for an end that is not known."""

_BLOCKING_SHARE = 0.5
"""Of a rank's operators that are no sends: above it a rank waits for one of them before it calls the next."""


def without_late_waits(rows: pa.Table) -> pa.Table:
    """The rows of telemetry.comm_ops, in any order, without the ends of sends that were waited for late.

    That is a send which had not ended when its rank called an operator after another one, called after the send, was
    done. Where calls only queue operators (as on a GPU's stream) ends are told by the device, and all are kept.
    """
    rank, call_ns, end_ns = (integers(rows, name) for name in ("rank", "call_ns", "end_ns"))
    sends = np.asarray(pc.fill_null(pc.equal(rows.column("op"), "send"), False).to_numpy(), dtype=np.bool_)
    if not (sends & (end_ns >= 0)).any():
        return rows
    order = np.lexsort((integers(rows, "call_order"), call_ns, rank))
    end_ns = np.where(end_ns < 0, _OPEN, end_ns)
    bounds = np.flatnonzero(np.diff(rank[order])) + 1
    late = np.zeros(len(rank), dtype=np.bool_)
    for of_rank in np.split(order, bounds):
        late[of_rank] = _late(call_ns[of_rank], end_ns[of_rank], sends[of_rank])
    if not late.any():
        return rows
    at = rows.schema.get_field_index("end_ns")
    ends = pc.if_else(pa.array(late), pa.scalar(None, rows.schema.field(at).type), rows.column("end_ns"))
    return rows.set_column(at, rows.schema.field(at), ends)


def _late(call_ns: Ints, end_ns: Ints, sends: Bools) -> Bools:
    """Which of a rank's operators, in the order of their calls, are sends that were waited for late; shape (n,)."""
    known = end_ns != _OPEN
    others = np.flatnonzero(~sends)
    waited = end_ns[others] <= np.append(call_ns[others[1:]], _OPEN)
    if not waited[known[others]].any() or waited[known[others]].mean() <= _BLOCKING_SHARE:
        return np.zeros(len(sends), dtype=np.bool_)
    later_done = np.append(np.minimum.accumulate(end_ns[::-1])[::-1][1:], _OPEN)
    went_on = np.append(call_ns, _OPEN)[np.searchsorted(call_ns, later_done, side="right")]
    return np.asarray(sends & known & (went_on < end_ns), dtype=np.bool_)
