"""The simulated cluster: hosts, GPUs, one NIC a GPU, and the groups in which ranks communicate.

Ranks follow Megatron-LM's order: tensor fastest, then context, data, pipeline. Arrays over ranks have the shape
(pp, ranks of a stage) or, for one stage, (ranks of a stage,), so that ravelling them gives the ranks in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnosis.job import Communicator, Job, Layout, Place
from producers.simulation.noise import Draws, Floats, Purpose
from producers.simulation.scenario import Scenario
from producers.simulation.schedule import Scope

EPOCH_NS = 1_767_225_600_000_000_000
_YEAR_S = 365 * 86400

Ints = npt.NDArray[np.int64]

WITHIN = {
    Scope.TENSOR: (3,),
    Scope.CONTEXT: (2,),
    Scope.BLOCK: (2, 3),
    Scope.DATA: (0, 1, 2),
    Scope.EXPERT_DATA: (0,),
}
"""Axes of a stage's ranks (``Scenario.stage_shape``) that groups which lie within one stage extend over."""

BETWEEN = {Scope.PIPELINE: (), Scope.EMBEDDING: (), Scope.MODEL: (3,)}
"""The same for groups that extend over stages."""


@dataclass(frozen=True)
class Cluster:
    """Where the ranks of a scenario run and how they are grouped."""

    scenario: Scenario

    @property
    def stage_ranks(self) -> int:
        """Ranks of each stage."""
        return self.scenario.world // self.scenario.pp

    @cached_property
    def grid(self) -> Ints:
        """Ranks of each stage; shape (pp, ranks of a stage)."""
        return np.arange(self.scenario.world, dtype=np.int64).reshape(self.scenario.pp, -1)

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

    def axes(self, scope: Scope) -> tuple[int, ...]:
        """Axes of ``Scenario.stage_shape`` that a scope's groups extend over."""
        if scope is Scope.EXPERT:
            return (1, 2, 3) if self.scenario.fold_experts else (1,)
        return WITHIN[scope] if scope in WITHIN else BETWEEN[scope]

    def within(self, scope: Scope) -> bool:
        """Whether each group of a scope lies within one stage."""
        return scope not in BETWEEN

    def highest(self, values: npt.NDArray[Any], scope: Scope) -> npt.NDArray[Any]:
        """The highest value in each rank's group within its stage; (.., ranks of a stage), as given."""
        return self._reduced(values, scope, lambda cube, axes: cube.max(axis=axes, keepdims=True))

    def of_first(self, values: npt.NDArray[Any], scope: Scope) -> npt.NDArray[Any]:
        """The value of the first member of each rank's group within its stage; (.., ranks of a stage), as given."""
        cut = [slice(0, 1) if axis in self.axes(scope) else slice(None) for axis in range(4)]
        return self._reduced(values, scope, lambda cube, _: cube[..., *cut])

    def _reduced(
        self,
        values: npt.NDArray[Any],
        scope: Scope,
        reduce: Callable[[npt.NDArray[Any], tuple[int, ...]], npt.NDArray[Any]],
    ) -> npt.NDArray[Any]:
        if not self.axes(scope):
            return values
        cube = values.reshape(*values.shape[:-1], *self.scenario.stage_shape)
        reduced = reduce(cube, tuple(axis - 4 for axis in self.axes(scope)))
        return np.broadcast_to(reduced, cube.shape).reshape(values.shape)

    def groups(self, scope: Scope) -> Ints:
        """The groups of a scope, a row each, ascending; shape (groups, members)."""
        cube = self.grid.reshape(-1, *self.scenario.stage_shape)
        if scope is Scope.EMBEDDING:
            cube = cube[[0, -1]]
        axes = tuple(axis + 1 for axis in self.axes(scope))
        if not self.within(scope):
            axes = (0, *axes)
        others = tuple(axis for axis in range(5) if axis not in axes)
        members = int(np.prod([cube.shape[axis] for axis in axes]))
        return cube.transpose(*others, *axes).reshape(-1, members)

    def size(self, scope: Scope) -> int:
        """Members of each group of a scope."""
        within = int(np.prod([self.scenario.stage_shape[axis] for axis in self.axes(scope)]))
        if self.within(scope):
            return within
        return within * (min(self.scenario.pp, 2) if scope is Scope.EMBEDDING else self.scenario.pp)

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """Scopes that the job has communicators for."""
        s = self.scenario
        used = {
            Scope.TENSOR: s.tp > 1,
            Scope.CONTEXT: s.cp > 1,
            Scope.BLOCK: s.cp > 1,
            Scope.DATA: s.dp * s.cp > 1,
            Scope.EXPERT: s.ep > 1,
            Scope.EXPERT_DATA: s.ep > 1 and s.stage_shape[0] > 1,
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

    def local_members(self, scope: Scope) -> Ints:
        """How many of each rank's group run on its host, itself included; shape of ``grid``, 0 outside."""
        local = np.zeros(self.scenario.world, dtype=np.int64)
        hosts = self.host.ravel()
        for group in self.groups(scope):
            _, place, counts = np.unique(hosts[group], return_inverse=True, return_counts=True)
            local[group] = counts[place]
        return local.reshape(self.grid.shape)

    def nic_share(self, scope: Scope) -> Floats:
        """Part of a group's traffic that crosses each member's NIC; shape of ``grid``, 0 outside.

        Rings are striped over the NICs of the members on a host, so that each carries an equal part of what
        leaves it; in an all-to-all each member sends through its own NIC what is not for its own host.
        """
        local, size = self.local_members(scope), self.size(scope)
        part = (size - local) / max(size - 1, 1) if scope is Scope.EXPERT else 1 / np.maximum(local, 1)
        return np.where((local > 0) & (local < size), part, 0.0)

    def same_host(self, stage: int, other: int) -> npt.NDArray[np.bool_]:
        """Whether the ranks of two stages that send to each other share a host; shape (ranks of a stage,)."""
        return np.asarray(self.host[stage] == self.host[other])

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
        layout = None if s.omissions.layout else Layout(tp=s.tp, pp=s.pp, dp=s.dp, cp=s.cp, ep=s.ep, source="given")
        return Job(s.name, tuple(places), tuple(communicators), layout, started_ns=self.started_ns, ended_ns=ended_ns)


def _opaque(seed: int, scope: Scope, index: int) -> str:
    """An id that says nothing about what it stands for."""
    return blake2b(f"{seed}/{scope.value}/{index}".encode(), digest_size=8).hexdigest()
