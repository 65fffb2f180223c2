"""Faults: which device is slow, when, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import SettingsError


class Kind(StrEnum):
    """What is slow."""

    GPU_SLOW = "gpu_slow"
    """One rank computes more slowly."""
    NIC_SLOW = "nic_slow"
    """The transfer rate of one NIC falls, in both directions."""


class Pattern(StrEnum):
    """How a fault behaves over time."""

    PERSISTENT = "persistent"
    SPIKES = "spikes"


class Part(StrEnum):
    """Part of an iteration whose compute is slow."""

    ALL = "all"
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Fault:
    """One slow device.

    Exactly one of ``slowdown`` (of the iterations that it affects, were it alone: 1.3 is 30 % longer) and
    ``factor`` (of the device: 2.0 computes or transfers at half speed) is given; the other follows from the
    mechanism. The device is the GPU or the NIC of ``rank``. ``part`` matters to a GPU only.
    Raises ``SettingsError`` for a fault that cannot be.
    """

    kind: Kind
    rank: int
    iterations: tuple[int, ...]
    slowdown: float | None = None
    factor: float | None = None
    part: Part = Part.ALL

    def __post_init__(self) -> None:
        if (self.slowdown is None) == (self.factor is None):
            raise SettingsError(f"fault on rank {self.rank}: give either a slowdown or a factor")
        size = self.slowdown if self.slowdown is not None else self.factor
        if size is None or size < 1:
            raise SettingsError(f"fault on rank {self.rank}: {size} would be a gain; give 1 or more")
        if not self.iterations or list(self.iterations) != sorted(set(self.iterations)):
            raise SettingsError(f"fault on rank {self.rank}: its iterations must be given, ascending and once each")
        if self.kind is Kind.NIC_SLOW and self.part is not Part.ALL:
            raise SettingsError(f"fault on rank {self.rank}: a NIC is slow in all parts of an iteration")

    @property
    def pattern(self) -> Pattern:
        """Persistent where the affected iterations have no hole."""
        unbroken = len(self.iterations) > 1 and self.iterations[-1] - self.iterations[0] == len(self.iterations) - 1
        return Pattern.PERSISTENT if unbroken else Pattern.SPIKES

    def slows(self, phase: str) -> bool:
        """Whether compute of a phase is slow."""
        return self.kind is Kind.GPU_SLOW and (self.part is Part.ALL or self.part.value == phase)
