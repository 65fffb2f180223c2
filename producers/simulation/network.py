"""What a byte takes between ranks: shares, rates, faults and the traffic of others; who waits is not told here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from producers.simulation import noise
from producers.simulation.cluster import Cluster, Ints
from producers.simulation.fabric import NIC_BYTES_PER_S, NVLINK_BYTES_PER_S, Fabric
from producers.simulation.faults import Fault, Kind
from producers.simulation.noise import Draws, Floats
from producers.simulation.schedule import Scope


@dataclass(frozen=True, slots=True)
class SlowDevice:
    """A fault whose device factor is known."""

    fault: Fault
    factor: float


World = tuple[SlowDevice, ...]
"""The faults that are present; empty: a healthy cluster."""


class Network:
    """The cluster's network in every iteration."""

    def __init__(self, cluster: Cluster, draws: Draws) -> None:
        self.cluster = cluster
        self.fabric = Fabric(cluster)
        self._draws = draws

    def rates(self, iteration: int, worlds: Sequence[World]) -> Rates:
        """What a byte takes everywhere in one iteration, under each world's faults."""
        scenario, fabric = self.cluster.scenario, self.fabric
        slots = scenario.microbatches + 1
        if scenario.fabric is None:
            busy = noise.background_traffic(self._draws, iteration, slots, scenario.gpus_per_host, scenario.noise)
            others, state = np.unique(busy, axis=0, return_inverse=True)
            busy_spines = np.ones((len(others), 1))
        else:
            burst = noise.burst(self._draws, iteration, slots, fabric.tors, fabric.shape.spines, scenario.noise)
            others, busy_spines, state = burst.tors, burst.spines, burst.state
        port = np.ones((len(worlds), scenario.world))
        nvlink = np.ones((len(worlds), self.cluster.hosts))
        spines = np.ones((len(worlds), fabric.shape.spines))
        for w, world in enumerate(worlds):
            for slow in world:
                if iteration in slow.fault.iterations:
                    self._slow_down(slow, port[w], nvlink[w], spines[w])
        return Rates(
            self,
            np.asarray(state.ravel()),
            port=others[:, None, fabric.tor] * port,
            spines=busy_spines[:, None] * spines,
            nvlink=np.repeat(nvlink, scenario.gpus_per_host, axis=1)[:, : scenario.world],
        )

    def quiet(self) -> Rates:
        """Without faults and others' traffic."""
        scenario, shape = self.cluster.scenario, self.fabric.shape
        return Rates(
            self,
            np.zeros(scenario.microbatches + 1, dtype=np.int64),
            port=np.ones((1, 1, scenario.world)),
            spines=np.ones((1, 1, shape.spines)),
            nvlink=np.ones((1, scenario.world)),
        )

    def _slow_down(self, slow: SlowDevice, port: Floats, nvlink: Floats, spines: Floats) -> None:
        kind, rank = slow.fault.kind, slow.fault.rank
        if kind in {Kind.NIC_SLOW, Kind.LINK_SLOW}:
            port[rank] *= slow.factor
        elif kind is Kind.TOR_SLOW:
            port[self.fabric.tor == self.fabric.tor[rank]] *= slow.factor
        elif kind is Kind.SPINE_SLOW:
            spines[rank] *= slow.factor
        elif kind is Kind.NVLINK_SLOW:
            nvlink[rank // self.cluster.scenario.gpus_per_host] *= slow.factor

    def hops(self, scope: Scope) -> Hops:
        """How the ranks' groups of a scope are connected."""
        if scope not in self._hops:
            ranks = np.arange(self.cluster.scenario.world)
            onward = self.fabric.next_host(scope)
            self._hops[scope] = Hops(
                share=self.cluster.nic_share(scope).ravel(),
                spine=np.where(onward >= 0, self.fabric.spine(ranks, np.maximum(onward, 0)), -1),
                local=self.cluster.local_members(scope).ravel() > 1,
            )
        return self._hops[scope]

    @cached_property
    def _hops(self) -> dict[Scope, Hops]:
        return {}


@dataclass(frozen=True, slots=True)
class Hops:
    """What each rank's part of its group's traffic takes; arrays (ranks,).

    ``share`` of it crosses the rank's NIC, and ``spine`` if that is not -1; ``local``: other members are on its host.
    """

    share: Floats
    spine: Ints
    local: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rates:
    """One iteration's network. ``state`` is the state of the switches in each slot: each microbatch and, last, what
    follows them. ``port`` (states, worlds, ranks) and ``spines`` (states, worlds, spines) say how much longer a byte
    takes through each rank's port and each spine, ``nvlink`` (worlds, ranks) between the GPUs of its host.
    """

    network: Network
    state: Ints
    port: Floats
    spines: Floats
    nvlink: Floats
    _of_scope: dict[Scope, Floats] = field(default_factory=dict)
    _of_pairs: dict[tuple[int, int], Floats] = field(default_factory=dict)

    def of_group(self, scope: Scope) -> Floats:
        """Seconds of a byte through the slowest part of each rank's group: (states, worlds, pp, ranks of a stage).

        Of groups between stages all members' are given, of embedding groups those of the first and last stage.
        """
        if scope not in self._of_scope:
            self._of_scope[scope] = self._group(scope)
        return self._of_scope[scope]

    def of_pair(self, stage: int, other: int) -> Floats:
        """Seconds of a byte between the ranks of two stages; shape (states, worlds, ranks of a stage)."""
        pair = (min(stage, other), max(stage, other))
        if pair not in self._of_pairs:
            self._of_pairs[pair] = self._pair(*pair)
        return self._of_pairs[pair]

    def _group(self, scope: Scope) -> Floats:
        cluster = self.network.cluster
        hops = self.network.hops(scope)
        through = self.port / NIC_BYTES_PER_S * hops.share * self._through(hops.spine)
        hop = np.maximum(through, np.where(hops.local, self.nvlink, 1.0) / NVLINK_BYTES_PER_S)
        hop = hop.reshape(*hop.shape[:2], *cluster.grid.shape)
        if scope is Scope.EMBEDDING:
            hop = np.broadcast_to(np.maximum(hop[:, :, :1], hop[:, :, -1:]), hop.shape)
        elif scope is Scope.MODEL:
            hop = np.broadcast_to(hop.max(axis=2, keepdims=True), hop.shape)
        return cluster.highest(np.ascontiguousarray(hop), scope)

    def _pair(self, stage: int, other: int) -> Floats:
        network = self.network
        a, b = network.cluster.grid[stage], network.cluster.grid[other]
        wire = np.maximum(self.port[..., a], self.port[..., b]) * self._through(network.fabric.spine(a, b))
        near = np.broadcast_to(np.maximum(self.nvlink[:, a], self.nvlink[:, b]), wire.shape)
        same = network.cluster.same_host(stage, other)
        return np.where(same, near / NVLINK_BYTES_PER_S, wire / NIC_BYTES_PER_S)

    def _through(self, spine: Ints) -> Floats:
        """How much longer a byte takes through spines; 1 where there is none; (states, worlds, *)."""
        return np.where(spine >= 0, self.spines[..., np.maximum(spine, 0)], 1.0)
