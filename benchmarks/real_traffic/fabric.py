"""The network that a plan runs over: every line shaped in both directions."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.network import LINE, Namespace, network, port
from benchmarks.real_traffic.plan import MTU, Plan

_BURST_BYTES = 64 << 10
_QUEUE_BYTES = 8 << 20
"""Far more than connections have under way at once: nothing is lost, as on a fabric without loss."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """A bridge, and a namespace for each rank; ``ports``: number of the bridge's port that each rank is behind."""

    bridge: Namespace
    ranks: Sequence[Namespace]
    ports: Sequence[int]


@contextmanager
def fabric(plan: Plan) -> Iterator[Fabric]:
    """Lines of all ranks. Packets are never joined to larger ones, so that each is seen when it is sent.

    Raises ``KernelRefused`` where that cannot be built.
    """
    with network(plan.ranks, "mtu", str(MTU), "gso_max_segs", "1") as built:
        for rank, own in enumerate(built.ranks):
            own.configure(*_shaped(LINE, plan.sending_mbps(rank)))
            built.bridge.configure(*_shaped(port(rank), plan.line_mbps))
        ports = [built.bridge.call(partial(socket.if_nametoindex, port(rank))) for rank in range(plan.ranks)]
        yield Fabric(built.bridge, built.ranks, ports)


def _shaped(device: str, mbps: float) -> tuple[str, ...]:
    rate, burst, limit = f"{round(mbps * 1000)}kbit", str(_BURST_BYTES), str(_QUEUE_BYTES)
    return "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "limit", limit
