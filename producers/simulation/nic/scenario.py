"""What is simulated down to the NICs: a job or a collective on its own, its cluster, its noise and its faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from producers.simulation.nic.faults import Fault, Injection
from producers.simulation.nic.hardware import MIB, Hardware
from schemas.errors import SettingsError


class Workload(StrEnum):
    """What the ranks do: train a dense model or experts, or only communicate."""

    DENSE = "dense"
    EXPERTS = "experts"
    NEIGHBOURS = "neighbours"
    ALL_TO_ONE = "all_to_one"
    ONE_TO_ALL = "one_to_all"

    @property
    def alone(self) -> bool:
        """Whether ranks only communicate, so that a pair of them has one connection a channel and direction."""
        return self not in {Workload.DENSE, Workload.EXPERTS}

    @property
    def exchanges(self) -> bool:
        """Whether there are custom collectives."""
        return self is not Workload.DENSE


@dataclass(frozen=True, slots=True)
class Noise:
    """What makes a healthy cluster uneven; strengths of compute as in ``producers.simulation.noise``.

    ``sequence_cv`` is of an iteration's microbatches together, as their sequences are unequally long; ``routing_cv``
    how unevenly experts are chosen, over a run and again in each operator. ``background`` scales how often storage,
    checkpoints and other tenants send; ``congested_share`` is the probability that a NIC's switch port is congested
    for a while within a second, and that the leaf is which NICs of one place on all hosts share. A NIC's clock begins
    anywhere; its distance from the host's is measured to ``nic_clock_error_s``.

    Shares that never arrive: ``lost_polls`` of a host's, ``lost_calls`` of the lines of calls, ``lost_pairs`` of the
    records of queue pairs. With the probability ``call_gap`` a run has a rank whose ring of calls was written over
    once. In ``dropping_polls`` of a NIC's it loses counts for a while, and says so.
    """

    gpu_speed_sigma: float = 0.02
    rank_sigma: float = 0.015
    rank_rho: float = 0.9
    common_sigma: float = 0.011
    sequence_cv: float = 0.0
    kernel_cv: float = 0.07
    outlier_share: float = 0.003
    routing_cv: float = 0.2
    background: float = 1.0
    congested_share: float = 0.05
    proxy_stalls: float = 4e-4
    clock_offset_s: float = 5e-3
    clock_drift_ppm: float = 10.0
    nic_clock_error_s: float = 4e-6
    lost_polls: float = 0.002
    lost_calls: float = 0.001
    call_gap: float = 0.1
    lost_pairs: float = 0.001
    dropping_polls: float = 0.002


DEFAULT = Noise()
"""Iterations of a healthy job vary by 1-2 %."""

HARD = Noise(common_sigma=0.062, sequence_cv=0.045, routing_cv=0.4, congested_share=0.15)
"""Iterations of a healthy job vary by 5-7 %; sequences and routing are uneven, and ports are congested more often."""

WHOLE = replace(DEFAULT, lost_polls=0.0, lost_calls=0.0, call_gap=0.0, lost_pairs=0.0, dropping_polls=0.0)
"""The default noise of a cluster whose telemetry all arrives: for tests of what is found in it."""

QUIET = Noise(
    gpu_speed_sigma=0.0,
    rank_sigma=0.0,
    common_sigma=0.0,
    kernel_cv=0.0,
    outlier_share=0.0,
    routing_cv=0.0,
    background=0.0,
    congested_share=0.0,
    proxy_stalls=0.0,
    clock_offset_s=0.0,
    clock_drift_ppm=0.0,
    nic_clock_error_s=0.0,
    lost_polls=0.0,
    lost_calls=0.0,
    call_gap=0.0,
    lost_pairs=0.0,
    dropping_polls=0.0,
)
"""No noise at all: for tests of the mechanism."""


@dataclass(frozen=True, slots=True)
class HotExperts:
    """From an iteration on the experts of a host weigh ``times`` as much in being chosen; no device is at fault."""

    host: int
    iteration: int
    times: float


@dataclass(frozen=True, slots=True)
class NicScenario:
    """One simulated run; a pure function of its fields.

    A host holds one tensor group: it has ``tp`` GPUs, each with a NIC, and ranks of all other dimensions run on
    different hosts. ``head_layers``: what the last stage of a pipeline computes beyond its layers, in layers; half a
    layer projects to 50,257 tokens where a model is 8,192 wide. Sizes are of the model as it is. Gradients, embeddings
    and messages travel divided by ``shrink``; activations, tokens and all below an operator are not scaled. ``relabel``
    names ranks, hosts, GPUs and NICs in another order, without changing what happens. ``hang_s`` is how long a run
    that hangs is told of. Raises ``SettingsError`` for what cannot be laid out.
    """

    seed: int
    workload: Workload = Workload.DENSE
    tp: int = 8
    dp: int = 4
    pp: int = 2
    microbatches: int = 4
    layers: int = 4
    iterations: int = 8
    forward_s: float = 0.003
    head_layers: float = 0.5
    gradient_bytes: int = 8_750_000_000
    activation_bytes: int = 8 * MIB
    embedding_bytes: int = 103_000_000
    token_bytes: int = 32 * MIB
    message_bytes: int = 1 << 30
    shrink: int = 32
    hardware: Hardware = field(default=Hardware())
    noise: Noise = field(default=DEFAULT)
    faults: tuple[Fault, ...] = ()
    hot: HotExperts | None = None
    describe_layout: bool = True
    relabel: int | None = None
    poll_s: float = 1.0
    hang_s: float = 4.0

    def __post_init__(self) -> None:
        for name in "tp dp pp microbatches layers iterations shrink".split():
            if getattr(self, name) < 1:
                raise SettingsError(f"scenario: {name} is {getattr(self, name)}; give 1 or more")
        if self.dp * self.pp < 2:
            raise SettingsError("scenario: one host alone has no traffic between hosts; raise dp or pp")
        if self.workload is not Workload.DENSE and self.pp > 1:
            raise SettingsError(f"scenario: {self.workload} has no pipeline; give pp=1")
        if self.workload is Workload.NEIGHBOURS and self.dp % 2:
            raise SettingsError("scenario: neighbours need rows of two; give an even dp")
        if self.hot is not None:
            self._check(self.hot)
        for fault in self.faults:
            for rank in (fault.rank, fault.peer or 0):
                if not 0 <= rank < self.world:
                    raise SettingsError(f"scenario: the job has no rank {rank}; give 0 to {self.world - 1}")
            if fault.peer is not None and fault.injection is not Injection.CONGESTION:
                raise SettingsError(f"scenario: {fault.injection} concerns no pair of ranks")
            if fault.peer == fault.rank:
                raise SettingsError(f"scenario: a path has two ends, and rank and peer are both {fault.rank}")
            if fault.peer is not None and not self.workload.alone:
                raise SettingsError(f"scenario: {self.workload} has no path of one pair; leave out peer")

    def _check(self, hot: HotExperts) -> None:
        if self.workload is not Workload.EXPERTS:
            raise SettingsError(f"scenario: {self.workload} has no experts that could be hot")
        if not 0 <= hot.host < self.hosts or hot.iteration < 0 or not 0 < hot.times < inf:
            raise SettingsError(f"scenario: {hot} cannot be; give one of {self.hosts} hosts, and times above 0")

    @property
    def world(self) -> int:
        """Number of ranks, and of NICs."""
        return self.tp * self.dp * self.pp

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.dp * self.pp

    def host_of(self, rank: int) -> int:
        """The host that a rank runs on."""
        return rank // self.tp

    def scaled(self, size: int) -> int:
        """A size as it travels: divided by ``shrink``, a multiple of 512."""
        return max(size // self.shrink // 512, 1) * 512
