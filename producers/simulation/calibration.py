"""How slow a device must be for a fault to lengthen iterations as much as wanted, found on the simulation itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from producers.simulation.faults import Fault, Kind
from producers.simulation.network import SlowDevice, World
from producers.simulation.noise import Floats
from schemas.errors import SettingsError

Lengths = Callable[[Sequence[World], Sequence[int]], Floats]
"""Lengths of consecutive iterations, the first of which begins at once on all ranks; (iterations, worlds)."""

LARGEST_FACTOR = {Kind.GPU_SLOW: 100.0}
_LARGEST_FACTOR = 20_000.0
"""Of devices that transfer or launch."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How many iterations are tried, with how many factors at once, how often."""

    samples: int = 5
    grid: int = 17
    rounds: int = 3


def slow_device(lengths: Lengths, fault: Fault, device: str, effort: Effort = Effort()) -> SlowDevice:
    """The fault with the factor of its device that brings about its slowdown in its median iteration.

    Raises ``SettingsError`` where no factor does: nothing on the critical path depends on the device.
    """
    if fault.factor is not None:
        return SlowDevice(fault, fault.factor)
    assert fault.slowdown is not None
    picks = np.linspace(0, len(fault.iterations) - 1, min(effort.samples, len(fault.iterations)))
    sample = [fault.iterations[int(p)] for p in picks]
    low, high = np.log(1.0005), np.log(LARGEST_FACTOR.get(fault.kind, _LARGEST_FACTOR))
    if _slowdowns(lengths, fault, np.array([np.exp(high)]), sample)[0] < fault.slowdown:
        raise SettingsError(f"{device}: no slowness of it makes iterations {fault.slowdown:g} times as long")
    for _ in range(effort.rounds):
        grid = np.linspace(low, high, effort.grid)
        above = _slowdowns(lengths, fault, np.exp(grid), sample) >= fault.slowdown
        first = int(np.argmax(above)) if above.any() else effort.grid - 1
        low, high = grid[max(first - 1, 0)], grid[first]
    return SlowDevice(fault, float(np.exp((low + high) / 2)))


def _slowdowns(lengths: Lengths, fault: Fault, factors: Floats, iterations: list[int]) -> Floats:
    """Median slowdown of the iterations, each run after the one before it, for every factor."""
    worlds: list[World] = [(), *((SlowDevice(fault, float(f)),) for f in factors)]
    last = np.array([lengths(worlds, range(max(i - 1, 0), i + 1))[-1] for i in iterations])
    return np.asarray(np.median(last[:, 1:] / last[:, :1], axis=0))
