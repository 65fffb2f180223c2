"""Injected faults (Pulse, tables 3 and 4) and all they change: line rates, proxies, computing, a NIC's being there.

What each does to traffic, durations or gaps is nowhere said.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from producers.simulation.nic.proxies import Service
from schemas.errors import SettingsError

RATED_WATTS = 700.0


class Injection(StrEnum):
    """What is done to the cluster. Uneven experts are no injection: they are part of the workload (``HotExperts``)."""

    GPU_ERROR = "gpu_error"
    CUDA_ERROR = "cuda_error"
    GPU_THROTTLING = "gpu_throttling"
    CPU_THROTTLING = "cpu_throttling"
    CPU_CONTENTION = "cpu_contention"
    NIC_DOWN = "nic_down"
    PCIE_DOWNGRADE = "pcie_downgrade"
    PCIE_CONTENTION = "pcie_contention"
    CONGESTION = "congestion"
    CROSS_NUMA = "cross_numa"
    MEMORY_ALIGNMENT = "memory_alignment"


class Class(StrEnum):
    """Kinds of anomaly (Pulse 2.1)."""

    COMPUTATION_STOP = "computation_stop"
    COMPUTATION_SLOW = "computation_slow"
    COMMUNICATION_STOP = "communication_stop"
    COMMUNICATION_SLOW = "communication_slow"


_CLASSES = {
    Injection.GPU_ERROR: Class.COMPUTATION_STOP,
    Injection.CUDA_ERROR: Class.COMPUTATION_STOP,
    Injection.GPU_THROTTLING: Class.COMPUTATION_SLOW,
    Injection.CPU_THROTTLING: Class.COMPUTATION_SLOW,
    Injection.CPU_CONTENTION: Class.COMPUTATION_SLOW,
    Injection.NIC_DOWN: Class.COMMUNICATION_STOP,
}

OF_HOST = frozenset({Injection.CPU_THROTTLING, Injection.CPU_CONTENTION, Injection.CROSS_NUMA})
"""Injections that a whole host suffers."""

SEVERITIES: dict[Injection, tuple[float, ...]] = {
    Injection.GPU_THROTTLING: (350.0, 300.0, 250.0, 200.0),
    Injection.CPU_CONTENTION: (0.9, 1.0),
    Injection.PCIE_DOWNGRADE: (0.5, 0.4, 0.3, 0.2),
    Injection.PCIE_CONTENTION: (0.5, 0.6, 0.7, 0.8),
    Injection.CONGESTION: (0.5, 0.6, 0.7, 0.8),
}
"""Table 4: watts left; share of cores taken; bandwidth left; bandwidth taken; bandwidth left. Others have none."""

_BOUNDS: dict[Injection, tuple[float, float]] = {
    Injection.GPU_THROTTLING: (100.0, RATED_WATTS),
    Injection.CPU_CONTENTION: (0.5, 1.0),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """An injection on a rank (its GPU, its NIC, or its host), from a moment on.

    ``severity`` is in the unit of ``SEVERITIES``; ``at_s`` counts from the job's beginning. A congested path is all
    that leaves the rank's switch port or, with ``peer``, only what it sends to that rank; such a path has the share
    ``severity`` of what it has in a healthy run. Raises ``SettingsError`` for a severity that cannot be.
    """

    injection: Injection
    rank: int
    at_s: float
    severity: float = 0.5
    peer: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.at_s < inf:
            raise SettingsError(f"fault: it begins at {self.at_s} s; give 0 or more")
        low, high = _BOUNDS.get(self.injection, (0.01, 1.0))
        if self.injection in SEVERITIES and not low <= self.severity <= high:
            raise SettingsError(f"fault: {self.injection} has a severity of {self.severity}; give {low} to {high}")

    @property
    def kind(self) -> Class:
        """What kind of anomaly it is."""
        return _CLASSES.get(self.injection, Class.COMMUNICATION_SLOW)

    @property
    def compute_factor(self) -> float:
        """How much longer the rank's GPU computes: clocks follow about the root of the power."""
        throttled = self.injection is Injection.GPU_THROTTLING
        return float((RATED_WATTS / self.severity) ** 0.55) if throttled else 1.0

    @property
    def service(self) -> Service | None:
        """How the host's proxies are served; None: as ever.

        Slow clocks make all they do longer, and cores that sleep deeply wake up late. A thread that shares its core
        waits for whole time slices of the others, more often the fewer cores are left.
        """
        if self.injection is Injection.CPU_THROTTLING:
            return Service(factor=6.0, stall_share=0.02, stall_s=100e-6, tail=1.5, longest_s=2e-3)
        if self.injection is Injection.CPU_CONTENTION:
            left = 1.0 - self.severity
            return Service(stall_share=0.03 * 10 ** (-5 * left), stall_s=400e-6, tail=1.3, longest_s=6e-3)
        return None

    @property
    def line_factor(self) -> float:
        """What its NIC can still send, as a share of its line."""
        if self.injection is Injection.PCIE_DOWNGRADE:
            return self.severity
        return 0.55 if self.injection is Injection.MEMORY_ALIGNMENT else 1.0

    @property
    def looped_back(self) -> float:
        """Share of the line that loopback traffic of the same NIC takes."""
        return self.severity if self.injection is Injection.PCIE_CONTENTION else 0.0

    @property
    def stops_computing(self) -> bool:
        """Whether the GPU does not go on."""
        return self.kind is Class.COMPUTATION_STOP
