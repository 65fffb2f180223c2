"""What each rank does in a run: compute, and communicate; training schedules as Megatron-LM has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from producers.simulation.nic.compute import ComputeTimes
from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.hardware import KIB
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.wiring import Side, Wiring


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the library as made: ``count`` as passed, elements of two bytes; ``seq`` per rank and communicator."""

    communicator: str
    op: str
    count: int
    seq: int
    peer: int | None = None
    dtype: str = "bfloat16"


@dataclass(frozen=True, slots=True)
class Compute:
    """A rank's GPU computes for ``seconds``, with ``tensor_calls`` collectives of its host in between.

    The host's GPUs wait for each other in these, so that the slowest one tells. The CPU needs ``launching`` of that
    time to launch it, then calls what follows; or, ``synced``, waits for its end.
    """

    seconds: float
    iteration: int
    tensor_calls: int = 0
    launching: float = 0.5
    synced: bool = False


@dataclass(frozen=True, slots=True)
class Communicate:
    """A rank runs one operator, or several in a group."""

    side: Side
    calls: tuple[Call, ...]
    iteration: int

    @property
    def grouped(self) -> bool:
        """Whether sends and receives are one group call."""
        return self.calls[0].peer is not None


Item = Compute | Communicate
ELEMENT_BYTES = 2
"""Bytes of an element."""


class Programs:
    """The programs of all ranks, while they are laid out; ``of`` a rank, item by item."""

    def __init__(self, scenario: NicScenario) -> None:
        self.scenario = scenario
        self.wiring = Wiring(scenario.hardware)
        self.of: list[list[Item]] = [[] for _ in range(scenario.world)]
        self._called: Counter[tuple[int, str]] = Counter()
        self._orders: dict[str, list[int]] = {}
        self.compute = ComputeTimes(scenario)

    @cached_property
    def communicators(self) -> dict[str, list[int]]:
        """Members of each communicator, in its own order. All but those of hosts have one member a host."""
        s = self.scenario
        stages, replicas, columns = range(s.pp), range(s.dp), range(s.tp)

        def rank(stage: int, replica: int, column: int) -> int:
            return (stage * s.dp + replica) * s.tp + column

        found: dict[str, list[int]] = {}
        if s.tp > 1:
            found |= {f"tensor{h}": list(range(h * s.tp, (h + 1) * s.tp)) for h in range(s.hosts)}
        if s.dp > 1:
            found |= {f"data{p}.{t}": [rank(p, d, t) for d in replicas] for p in stages for t in columns}
        if s.pp > 1:
            found |= {f"pipeline{d}.{t}": [rank(p, d, t) for p in stages] for d in replicas for t in columns}
            found |= {f"embedding{d}.{t}": [rank(0, d, t), rank(s.pp - 1, d, t)] for d in replicas for t in columns}
        if s.workload.exchanges:
            found |= {f"exchange{t}": [rank(0, d, t) for d in replicas] for t in columns}
        return found

    def add_compute(self, rank: int, item: Compute) -> None:
        """A rank computes next."""
        self.of[rank].append(item)

    def collective(self, communicator: str, op: str, size: int, iteration: int) -> None:
        """All members run a collective next; ``size`` is of the full buffer."""
        order = self._order(communicator)
        if op == "all_reduce" and size <= self.scenario.hardware.tree_bytes:
            sides = self.wiring.tree(communicator, size, order)
        else:
            sides = self.wiring.ring(communicator, op, size, order)
        count = size // ELEMENT_BYTES // (1 if op == "all_reduce" else len(order))
        for rank, side in sides.items():
            call = Call(communicator, op, count, self._seq(rank, communicator))
            self.of[rank].append(Communicate(side, (call,), iteration))

    def transfers(
        self, communicator: str, sizes: dict[tuple[int, int], int]
    ) -> dict[tuple[int, int], tuple[Side, Side]]:
        """Lay out sends from rank to rank; ``group`` says who runs their sides, and when."""
        return {
            (source, destination): self.wiring.transfer(communicator, size, source, destination)
            for (source, destination), size in sizes.items()
        }

    def group(self, rank: int, communicator: str, parts: Sequence[tuple[str, int, int, Side]], iteration: int) -> None:
        """A rank runs sends and receives next, in one group; parts are op, peer, size and side."""
        calls = tuple(
            Call(communicator, op, size // ELEMENT_BYTES, self._seq(rank, communicator), peer)
            for op, peer, size, _ in parts
        )
        if calls:
            self.of[rank].append(Communicate(Side.joined([side for *_, side in parts]), calls, iteration))

    def exchange(self, communicator: str, sizes: dict[tuple[int, int], int], iteration: int) -> None:
        """All members run a custom collective next; pairs of nothing are not called for."""
        sides = self.transfers(communicator, {pair: size for pair, size in sizes.items() if size})
        for rank in self.communicators[communicator]:
            parts: list[tuple[str, int, int, Side]] = []
            for peer in self.communicators[communicator]:
                if (rank, peer) in sides:
                    parts.append(("send", peer, sizes[rank, peer], sides[rank, peer][0]))
                if (peer, rank) in sides:
                    parts.append(("recv", peer, sizes[peer, rank], sides[peer, rank][1]))
            self.group(rank, communicator, parts, iteration)

    def gradients(self, iteration: int, sharded: bool) -> None:
        """The gradient exchange and the optimiser's step, parameters gathered where they are sharded."""
        s = self.scenario
        size = s.scaled(s.gradient_bytes)
        data = [name for name in self.communicators if name.startswith("data")]
        buckets = (size * 5 // 8 // 4096 * 4096, size * 3 // 8 // 4096 * 4096)
        for name in data:
            for bucket in buckets:
                self.collective(name, "reduce_scatter" if sharded else "all_reduce", bucket, iteration)
        for name in self.communicators:
            if name.startswith("embedding"):
                self.collective(name, "all_reduce", s.scaled(s.embedding_bytes), iteration)
        for name in data:
            self.collective(name, "all_reduce", 4 * KIB, iteration)
        for rank in range(s.world):
            self.add_compute(rank, Compute(self.compute.segment(rank, iteration, s.forward_s / 4), iteration))
        for name in data if sharded else []:
            for bucket in buckets:
                self.collective(name, "all_gather", bucket, iteration)

    def _order(self, communicator: str) -> list[int]:
        """The ring's order, unlike the ranks'."""
        if communicator not in self._orders:
            members = self.communicators[communicator]
            chance = stream(self.scenario.seed, Purpose.RINGS, len(self._orders))
            self._orders[communicator] = [members[i] for i in chance.permutation(len(members))]
        return self._orders[communicator]

    def _seq(self, rank: int, communicator: str) -> int:
        self._called[rank, communicator] += 1
        return self._called[rank, communicator] - 1
