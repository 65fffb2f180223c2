"""Faults: which device is slow, when, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from schemas.errors import SettingsError

FLUCTUATES_EVERY = range(6, 10)
"""Iterations from one peak of a fluctuation to the next."""

FEWEST_OF_A_FLUCTUATION = 4


class Kind(StrEnum):
    """What is slow."""

    GPU_SLOW = "gpu_slow"
    """One rank computes more slowly."""
    NIC_SLOW = "nic_slow"
    """The transfer rate of one NIC falls, in both directions."""
    CPU_SLOW = "cpu_slow"
    """All ranks of one host load data, and launch operators, more slowly."""
    NVLINK_SLOW = "nvlink_slow"
    """The transfer rate between the GPUs of one host falls."""
    LINK_SLOW = "link_slow"
    """The transfer rate of the cable between one NIC and its ToR falls."""
    TOR_SLOW = "tor_slow"
    """The transfer rate of every port of one ToR falls."""
    SPINE_SLOW = "spine_slow"
    """The transfer rate of every port of one spine falls."""


SWITCHED = frozenset({Kind.LINK_SLOW, Kind.TOR_SLOW, Kind.SPINE_SLOW})
"""What only a job with a described fabric has."""


_WORST = 1000
"""How many times slower a device or an iteration may become."""


class Pattern(StrEnum):
    """How a fault behaves over time."""

    PERSISTENT = "persistent"
    SPIKES = "spikes"
    FLUCTUATION = "fluctuation"


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
    mechanism. The device is the GPU, NIC or link of ``rank``, the CPU or NVLink of its host or the ToR of its NIC; of
    a spine ``rank`` is the number. ``part`` matters to a GPU only.
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
            raise SettingsError(f"fault on {self.place}: give either a slowdown or a factor")
        size = self.slowdown if self.slowdown is not None else self.factor
        if size is None or not 1 <= size <= _WORST:
            raise SettingsError(f"fault on {self.place}: {size} is no slowness; give 1 to {_WORST}")
        if not self.iterations or list(self.iterations) != sorted(set(self.iterations)):
            raise SettingsError(f"fault on {self.place}: its iterations must be given, ascending and once each")
        if self.kind is not Kind.GPU_SLOW and self.part is not Part.ALL:
            raise SettingsError(f"fault on {self.place}: only a GPU is slow in some parts of an iteration")

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{'spine' if self.kind is Kind.SPINE_SLOW else 'rank'} {self.rank}"

    @property
    def pattern(self) -> Pattern:
        """Persistent where the affected iterations have no hole, a fluctuation where they come every 6 to 9."""
        gaps = {after - before for before, after in pairwise(self.iterations)}
        if gaps == {1}:
            return Pattern.PERSISTENT
        rhythmic = len(self.iterations) >= FEWEST_OF_A_FLUCTUATION and gaps <= set(FLUCTUATES_EVERY)
        return Pattern.FLUCTUATION if rhythmic else Pattern.SPIKES

    def slows(self, phase: str) -> bool:
        """Whether compute of a phase is slow."""
        return self.kind is Kind.GPU_SLOW and (self.part is Part.ALL or self.part.value == phase)
