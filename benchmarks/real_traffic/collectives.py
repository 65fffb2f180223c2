"""Ring all-reduce and all-to-all, slice by slice, over the connections of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor

import numpy as np

from benchmarks.real_traffic.connections import Connections, Incoming, Outgoing, Values
from benchmarks.real_traffic.plan import Plan


def all_reduce(
    plan: Plan, rank: int, values: Values, operator: int, connections: Connections, threads: Executor
) -> None:
    """Add up ``values``, shape (n,), over all ranks in place, a part of them on each channel."""
    around = plan.predecessor(rank), plan.successor(rank)
    parts = np.split(values, plan.channels)
    done = [
        threads.submit(
            _around_the_ring,
            plan,
            plan.ring.index(rank),
            part,
            operator,
            connections.incoming[around[0], channel],
            connections.outgoing[around[1], channel],
        )
        for channel, part in enumerate(parts)
    ]
    for each in done:
        each.result()


def _around_the_ring(plan: Plan, place: int, part: Values, operator: int, before: Incoming, after: Outgoing) -> None:
    """Reduce and scatter, then gather: what comes from the rank before goes on to the one after it."""
    chunks = np.split(part, plan.ranks)
    for own in _slices(plan, chunks[place]):
        after.send(operator, own)
    last = 2 * plan.ranks - 2
    for step in range(1, last + 1):
        for own in _slices(plan, chunks[(place - step) % plan.ranks]):
            came = before.receive()
            own[:] = own + came if step < plan.ranks else came
            if step < last:
                after.send(operator, own)


def all_to_all(
    plan: Plan, rank: int, values: Values, operator: int, connections: Connections, threads: Executor
) -> Values:
    """Send row ``i`` of ``values``, shape (ranks, n), to rank ``i``; the rows that came, in order of their ranks."""
    received = values.copy()
    done = []
    for peer in plan.peers(rank):
        for channel in range(plan.channels):
            sent, got = (np.split(rows[peer], plan.channels)[channel] for rows in (values, received))
            done.append(threads.submit(_send, plan, sent, operator, connections.outgoing[peer, channel]))
            done.append(threads.submit(_receive, plan, got, connections.incoming[peer, channel]))
    for each in done:
        each.result()
    return received


def _send(plan: Plan, values: Values, operator: int, to: Outgoing) -> None:
    for part in _slices(plan, values):
        to.send(operator, part)


def _receive(plan: Plan, values: Values, source: Incoming) -> None:
    for part in _slices(plan, values):
        part[:] = source.receive()


def _slices(plan: Plan, values: Values) -> Iterator[Values]:
    """Views of at most a slice each."""
    most = plan.slice_bytes // values.itemsize
    for first in range(0, len(values), most):
        yield values[first : first + most]
