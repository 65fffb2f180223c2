"""When a rank went on after each operator: what bounds the end of one whose end was not logged.

Rows of one communicator do not show it, since the rank's next call may be of another one. Its log does, so whoever
keeps that says it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import integers
from diagnosis.operators import UNKNOWN, calls_after, in_order
from schemas.comm_ops import TOPIC

COLUMNS = ("rank", "iteration", "call_order", "call_ns", "end_ns", "peer", "op", "next_call_ns")
"""What of the rows tells it."""


def lacks_ends(rows: pa.Table) -> bool:
    """Whether any operator's end is not known."""
    return bool(rows.column("end_ns").null_count)


def with_next_calls(rows: pa.Table) -> pa.Table:
    """All rows of some ranks in some iterations, with ``next_call_ns`` where no end is known."""
    return with_following(rows, following_calls(rows)) if lacks_ends(rows) else rows


def following_calls(rows: pa.Table) -> Ints:
    """When each operator's rank went on after it, in ns; ``UNKNOWN`` where the rows do not tell, or its end is known.

    ``rows`` are all of some ranks in some iterations: of these ``COLUMNS`` are needed.
    """
    rank, call_ns = integers(rows, "rank"), integers(rows, "call_ns")
    order = in_order((rank, call_ns, integers(rows, "call_order")), ())
    following = np.empty(len(order), dtype=np.int64)
    following[order] = calls_after(
        rank[order],
        integers(rows, "iteration")[order],
        call_ns[order],
        integers(rows, "peer")[order],
        sends=_is(rows, "send")[order],
        receives=_is(rows, "recv")[order],
    )
    said = integers(rows, "next_call_ns")
    return np.where(integers(rows, "end_ns") != UNKNOWN, UNKNOWN, np.where(said == UNKNOWN, following, said))


def with_following(rows: pa.Table, following: Ints) -> pa.Table:
    """Rows with when their ranks went on, as ``following_calls`` has it; shape (rows,)."""
    at = TOPIC.schema.get_field_index("next_call_ns")
    return rows.set_column(at, TOPIC.schema.field(at), pa.array(following, mask=following == UNKNOWN))


def _is(rows: pa.Table, op: str) -> Bools:
    return np.asarray(pc.fill_null(pc.equal(rows.column("op"), op), False).to_numpy(), dtype=np.bool_)
