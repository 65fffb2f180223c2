"""A made-up operator log of a training job: 1F1B in Megatron's rank order, every operator at a known time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from schemas.catalogue import COMM_OPS

STARTED_NS = 1_700_000_000_000_000_000
ITERATION_NS = 1_000_000_000
BUSY_NS = 900_000_000


@dataclass(frozen=True)
class Call:
    """One operator of a rank's program."""

    communicator: str
    op: str
    size: int
    peer: int | None = None
    phase: str = "other"
    microbatch: int | None = None


@dataclass(frozen=True)
class Training:
    """What is trained and how; ``table`` is its log."""

    tp: int = 2
    pp: int = 2
    dp: int = 2
    iterations: int = 6
    microbatches: int = 4
    buckets: int = 2
    warm_up: int = 0
    """Barriers and broadcasts on every communicator before the first iteration."""
    evaluate_every: int = 0
    """An iteration in so many begins with an evaluation: forward passes of three microbatches."""
    names: dict[str, str] = field(default_factory=dict)
    """Other ids of communicators."""

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Members of each communicator."""
        grid = np.arange(self.world).reshape(self.pp, self.dp, self.tp)
        groups: dict[str, tuple[int, ...]] = {}
        for kind, members in {
            "tp": grid.reshape(-1, self.tp),
            "dp": grid.transpose(0, 2, 1).reshape(-1, self.dp),
            "pp": grid.transpose(1, 2, 0).reshape(-1, self.pp),
            "mp": grid.transpose(1, 0, 2).reshape(-1, self.pp * self.tp),
        }.items():
            if members.shape[1] > 1:
                groups |= {f"{kind}{i}": tuple(row.tolist()) for i, row in enumerate(members)}
        return groups

    def table(self) -> pa.Table:
        """Rows in the columns of telemetry.comm_ops, sorted by rank and call order."""
        rows: list[dict[str, object]] = []
        for rank in range(self.world):
            rows.extend(self._rows(rank))
        return pa.Table.from_batches([COMM_OPS.from_rows(rows)])

    def _rows(self, rank: int) -> Iterator[dict[str, object]]:
        of = {name[:2]: name for name, ranks in self.groups().items() if rank in ranks}
        seqs: Counter[str] = Counter()
        p2p: Counter[tuple[str, int]] = Counter()
        order = 0
        for i in range(-1, self.iterations):
            calls = list(self._program(rank, of)) if i >= 0 else list(self._warm_up(of))
            if self.evaluate_every and i > 0 and i % self.evaluate_every == 0:
                calls = [call for m in range(3) for call in self._pass(rank, of, "forward", m)] + calls
            for k, call in enumerate(calls):
                at = STARTED_NS + i * ITERATION_NS + k * (BUSY_NS // len(calls)) + rank
                row: dict[str, object] = {
                    "rank": rank,
                    "communicator": self.names.get(call.communicator, call.communicator),
                    "seq": seqs[call.communicator],
                    "call_order": order,
                    "op": call.op,
                    "bytes": call.size,
                    "peer": call.peer,
                    "iteration": None if i < 0 else i,
                    "microbatch": call.microbatch,
                    "phase": call.phase,
                    "call_ns": at,
                    "start_ns": at + 1000,
                    "end_ns": at + 500_000,
                }
                seqs[call.communicator] += 1
                order += 1
                if call.peer is not None:
                    row["p2p_seq"] = p2p[call.op, call.peer]
                    p2p[call.op, call.peer] += 1
                yield row

    def _warm_up(self, of: dict[str, str]) -> Iterator[Call]:
        for _ in range(self.warm_up):
            for name in of.values():
                yield Call(name, "barrier", 0)
                yield Call(name, "broadcast", 64)

    def _program(self, rank: int, of: dict[str, str]) -> Iterator[Call]:
        stage = rank // (self.tp * self.dp)
        ahead = min(self.pp - 1 - stage, self.microbatches)
        forward, backward = iter(range(self.microbatches)), iter(range(self.microbatches))
        for _ in range(ahead):
            yield from self._pass(rank, of, "forward", next(forward))
        for _ in range(self.microbatches - ahead):
            yield from self._pass(rank, of, "forward", next(forward))
            yield from self._pass(rank, of, "backward", next(backward))
        for microbatch in backward:
            yield from self._pass(rank, of, "backward", microbatch)
        if "dp" in of:
            yield from (Call(of["dp"], "reduce_scatter", 1 << 20, phase="gradient") for _ in range(self.buckets))
        if "mp" in of:
            yield Call(of["mp"], "all_reduce", 4)
        if "dp" in of:
            yield from (Call(of["dp"], "all_gather", 1 << 20, phase="gradient") for _ in range(self.buckets))

    def _pass(self, rank: int, of: dict[str, str], phase: str, microbatch: int) -> Iterator[Call]:
        stride = self.tp * self.dp
        step = 1 if phase == "forward" else -1
        source, target = rank - step * stride, rank + step * stride
        if 0 <= source < self.world:
            yield Call(of["pp"], "recv", 4096, source, phase, microbatch)
        if "tp" in of:
            yield from (Call(of["tp"], "all_reduce", 8192, None, phase, microbatch) for _ in range(2))
        if 0 <= target < self.world:
            yield Call(of["pp"], "send", 4096, target, phase, microbatch)
