"""What is sent again because it was not answered: a time-out later than anything is sent otherwise.

Resent bytes look like those of the next operator, or, where others are sent along with them, like more than is due.
"""

from __future__ import annotations

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.collective.participation import COMPLETE, INCOMPLETE, UNKNOWN, UNKNOWN_STATE, Participation

RESENT_NS = 20_000_000
"""A NIC that gets no answer sends again for longer than this, and waits longer each time."""

_MORE = 0.005
"""Part of what an operator has to send by which resends make it more; headers add the same part to each."""


_AMID = 2
"""Operators within which a rank is when it sends again: what is on its way may belong to the one before."""


def sent_again(table: Participation, rows: Ints) -> Bools:
    """Which of one rank's rows, in order of calls, began by a time-out later after their call than any did before;
    the first one that began tells what is usual. Shape (rows,)."""
    began = np.isin(table.state[rows], (COMPLETE, INCOMPLETE)) & (table.start_ns[rows] != UNKNOWN)
    late = np.where(began, np.maximum(table.start_ns[rows] - table.call_ns[rows], 0), 0)
    before = np.append(False, np.logical_or.accumulate(began))[: len(rows)]
    most = np.append(0, np.maximum.accumulate(late))[: len(rows)]
    return np.asarray(began & before & (late >= most + RESENT_NS))


def partly_sent_again(table: Participation) -> Bools:
    """Which groups of sends, of the last two that each rank has called, lasted by a time-out longer than those of their
    communicator usually do, and held more than was due: part of them was sent again. Shape (n,)."""
    seen = table.direct & (table.state != UNKNOWN_STATE) & (table.end_ns > table.start_ns) & (table.expected > 0)
    held = table.sent / np.maximum(table.expected, 1)
    again = np.zeros(len(table), dtype=np.bool_)
    for communicator in np.unique(table.communicator[seen]).tolist():
        own = seen & (table.communicator == communicator)
        longer = table.duration_ns >= np.median(table.duration_ns[own]) + RESENT_NS
        again |= own & longer & (held >= np.median(held[own]) + _MORE)
    return np.asarray(again & _latest(table))


def _latest(table: Participation) -> Bools:
    """The last two groups of sends that each rank has called."""
    rows = np.flatnonzero(table.direct)
    rows = rows[np.lexsort((-table.call_ns[rows], table.rank[rows]))]
    ranks, first = np.unique(table.rank[rows], return_index=True)
    newer = np.arange(len(rows)) - first[np.searchsorted(ranks, table.rank[rows])]
    latest = np.zeros(len(table), dtype=np.bool_)
    latest[rows[newer < _AMID]] = True
    return latest
