"""Figures of training that follow once it is known what a communicator serves (Pulse 5.2): the time that data
parallelism communicates for, and the duration of a microbatch in a pipeline."""

from __future__ import annotations

import numpy as np

from diagnosis.traffic.epochs import Ints


def communicating_ns(start_ns: Ints, end_ns: Ints) -> int:
    """How long at least one of the operators ran; overlapping ones count once. Arrays of shape (operators,)."""
    order = np.argsort(start_ns)
    start, end = start_ns[order], np.maximum.accumulate(end_ns[order])
    if not len(start):
        return 0
    before = np.concatenate((start[:1], end[:-1]))
    return int(np.maximum(end - np.maximum(start, before), 0).sum())


def microbatch_ns(start_ns: Ints, peer: Ints) -> int | None:
    """What a microbatch takes on one rank of a pipeline: the median time between its sends in one direction.

    In the steady phase a stage sends one microbatch forward and one backward in turn. ``start_ns`` of the rank's sends
    in one iteration and whom they went to; shape (sends,). None where no two went to the same peer.
    """
    times = []
    for other in np.unique(peer).tolist():
        own = np.sort(start_ns[peer == other])
        times.append(np.diff(own))
    between = np.concatenate(times) if times else np.zeros(0, dtype=np.int64)
    return int(np.median(between)) if len(between) else None
