"""When a rank went on after each operator: what bounds the end of one whose end was not logged.

Rows of one communicator do not show it, since the rank's next call may be of another one. Its log does, so the log
agent says it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnosis.columns import integers
from diagnosis.operators import UNKNOWN, Operators, next_calls
from schemas.comm_ops import TOPIC


def lacks_ends(rows: pa.Table) -> bool:
    """Whether any operator's end is not known."""
    return bool(rows.column("end_ns").null_count)


def with_next_calls(rows: pa.Table) -> pa.Table:
    """All rows of one rank in some iterations, with ``next_call_ns`` where no end is known; in the order of calls."""
    order = np.lexsort((integers(rows, "call_order"), integers(rows, "call_ns")))
    rows = rows.take(pa.array(order))
    following = next_calls(Operators.from_arrow(rows))
    unknown = (following == UNKNOWN) | (integers(rows, "end_ns") != UNKNOWN)
    at = TOPIC.schema.get_field_index("next_call_ns")
    return rows.set_column(at, TOPIC.schema.field(at), pa.array(following, mask=unknown))
