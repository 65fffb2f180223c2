"""The simulated cluster: hosts, GPUs, one NIC a GPU, communicators, and what each transfer crosses.

Ranks follow Megatron-LM's order: tensor fastest, then data, then pipeline. Arrays over ranks have the shape
(pp, dp, tp) or, for one stage, (dp, tp), so that ravelling them gives the ranks in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from diagnosis.job import Communicator, Job, Layout, Place
from producers.simulation.faults import Fault, Kind
from producers.simulation.noise import Draws, Floats, Purpose
from producers.simulation.scenario import Scenario
from producers.simulation.schedule import Scope

NVLINK_BYTES_PER_S = 180e9
NIC_BYTES_PER_S = 42e9
BASE_LATENCY_S = 15e-6
HOP_LATENCY_S = 4e-6

EPOCH_NS = 1_767_225_600_000_000_000
_YEAR_S = 365 * 86400

Ints = npt.NDArray[np.int64]

_AXES = {
    Scope.TENSOR: (2,),
    Scope.DATA: (1,),
    Scope.EXPERT: (1,),
    Scope.PIPELINE: (0,),
    Scope.EMBEDDING: (0,),
    Scope.MODEL: (0, 2),
}
"""Axes of (pp, dp, tp) that a scope's groups extend over."""


@dataclass(frozen=True)
class Cluster:
    """Where the ranks of a scenario run and how they are grouped."""

    scenario: Scenario

    @cached_property
    def grid(self) -> Ints:
        """Rank at each (stage, data, tensor) coordinate."""
        s = self.scenario
        return np.arange(s.world, dtype=np.int64).reshape(s.pp, s.dp, s.tp)

    @cached_property
    def host(self) -> Ints:
        """Host of each rank, by number; shape of ``grid``."""
        return self.grid // self.scenario.gpus_per_host

    @cached_property
    def gpu(self) -> Ints:
        """Index of each rank's GPU (and NIC, and rail) on its host; shape of ``grid``."""
        return self.grid % self.scenario.gpus_per_host

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return int(self.host.max()) + 1

    def groups(self, scope: Scope) -> Ints:
        """The groups of a scope, a row each, ascending; shape (groups, members)."""
        axes = _AXES[scope]
        grid = self.grid[[0, -1]] if scope is Scope.EMBEDDING else self.grid
        others = tuple(axis for axis in range(3) if axis not in axes)
        members = int(np.prod([grid.shape[axis] for axis in axes]))
        return grid.transpose(*others, *axes).reshape(-1, members)

    def size(self, scope: Scope) -> int:
        """Members of each group of a scope."""
        return int(self.groups(scope).shape[1])

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """Scopes that the job has communicators for."""
        s = self.scenario
        used = {
            Scope.TENSOR: s.tp > 1,
            Scope.DATA: s.dp > 1,
            Scope.EXPERT: s.ep > 1,
            Scope.PIPELINE: s.pp > 1,
            Scope.EMBEDDING: s.pp > 1,
            Scope.MODEL: s.tp * s.pp > 1,
        }
        return tuple(scope for scope in Scope if used[scope])

    @cached_property
    def communicator_names(self) -> dict[Scope, list[str]]:
        """Opaque id of each group of each scope, in the order of ``groups``."""
        return {
            scope: [_opaque(self.scenario.seed, scope, i) for i in range(len(self.groups(scope)))]
            for scope in self.scopes
        }

    @cached_property
    def group_of_rank(self) -> dict[Scope, Ints]:
        """Index of each rank's group per scope, -1 outside; shape (ranks,)."""
        of: dict[Scope, Ints] = {}
        for scope in self.scopes:
            groups = self.groups(scope)
            of[scope] = np.full(self.scenario.world, -1, dtype=np.int64)
            of[scope][groups] = np.arange(len(groups))[:, None]
        return of

    def nic_share(self, scope: Scope) -> Floats:
        """Part of a group's traffic that crosses each member's NIC; shape of ``grid``, 0 outside.

        Rings are striped over the NICs of the members on a host, so that each carries an equal part of what
        leaves it; in an all-to-all each member sends through its own NIC what is not for its own host.
        """
        share = np.zeros(self.scenario.world)
        hosts = self.host.ravel()
        for group in self.groups(scope):
            local = (hosts[group][:, None] == hosts[group][None, :]).sum(axis=1)
            if local.max() < len(group):
                ring = 1 / local
                direct = (len(group) - local) / (len(group) - 1)
                share[group] = direct if scope is Scope.EXPERT else ring
        return share.reshape(self.grid.shape)

    def same_host(self, stage: int, other: int) -> npt.NDArray[np.bool_]:
        """Whether the ranks of two stages that send to each other share a host; shape (dp, tp)."""
        return np.asarray(self.host[stage] == self.host[other])

    def device(self, fault: Fault) -> str:
        """Name of the device that a fault slows."""
        return self.gpu_name(fault.rank) if fault.kind is Kind.GPU_SLOW else self.nic_name(fault.rank)

    def gpu_name(self, rank: int) -> str:
        """``gpu:host/index``."""
        host, gpu = divmod(rank, self.scenario.gpus_per_host)
        return f"gpu:h{host}/{gpu}"

    def nic_name(self, rank: int) -> str:
        """``nic:host/name``."""
        host, gpu = divmod(rank, self.scenario.gpus_per_host)
        return f"nic:h{host}/mlx5_{gpu}"

    @cached_property
    def nic_traffic(self) -> list[frozenset[tuple[Scope, int, int]]]:
        """What crosses each rank's NIC: (scope, group, group) of collectives, (scope, rank, rank) of pairs.

        The few bytes of the gradient norm are left out: no slowness shows in them.
        """
        traffic: list[set[tuple[Scope, int, int]]] = [set() for _ in range(self.scenario.world)]
        for scope in self.scopes:
            if scope in {Scope.PIPELINE, Scope.MODEL}:
                continue
            for rank in np.flatnonzero(self.nic_share(scope).ravel() > 0):
                group = int(self.group_of_rank[scope][rank])
                traffic[rank].add((scope, group, group))
        for stage in range(self.scenario.pp - 1):
            for a, b in zip(self.grid[stage].ravel(), self.grid[stage + 1].ravel(), strict=True):
                if self.host.ravel()[a] != self.host.ravel()[b]:
                    for rank in (a, b):
                        traffic[rank].add((Scope.PIPELINE, int(a), int(b)))
        return [frozenset(flows) for flows in traffic]

    def inseparable(self, fault: Fault) -> tuple[str, ...]:
        """Names of the devices that no evidence can tell from a fault's device, itself included.

        NICs that carry the very same traffic slow the very same operators.
        """
        if fault.kind is Kind.GPU_SLOW or not self.nic_traffic[fault.rank]:
            return (self.device(fault),)
        same = [r for r, flows in enumerate(self.nic_traffic) if flows == self.nic_traffic[fault.rank]]
        return tuple(self.nic_name(rank) for rank in same)

    @cached_property
    def started_ns(self) -> int:
        """When the job starts, somewhere within a year."""
        return EPOCH_NS + int(Draws(self.scenario.seed).stream(Purpose.EPOCH).integers(_YEAR_S)) * 1_000_000_000

    def job(self, ended_ns: int | None = None) -> Job:
        """The job as its scheduler describes it: places, members of communicators, degrees of parallelism."""
        s = self.scenario
        places = []
        for rank in range(s.world):
            host, gpu = divmod(rank, s.gpus_per_host)
            places.append(Place(rank, f"h{host}", gpu, (f"mlx5_{gpu}",)))
        communicators = [
            Communicator(name, tuple(int(r) for r in ranks))
            for scope in self.scopes
            for name, ranks in zip(self.communicator_names[scope], self.groups(scope), strict=True)
        ]
        communicators.sort(key=lambda c: c.communicator)
        layout = None if s.omissions.layout else Layout(tp=s.tp, pp=s.pp, dp=s.dp, cp=1, ep=s.ep, source="given")
        return Job(s.name, tuple(places), tuple(communicators), layout, started_ns=self.started_ns, ended_ns=ended_ns)


def _opaque(seed: int, scope: Scope, index: int) -> str:
    """An id that says nothing about what it stands for."""
    return blake2b(f"{seed}/{scope.value}/{index}".encode(), digest_size=8).hexdigest()
