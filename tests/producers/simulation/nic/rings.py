"""A ring of four NICs that runs one collective, and what its lines then look like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.proxies import Proxies, Service
from producers.simulation.nic.transport import Transport
from producers.simulation.nic.wiring import Plan, Wiring

ORDER = (0, 2, 1, 3)
STRAGGLER = 1
SUCCESSOR = 3
MIB = 1 << 20
STEADY = Service(stall_share=0.0)


@dataclass
class Ring:
    """A collective on quiet hosts, run to its end; times in seconds."""

    hardware: Hardware
    plan: Plan
    transport: Transport
    took: float

    def slices(self, rank: int) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """When the slices of each of a rank's queue pairs began and ended."""
        found = []
        for connection in np.flatnonzero(self.plan.source[:-1] == rank):
            first = self.plan.connection_at[connection]
            last = self.plan.connection_at[connection + 1] - 1
            ended = self.transport.ended_at[first:last]
            began = np.maximum(self.transport.posted_at[first:last], np.append(0.0, ended[:-1]))
            found.append((began, ended))
        return found

    def gaps(self, rank: int) -> npt.NDArray[np.float64]:
        """Times between the end of a slice and the beginning of the next on the same queue pair."""
        return np.concatenate([began[1:] - ended[:-1] for began, ended in self.slices(rank)])

    def usual_gap(self, rank: int) -> float:
        """The most frequent gap, of those that are longer than handing over takes."""
        gaps = self.gaps(rank)
        bins = np.round(gaps[gaps > 10e-6] / 4e-6)
        return float(np.argmax(np.bincount(bins.astype(np.int64)))) * 4e-6

    def active_epochs(self, rank: int) -> float:
        """Epochs in which a queue pair of a rank was counted, on average."""
        flow, _, _ = self.transport.counters.rows()
        own = np.flatnonzero(self.plan.source[:-1] == rank)
        return float(np.isin(flow, own).sum() / len(own))

    def counted(self) -> npt.NDArray[np.int64]:
        """Bytes that the NICs counted of each flow: data, then control."""
        flow, _, events = self.transport.counters.rows()
        counted = np.bincount(flow, events, len(self.transport.wire)) * self.hardware.aggregation_bytes
        return counted.astype(np.int64)


def run_ring(
    hardware: Hardware,
    slowdown: float = 1.0,
    size: int = 128 * MIB,
    op: str = "reduce_scatter",
    late: dict[int, float] | None = None,
    service: Service = STEADY,
    seed: int = 1,
) -> Ring:
    """Run a collective, or a send from the straggler to its successor.

    The straggler's line is ``slowdown`` times slower and its proxy served by ``service``; the kernels of ``late``
    ranks start later.
    """
    wiring = Wiring(hardware)
    if op == "send":
        sides = dict(zip((STRAGGLER, SUCCESSOR), wiring.transfer("c", size, STRAGGLER, SUCCESSOR), strict=True))
    else:
        sides = wiring.tree("c", size, ORDER) if op == "tree" else wiring.ring("c", op, size, ORDER)
    plan = wiring.plan()
    draws = np.random.default_rng(seed)
    proxies = Proxies(len(ORDER), hardware.proxy_s, draws, STEADY)
    proxies.serve(STRAGGLER, service)
    phase = draws.integers(hardware.epoch_steps, size=len(ORDER))
    transport = Transport(plan, hardware, len(ORDER), proxies, phase, draws)
    transport.capacity.tx[STRAGGLER] /= slowdown
    for rank, side in sides.items():
        transport.offer(side, 10e-6)
        transport.start(side, 30e-6 + (late or {}).get(rank, 0.0))
    while (time := transport.next_time()) < np.inf:
        transport.idle(time)
        while transport.step():
            pass
    transport.idle(transport.now + 1e-3)
    took = max(float(done.max()) for _, done in transport.finished)
    return Ring(hardware, plan, transport, took)
