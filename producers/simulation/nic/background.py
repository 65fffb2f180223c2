"""Traffic of others through the job's NICs: storage, checkpoints, other tenants, and loopback that is a fault.

Its queue pairs are in no map. It goes at rates of its own, and leaves the job's flows the rest of the line.
As iterations are much shorter than real ones, it comes as much more often.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.faults import Injection
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.slices import Ints

_PERIODS = 10
"""Of a second; what comes is drawn for each."""

FLOWS = 8
"""Queue pairs of a NIC that belong to others; the last one is the loopback's."""

_CHECKPOINT_FLOW, _LOOPBACK_FLOW = 0, FLOWS - 1
_STORAGE_FLOWS, _TENANTS_FLOWS = (1, 4), (4, FLOWS - 1)


@dataclass(frozen=True, slots=True)
class Burst:
    """A flow of others sends at a steady rate for a while."""

    nic: int
    flow: int
    begin_s: float
    end_s: float
    bytes_per_s: float


def bursts(scenario: NicScenario, second: int) -> Iterator[Burst]:
    """What others send in one second of the run; through a NIC that is down nothing."""
    down_s = {fault.rank: fault.at_s for fault in scenario.faults if fault.injection is Injection.NIC_DOWN}
    for burst in _wanted(scenario, second):
        until = min(burst.end_s, down_s.get(burst.nic, burst.end_s))
        if burst.begin_s < until:
            yield replace(burst, end_s=until)


def _wanted(scenario: NicScenario, second: int) -> Iterator[Burst]:
    for period in range(second * _PERIODS, (second + 1) * _PERIODS):
        for nic in range(scenario.world):
            yield from _of_others(scenario, nic, period)
    for fault in scenario.faults:
        if fault.injection is Injection.PCIE_CONTENTION and fault.at_s < second + 1:
            begin = max(fault.at_s, float(second))
            rate = fault.looped_back * scenario.hardware.line_bytes_per_s
            yield _burst(fault.rank, _LOOPBACK_FLOW, begin, second + 1 - begin, rate)


def _of_others(scenario: NicScenario, nic: int, period: int) -> Iterator[Burst]:
    """Storage, other tenants and checkpoints, which every third host begins, in turn."""
    chance = stream(scenario.seed, Purpose.BACKGROUND, nic, period)
    often = scenario.noise.background

    def begin() -> float:
        return (period + chance.random()) / _PERIODS

    for _ in range(chance.poisson(0.8 * often)):
        flow = int(chance.integers(*_STORAGE_FLOWS))
        rate = chance.uniform(0.5e9, 4e9)
        yield _burst(nic, flow, begin(), chance.uniform(1e6, 8e6) / rate, rate)
    for _ in range(chance.poisson(0.8 * often)):
        flow = int(chance.integers(*_TENANTS_FLOWS))
        yield _burst(nic, flow, begin(), chance.uniform(0.002, 0.02), chance.uniform(0.1e9, 0.5e9))
    if often and nic % scenario.tp == 0 and (period + scenario.host_of(nic)) % 3 == 0:
        yield _burst(nic, _CHECKPOINT_FLOW, begin(), 0.004, 4e9)


def _burst(nic: int, flow: int, begin: float, length: float, rate: float) -> Burst:
    return Burst(nic, flow, begin, begin + length, rate)


def counted(found: list[Burst], first_epoch_s: float, epoch_s: float, event_bytes: int) -> tuple[Ints, Ints]:
    """Epochs and events of one flow's bursts; what is left of an event goes on to the next burst."""
    epochs: list[Ints] = []
    events: list[Ints] = []
    carried = 0.0
    for burst in sorted(found, key=lambda b: b.begin_s):
        first = int((burst.begin_s - first_epoch_s) // epoch_s)
        edges = first + np.arange(int((burst.end_s - burst.begin_s) / epoch_s) + 3)
        times = np.clip(first_epoch_s + edges * epoch_s, burst.begin_s, burst.end_s)
        total = carried + (times - burst.begin_s) * burst.bytes_per_s
        new = np.diff((total // event_bytes).astype(np.int64))
        some = np.flatnonzero(new)
        epochs.append(edges[some])
        events.append(new[some])
        carried = float(total[-1]) % event_bytes
    if not epochs:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    numbers, place = np.unique(np.concatenate(epochs), return_inverse=True)
    return numbers, np.bincount(place, np.concatenate(events)).astype(np.int64)
