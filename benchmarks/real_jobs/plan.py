"""Small training jobs that run for real, and what may be wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from random import Random

_SPIKES = 8
_PERIOD = 6


@dataclass(frozen=True)
class Fault:
    """What is wrong with one rank in some iterations.

    It computes ``slower`` times as long, in some ``phases`` or in all, at once or, where it ``grows``, more and more so
    up to the last iteration; or what its NIC sends is held to ``nic_mbps``, where it is given.
    """

    rank: int
    iterations: tuple[int, ...]
    slower: float = 1.0
    phases: tuple[str, ...] = ()
    grows: bool = False
    nic_mbps: float | None = None

    @property
    def device(self) -> str:
        """What is slow: ``gpu`` or ``nic``."""
        return "gpu" if self.nic_mbps is None else "nic"

    def slowdown(self, rank: int, phase: str, iteration: int) -> float:
        """How many times as long a rank computes in a phase of an iteration."""
        if rank != self.rank or iteration not in self.iterations or (self.phases and phase not in self.phases):
            return 1.0
        part = (self.iterations.index(iteration) + 1) / len(self.iterations) if self.grows else 1.0
        return 1 + part * (self.slower - 1)


@dataclass(frozen=True)
class Plan:
    """A job. Ranks of a tensor group are next to each other, those of a pipeline stage follow each other.

    Computing is sleep, whose length varies by a hundredth: ``forward_s`` a layer and microbatch, twice that backward,
    and a little before and after all of them.
    Buffers are float32: activations are all-reduced within tensor groups and sent between stages (1F1B), gradients
    all-reduced in ``buckets``. Beside that:

    - ``sharded``: parameters are gathered a layer and gradients scattered (FSDP) instead.
    - ``overlapped``: a layer's gradients are reduced while the layers before it are computed.
    - ``late_waits``: sends are waited for at the end of the iteration.
    - ``experts``: two all-to-alls a layer, among the ranks that hold the same parameters.
    - ``other_work``: how often a layer's computing finds the processor taken, by 20 ms on average.
    """

    name: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    iterations: int = 60
    microbatches: int = 4
    layers: int = 2
    buckets: int = 2
    forward_s: float = 0.010
    activation: int = 4096
    gradient: int = 65_792
    sharded: bool = False
    overlapped: bool = False
    late_waits: bool = False
    experts: bool = False
    other_work: float = 0.0
    fault: Fault | None = None
    seed: int = 0

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.tp * self.pp * self.dp

    def rank(self, tensor: int, data: int, stage: int) -> int:
        """The rank at a place of the layout."""
        return tensor + self.tp * (data + self.dp * stage)

    def place(self, rank: int) -> tuple[int, int, int]:
        """A rank's place: in its tensor group, its data-parallel group and its pipeline."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    @property
    def communicators(self) -> dict[str, tuple[int, ...]]:
        """Members by name, ``tensor0`` and so on; of one member there is none."""
        tensors, datas, stages = range(self.tp), range(self.dp), range(self.pp)
        groups = {
            "tensor": [[self.rank(t, d, p) for t in tensors] for p in stages for d in datas],
            "data": [[self.rank(t, d, p) for d in datas] for p in stages for t in tensors],
            "pipeline": [[self.rank(t, d, p) for p in stages] for d in datas for t in tensors],
            "replica": [[self.rank(t, d, p) for p in stages for t in tensors] for d in datas],
        }
        return {
            f"{kind}{at}": tuple(members)
            for kind, lists in groups.items()
            for at, members in enumerate(lists)
            if len(members) > 1
        }

    def of_rank(self, rank: int) -> dict[str, str]:
        """A rank's communicators by kind."""
        return {name.rstrip("0123456789"): name for name, members in self.communicators.items() if rank in members}

    @property
    def longest_s(self) -> float:
        """How long a run may take before something must be wrong."""
        return 120.0 + 2.0 * self.iterations

    def to_json(self) -> str:
        """The plan as a line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Plan:
        """The plan of a line."""
        told = json.loads(line)
        fault = told.pop("fault")
        several = ("iterations", "phases")
        return cls(**told, fault=fault and Fault(**{**fault, **{name: tuple(fault[name]) for name in several}}))


@dataclass(frozen=True)
class Shape:
    """A kind of job, and the line of a throttled NIC in it: one that costs an iteration a third and more."""

    plan: Plan
    nic_mbps: float


SHAPES: Mapping[str, Shape] = {
    shape.plan.name: shape
    for shape in (
        Shape(Plan("data4", dp=4), 25),
        Shape(Plan("data8", dp=8), 30),
        Shape(Plan("tensor2-data4", tp=2, dp=4), 25),
        Shape(Plan("tensor4-data2", tp=4, dp=2), 25),
        Shape(Plan("pipeline2-data4", pp=2, dp=4), 25),
        Shape(Plan("pipeline4-data2", pp=4, dp=2), 10),
        Shape(Plan("tensor2-pipeline2-data2", tp=2, pp=2, dp=2), 20),
        Shape(Plan("sharded8", dp=8, microbatches=1, layers=4, sharded=True), 30),
        Shape(Plan("sharded-tensor2-data4", tp=2, dp=4, microbatches=1, layers=4, sharded=True), 30),
        Shape(Plan("overlapped8", dp=8, layers=4, overlapped=True), 25),
        Shape(Plan("overlapped-tensor2-data4", tp=2, dp=4, layers=4, overlapped=True), 20),
        Shape(Plan("late-pipeline2-data4", pp=2, dp=4, late_waits=True), 25),
        Shape(Plan("late-pipeline4-data2", pp=4, dp=2, activation=16_384, late_waits=True), 10),
        Shape(Plan("experts-tensor2-data4", tp=2, dp=4, microbatches=2, experts=True), 20),
        Shape(Plan("experts-pipeline2-data4", pp=2, dp=4, activation=16_384, experts=True), 20),
        Shape(Plan("busy-tensor2-pipeline2-data2", tp=2, pp=2, dp=2, other_work=0.02), 20),
    )
}


_COMPUTING: Mapping[str, Callable[[int, tuple[int, ...]], Fault]] = {
    "gpu": partial(Fault, slower=1.5),
    "gpu_spikes": partial(Fault, slower=2.5),
    "gpu_fluctuation": partial(Fault, slower=2.5),
    "gpu_passing": partial(Fault, slower=1.5),
    "gpu_growing": partial(Fault, slower=2.0, grows=True),
    "gpu_forward": partial(Fault, slower=2.0, phases=("forward",)),
    "gpu_backward": partial(Fault, slower=1.75, phases=("backward",)),
    "data_loading": partial(Fault, slower=100.0, phases=("input",)),
    "optimizer": partial(Fault, slower=20.0, phases=("other",)),
}
"""Faults of a rank in some iterations, by name."""

FAULTS = ("healthy", *_COMPUTING, "nic")
"""A GPU computes more slowly: from the middle on; in single iterations; in every sixth; for a quarter of the run; more
and more so; in one phase alone. Or a NIC is throttled.
"""


def planned(shape: Shape, fault: str, seed: int) -> Plan:
    """A job with a fault, one of ``FAULTS``, from its middle on, some sooner; the seed draws its rank, and when it
    spikes.
    """
    plan = replace(shape.plan, name=f"{shape.plan.name}-{fault}", seed=seed)
    if fault == "healthy":
        return plan
    drawn = Random(f"{plan.name} {seed}")
    rank, second_half = drawn.randrange(plan.ranks), range(plan.iterations // 2, plan.iterations)
    if fault == "nic":
        return replace(plan, fault=Fault(rank, tuple(second_half), nic_mbps=shape.nic_mbps))
    iterations: Sequence[int] = second_half
    match fault:
        case "gpu_spikes":
            late = range(plan.iterations // 3, plan.iterations, 2)  # no two next to each other
            iterations = sorted(drawn.sample(late, _SPIKES))
        case "gpu_fluctuation":
            iterations = range(plan.iterations // 5, plan.iterations, _PERIOD)
        case "gpu_passing":
            iterations = range(plan.iterations * 3 // 8, plan.iterations * 5 // 8)
        case "gpu_growing":
            iterations = range(plan.iterations // 3, plan.iterations)
    return replace(plan, fault=_COMPUTING[fault](rank, tuple(iterations)))
