"""What is sent again because it was not answered: it begins by a time-out later than anything did before.

Go-back-N has no other sign in what a NIC counts: resent bytes look like those of the next operator.
"""

from __future__ import annotations

import numpy as np

from diagnosis.collective.participation import COMPLETE, INCOMPLETE, UNKNOWN, Bools, Ints, Participation

RESENT_NS = 20_000_000
"""A NIC that gets no answer sends again for longer than this, and waits longer each time."""


def sent_again(table: Participation, rows: Ints) -> Bools:
    """Which of one rank's rows, in order of calls, began by a time-out later after their call than any did before;
    the first one that began tells what is usual. Shape (rows,)."""
    began = np.isin(table.state[rows], (COMPLETE, INCOMPLETE)) & (table.start_ns[rows] != UNKNOWN)
    late = np.where(began, np.maximum(table.start_ns[rows] - table.call_ns[rows], 0), 0)
    before = np.append(False, np.logical_or.accumulate(began))[: len(rows)]
    most = np.append(0, np.maximum.accumulate(late))[: len(rows)]
    return np.asarray(began & before & (late >= most + RESENT_NS))
