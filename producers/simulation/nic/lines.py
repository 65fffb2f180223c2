"""What each NIC's line can carry at a time: its PCIe, its switch port, and what others send through it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np

from producers.simulation.nic import background
from producers.simulation.nic.background import Burst
from producers.simulation.nic.capacity import Capacity
from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.faults import Fault, Injection
from producers.simulation.nic.proxies import Floats
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.wiring import Plan

NUMA_CHANGES_S = 100e-6
"""How long the way to another socket's memory has one rate."""

_NUMA_RATES = (0.25, 0.9)
_LEAST = 0.05
"""Share of a line that others leave in any case."""


class Lines:
    """Keeps capacities up to date; ``bursts`` is what others have sent so far."""

    def __init__(self, scenario: NicScenario, plan: Plan, capacity: Capacity) -> None:
        self._scenario, self._plan, self._capacity = scenario, plan, capacity
        nics = scenario.world
        self._line = scenario.hardware.line_bytes_per_s
        self._pcie, self._port, self._load = np.ones(nics), np.ones(nics), np.zeros(nics)
        self._far: dict[int, Floats] = {}
        self._far_until = 0.0
        self._down: dict[int, float] = {}
        self._changes: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._seconds = 0
        self.bursts: list[Burst] = []
        for fault in scenario.faults:
            self._at(fault.at_s, partial(self._break, fault))
            if fault.injection is Injection.NIC_DOWN:
                self._down[fault.rank] = fault.at_s

    def advance(self, now: float) -> None:
        """Bring all lines to their state at a time; times never go back."""
        while self._seconds <= now + 1:
            self._plan_second(self._seconds)
            self._seconds += 1
        while self._changes and self._changes[0][0] <= now:
            heapq.heappop(self._changes)[2]()
        if self._far and now >= self._far_until:
            self._fluctuate(now)

    def _at(self, time: float, change: Callable[[], None]) -> None:
        heapq.heappush(self._changes, (time, next(self._order), change))

    def _plan_second(self, second: int) -> None:
        for burst in background.bursts(self._scenario, second):
            down = self._down.get(burst.nic, np.inf)
            if burst.begin_s < down:
                self.bursts.append(replace(burst, end_s=min(burst.end_s, down)))
                self._at(burst.begin_s, partial(self._carry, burst.nic, burst.bytes_per_s))
                self._at(burst.end_s, partial(self._carry, burst.nic, -burst.bytes_per_s))
        for nic in range(self._scenario.world):
            self._plan_congestion(second, stream(self._scenario.seed, Purpose.PORTS, nic, second), [nic])
        for place in range(self._scenario.tp):
            leaf = range(place, self._scenario.world, self._scenario.tp)
            self._plan_congestion(second, stream(self._scenario.seed, Purpose.LEAVES, place, second), leaf)

    def _plan_congestion(self, second: int, chance: np.random.Generator, nics: Iterable[int]) -> None:
        """Within some seconds what leaves a switch port, or those of all NICs that share a leaf, is congested."""
        if chance.random() < self._scenario.noise.congested_share:
            begin, length = second + chance.random(), chance.uniform(0.002, 0.02)
            share = chance.uniform(0.6, 0.95)
            for nic in nics:
                self._at(begin, partial(self._congest, nic, share))
                self._at(begin + length, partial(self._congest, nic, 1 / share))

    def _carry(self, nic: int, rate: float) -> None:
        self._load[nic] += rate
        self._update(nic)

    def _congest(self, nic: int, factor: float) -> None:
        self._port[nic] *= factor
        self._update(nic)

    def _break(self, fault: Fault) -> None:
        if fault.injection is Injection.NIC_DOWN:
            self._capacity.silence(fault.rank)
        elif fault.injection is Injection.CROSS_NUMA:
            first = self._scenario.host_of(fault.rank) * self._scenario.tp
            for nic in range(first, first + self._scenario.tp):
                chance = stream(self._scenario.seed, Purpose.NUMA, nic)
                self._far[nic] = chance.uniform(*_NUMA_RATES, size=4096)
        elif fault.injection is Injection.CONGESTION and fault.peer is not None:
            self._narrow(fault.rank, fault.peer, fault.severity)
        elif fault.injection is Injection.CONGESTION:
            self._congest(fault.rank, fault.severity)
        else:
            self._pcie[fault.rank] *= fault.line_factor
            self._update(fault.rank)

    def _narrow(self, source: int, destination: int, share: float) -> None:
        """The path between two ranks gets a share of what fairness gives it."""
        pairs = set(zip(self._plan.source[:-1].tolist(), self._plan.destination[:-1].tolist(), strict=True))
        meets = max(sum(a == source for a, _ in pairs), sum(b == destination for _, b in pairs))
        path = np.flatnonzero((self._plan.source == source) & (self._plan.destination == destination))
        self._capacity.narrow(path, share * self._line / meets / max(len(path), 1))

    def _fluctuate(self, now: float) -> None:
        turn = int(now / NUMA_CHANGES_S)
        for nic, rates in self._far.items():
            self._pcie[nic] = rates[turn % len(rates)]
            self._update(nic)
        self._far_until = (turn + 1) * NUMA_CHANGES_S

    def _update(self, nic: int) -> None:
        if nic in self._down and self._capacity.tx[nic] == 0.0:
            return
        own = max(self._line * self._pcie[nic] - self._load[nic], _LEAST * self._line)
        self._capacity.tx[nic] = min(own, self._line * self._port[nic])
