"""What is simulated: a training job, its cluster, its noise and its faults."""

from __future__ import annotations

from dataclasses import dataclass, field

from producers.simulation.faults import SWITCHED, Fault, Kind
from producers.simulation.noise import DEFAULT, NoiseProfile
from schemas.errors import SettingsError

_LONGEST_MS = 1e6
"""What the compute of an iteration may take."""

_OLDEST_DAYS = 3650
"""For how long a job may have run."""


@dataclass(frozen=True, slots=True)
class Omissions:
    """What is not told: iteration, phase and microbatch; end times; the job's degrees of parallelism; which spines its
    traffic was seen to take."""

    labels: bool = False
    ends: bool = False
    layout: bool = False
    routes: bool = False


@dataclass(frozen=True, slots=True)
class FabricShape:
    """A rail-optimised fabric: in each pod of hosts one ToR a rail; every ToR reaches every spine.

    Raises ``SettingsError`` for one that cannot be.
    """

    hosts_per_pod: int = 32
    spines: int = 8

    def __post_init__(self) -> None:
        for name in ("hosts_per_pod", "spines"):
            if getattr(self, name) < 1:
                raise SettingsError(f"scenario: {name} is {getattr(self, name)}; give 1 or more")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulated run; a pure function of its fields.

    ``layers`` are spread over the stages, what does not divide goes to the inner ones first. ``ep`` above 1
    makes every layer a mixture of experts: over the data-parallel ranks, every tensor rank holding a part of an
    expert, or, where ``fold_experts``, over neighbouring ranks of tensor, context and data parallelism alike, each
    holding whole experts (Megatron-LM's expert tensor degree of 1). ``sequence_parallel`` splits every all-reduce of
    a layer into an all-gather and a reduce-scatter. With ``distributed_optimizer`` gradients are reduce-scattered and
    parameters gathered, without it gradients are all-reduced. ``compute_ms`` is what the compute of an iteration takes
    without noise; communication and noise come on top. ``fabric`` None: one switch a rail, of which the job says
    nothing. ``age_days`` is how long the job has run before the first iteration: it drifts, and what varies over time
    is drawn anew.
    Raises ``SettingsError`` for a job that cannot be laid out.
    """

    seed: int
    tp: int = 8
    pp: int = 4
    dp: int = 2
    cp: int = 1
    ep: int = 1
    fold_experts: bool = False
    sequence_parallel: bool = False
    distributed_optimizer: bool = True
    microbatches: int = 8
    layers: int = 8
    hidden: int = 8192
    sequence_length: int = 4096
    micro_batch_size: int = 1
    vocabulary: int = 50304
    iterations: int = 60
    compute_ms: float = 300.0
    gpus_per_host: int = 8
    fabric: FabricShape | None = None
    age_days: int = 0
    faults: tuple[Fault, ...] = ()
    noise: NoiseProfile = field(default=DEFAULT)
    omissions: Omissions = Omissions()

    def __post_init__(self) -> None:
        for (
            name
        ) in "tp pp dp cp ep microbatches hidden sequence_length micro_batch_size iterations gpus_per_host".split():
            if getattr(self, name) < 1:
                raise SettingsError(f"scenario: {name} is {getattr(self, name)}; give 1 or more")
        if self.seed < 0:
            raise SettingsError(f"scenario: seed is {self.seed}; give 0 or more")
        if self.world < 2:
            raise SettingsError("scenario: one rank alone does not communicate; raise tp, pp or dp")
        if self.layers < self.pp:
            raise SettingsError(f"scenario: {self.layers} layers do not fill {self.pp} stages")
        self._check_experts()
        if not 0 < self.compute_ms <= _LONGEST_MS:
            raise SettingsError(f"scenario: compute_ms is {self.compute_ms}; give more than 0, to {_LONGEST_MS:.0f}")
        if not 0 <= self.age_days <= _OLDEST_DAYS:
            raise SettingsError(f"scenario: age_days is {self.age_days}; give 0 to {_OLDEST_DAYS}")
        for fault in self.faults:
            self._check_fault(fault)

    def _check_experts(self) -> None:
        if not self.fold_experts:
            if self.ep not in {1, self.dp}:
                raise SettingsError(f"scenario: ep is {self.ep}; give 1 or dp ({self.dp})")
            return
        block, stage = self.tp * self.cp, self.tp * self.cp * self.dp
        if self.ep > 1 and (self.ep % block or stage % self.ep):
            raise SettingsError(
                f"scenario: ep is {self.ep}; give 1, or a multiple of tp cp ({block}) that divides {stage}"
            )

    def _check_fault(self, fault: Fault) -> None:
        if fault.kind in SWITCHED and self.fabric is None:
            raise SettingsError(
                f"scenario: {fault.kind.value} on {fault.place} needs a fabric; give hosts_per_pod or spines"
            )
        if fault.kind is Kind.SPINE_SLOW and self.fabric is not None:
            owner, places = "fabric", self.fabric.spines
        else:
            owner, places = "job", self.world
        if not 0 <= fault.rank < places:
            raise SettingsError(f"scenario: the {owner} has no {fault.place}; it has {places}")
        if not 0 <= fault.iterations[0] <= fault.iterations[-1] < self.iterations:
            raise SettingsError(f"scenario: fault on {fault.place}: iterations lie outside 0-{self.iterations - 1}")

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def stage_shape(self) -> tuple[int, int, int, int]:
        """Ranks of a stage: replicas of an expert group, data ranks of one, context, tensor; tensor is fastest."""
        inner = self.ep // (self.tp * self.cp) if self.fold_experts and self.ep > 1 else self.ep
        return self.dp // inner, inner, self.cp, self.tp

    @property
    def name(self) -> str:
        """Job id; says nothing about faults."""
        return f"sim-{self.seed}"

    @property
    def layers_of_stage(self) -> tuple[int, ...]:
        """Layers of each pipeline stage: the ends, which also embed or project, get the fewest."""
        least, more = divmod(self.layers, self.pp)
        inward = sorted(range(self.pp), key=lambda stage: (stage in {0, self.pp - 1}, stage))
        heavy = set(inward[:more])
        return tuple(least + (stage in heavy) for stage in range(self.pp))
