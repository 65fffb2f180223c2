"""What is simulated: a training job, its cluster, its noise and its faults."""

from __future__ import annotations

from dataclasses import dataclass, field

from producers.simulation.faults import Fault
from producers.simulation.noise import DEFAULT, NoiseProfile
from schemas.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Omissions:
    """What the logs do not carry: iteration, phase and microbatch; end times; the job's degrees of parallelism."""

    labels: bool = False
    ends: bool = False
    layout: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulated run; a pure function of its fields.

    ``layers`` are spread over the stages, what does not divide goes to the inner ones first. ``ep`` above 1
    makes every layer a mixture of experts over the data-parallel ranks. ``compute_ms`` is what the compute of
    an iteration takes without noise; communication and noise come on top.
    Raises ``SettingsError`` for a job that cannot be laid out.
    """

    seed: int
    tp: int = 8
    pp: int = 4
    dp: int = 2
    ep: int = 1
    microbatches: int = 8
    layers: int = 8
    hidden: int = 8192
    sequence_length: int = 4096
    micro_batch_size: int = 1
    vocabulary: int = 50304
    iterations: int = 60
    compute_ms: float = 300.0
    gpus_per_host: int = 8
    faults: tuple[Fault, ...] = ()
    noise: NoiseProfile = field(default=DEFAULT)
    omissions: Omissions = Omissions()

    def __post_init__(self) -> None:
        for name in "tp pp dp ep microbatches hidden sequence_length micro_batch_size iterations gpus_per_host".split():
            if getattr(self, name) < 1:
                raise SettingsError(f"scenario: {name} is {getattr(self, name)}; give 1 or more")
        if self.seed < 0:
            raise SettingsError(f"scenario: seed is {self.seed}; give 0 or more")
        if self.world < 2:
            raise SettingsError("scenario: one rank alone does not communicate; raise tp, pp or dp")
        if self.layers < self.pp:
            raise SettingsError(f"scenario: {self.layers} layers do not fill {self.pp} stages")
        if self.ep not in {1, self.dp}:
            raise SettingsError(f"scenario: ep is {self.ep}; give 1 or dp ({self.dp})")
        if self.compute_ms <= 0:
            raise SettingsError(f"scenario: compute_ms is {self.compute_ms}; give more than 0")
        for fault in self.faults:
            if not 0 <= fault.rank < self.world:
                raise SettingsError(f"scenario: the job has no rank {fault.rank}; it has {self.world}")
            if not 0 <= fault.iterations[0] <= fault.iterations[-1] < self.iterations:
                raise SettingsError(
                    f"scenario: fault on rank {fault.rank}: iterations lie outside 0-{self.iterations - 1}"
                )

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp

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
