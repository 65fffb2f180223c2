"""How slow a device must be for a fault to lengthen iterations as much as wanted, found on the simulation itself."""

from __future__ import annotations

import numpy as np

from producers.simulation import engine
from producers.simulation.durations import Durations
from producers.simulation.fabric import Fabric
from producers.simulation.faults import Fault, Kind
from producers.simulation.network import SlowDevice
from producers.simulation.noise import Floats
from producers.simulation.truth import iteration_lengths
from schemas.errors import SettingsError

LARGEST_FACTOR = {Kind.GPU_SLOW: 100.0}
_LARGEST_FACTOR = 20_000.0
"""Of devices that transfer."""
_SAMPLES = 5
_GRID = 17
_ROUNDS = 3


def slow_device(durations: Durations, fault: Fault) -> SlowDevice:
    """The fault with the device factor that brings about its slowdown in its median iteration.

    Raises ``SettingsError`` where no factor does: nothing on the critical path depends on the device.
    """
    if fault.factor is not None:
        return SlowDevice(fault, fault.factor)
    assert fault.slowdown is not None
    picks = np.linspace(0, len(fault.iterations) - 1, min(_SAMPLES, len(fault.iterations)))
    sample = [fault.iterations[int(p)] for p in picks]
    low, high = np.log(1.0005), np.log(LARGEST_FACTOR.get(fault.kind, _LARGEST_FACTOR))
    if _slowdowns(durations, fault, np.array([np.exp(high)]), sample)[0] < fault.slowdown:
        device = Fabric(durations.cluster).device(fault)
        raise SettingsError(f"{device}: no slowness of it makes iterations {fault.slowdown:g} times as long")
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID)
        above = _slowdowns(durations, fault, np.exp(grid), sample) >= fault.slowdown
        first = int(np.argmax(above)) if above.any() else _GRID - 1
        low, high = grid[max(first - 1, 0)], grid[first]
    return SlowDevice(fault, float(np.exp((low + high) / 2)))


def _slowdowns(durations: Durations, fault: Fault, factors: Floats, iterations: list[int]) -> Floats:
    """Median slowdown of the iterations, each run after the one before it, for every factor."""
    worlds = [(), *((SlowDevice(fault, float(f)),) for f in factors)]
    lengths = np.array(
        [iteration_lengths(engine.run(durations, worlds, range(max(i - 1, 0), i + 1)))[-1] for i in iterations]
    )
    return np.asarray(np.median(lengths[:, 1:] / lengths[:, :1], axis=0))
