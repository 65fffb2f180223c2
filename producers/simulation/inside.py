"""What happens inside a part, given when its members come and when they leave together.

The members' own durations are drawn as if nothing were known, and executed: a collective ends for its members when
the last has entered and the transfer is done. Such an execution is linear in all of its durations, so scaling them by
one factor makes it end exactly when the part does. The factor is near 1: how long parts take in all is drawn from what
such executions come to (``totals``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from producers.simulation import noise
from producers.simulation.cluster import Cluster, Ints
from producers.simulation.conditions import Conditions
from producers.simulation.durations import latency_s, volume
from producers.simulation.noise import Floats, NoiseProfile
from producers.simulation.parts import Kind, axes_of
from producers.simulation.schedule import Compute, Scope

Times = npt.NDArray[Any]

_LAG_CV = 0.5
"""Of the time that the host takes to launch."""


@dataclass(frozen=True)
class Grouping:
    """A stage's ranks in groups of one scope: the group of each, and the members of each, ascending."""

    of_rank: Ints
    members: Ints

    @classmethod
    def of(cls, cluster: Cluster, scope: Scope | None) -> Grouping:
        """``of_rank`` (ranks of a stage,); ``members`` (groups, members), as ranks within the stage."""
        axes, shape = axes_of(cluster, scope), cluster.scenario.stage_shape
        reduced = [1 if axis in axes else size for axis, size in enumerate(shape)]
        numbers = np.arange(int(np.prod(reduced))).reshape(reduced)
        of_rank = np.broadcast_to(numbers, shape).ravel()
        return cls(of_rank, np.argsort(of_rank, kind="stable").reshape(numbers.size, -1))


@dataclass(frozen=True, slots=True)
class PartDurations:
    """Durations in parts of one kind and one group, by segment or operator: axes (.., parts, worlds, members)."""

    segments: Times
    gaps: Times
    lags: Times
    transfers: Times

    def scaled(self, factor: Floats) -> PartDurations:
        """In whole nanoseconds, times a factor of each part and world; (parts, worlds)."""
        by = 1e9 * factor[..., None]
        return PartDurations(
            *(np.rint(d * by).astype(np.int64) for d in (self.segments, self.gaps, self.lags, self.transfers))
        )


@dataclass(frozen=True, slots=True)
class PartTimes:
    """When the members called, started and ended each operator: (operators, parts, worlds, members); whole ns."""

    call: Ints
    start: Ints
    end: Ints


class Inside:
    """Parts of one kind, for any group."""

    def __init__(self, cluster: Cluster, kind: Kind) -> None:
        self.kind = kind
        self.cluster = cluster
        self.grouping = Grouping.of(cluster, kind.scope)
        segments, operators = kind.segments, kind.operators
        size = {scope: cluster.size(scope) for scope in {o.scope for o in operators}}
        profile = cluster.scenario.noise
        self.work = np.array([s.work for s in segments])
        self.bytes = np.array([volume(o, size[o.scope]) for o in operators])
        self.latency = np.array([latency_s(o, size[o.scope]) for o in operators])
        self.scopes = tuple(dict.fromkeys(o.scope for o in operators))
        self.scope = np.array([self.scopes.index(o.scope) for o in operators], dtype=np.int64)
        self.longest = np.array(
            [
                max(step.operators, key=lambda i: operators[i].size)
                for step in kind.steps
                if not isinstance(step, Compute)
            ],
            dtype=np.int64,
        )  # of the operators of each step: they are transferred at the same time
        self._parts = np.array([max(o.size / profile.part_bytes, 1.0) for o in operators])
        self._routed = np.array([s.expert_layer is not None for s in segments], dtype=np.bool_)

    @property
    def members(self) -> int:
        """Members of each group, of all stages."""
        return len(self.kind.stages) * int(self.grouping.members.shape[1])

    def ranks(self, group: int) -> Ints:
        """Members of a group, stage by stage; shape (members,)."""
        within = self.grouping.members[group]
        return np.concatenate([self.cluster.grid[stage][within] for stage in self.kind.stages])

    def of_members(self, values: npt.NDArray[Any], group: int) -> npt.NDArray[Any]:
        """What belongs to a group's members of values with the axes (.., pp, ranks of a stage)."""
        within = self.grouping.members[group]
        return np.concatenate([values[..., stage, within] for stage in self.kind.stages], axis=-1)

    def drawn(self, stream: np.random.Generator, conditions: Conditions, group: int, slots: Ints) -> PartDurations:
        """Durations as they come, in seconds; ``slots`` are the microbatches of the parts, -1 for none."""
        profile, parts, members = self.cluster.scenario.noise, len(slots), self.members
        operators = len(self.kind.operators)
        compute = self._computed(stream, profile, conditions, group, slots)
        spread = self._spread(stream, profile, parts)
        hosts = self.of_members(conditions.launching, group)
        normals = stream.standard_normal((2, operators, parts, members))
        waits = profile.host_lag_s * noise.lognormal(normals, _LAG_CV)[:, :, :, None] * hosts
        per_byte = np.stack([self._per_byte(conditions, scope, group, slots) for scope in self.scopes] or [np.ones(0)])
        if operators:
            seconds = self.latency[:, None, None, None] + self.bytes[:, None, None, None] * per_byte[self.scope]
            transfers = seconds * spread[:, :, None]
        else:
            transfers = np.zeros((0, parts, hosts.shape[0], members))
        return PartDurations(compute, waits[0], waits[1], transfers)

    def _computed(
        self, stream: np.random.Generator, profile: NoiseProfile, conditions: Conditions, group: int, slots: Ints
    ) -> Floats:
        shape = (len(self.work), len(slots), self.members)
        kernels = np.full(shape, float(profile.kernels_per_segment))
        amount = self.work[:, None, None] * noise.factors(stream, kernels, profile)
        amount[:, slots >= 0] *= self._lengths(conditions, group, slots[slots >= 0])
        if self._routed.any():
            amount[self._routed] *= noise.expert_factors(
                stream, (int(self._routed.sum()), *shape[1:]), profile.routing_cv
            )
        launching = self.of_members(conditions.launching, group)
        rate = {phase: self.of_members(seconds, group) for phase, seconds in conditions.compute_s.items()}
        by_segment = [rate[s.phase] * launching if s.by_host else rate[s.phase] for s in self.kind.segments]
        worlds = launching.shape[0]
        stacked = np.stack(by_segment) if by_segment else np.zeros((0, worlds, self.members))
        return np.asarray(amount[:, :, None] * stacked[:, None])

    def _lengths(self, conditions: Conditions, group: int, slots: Ints) -> Floats:
        within = self.grouping.members[group]
        return np.tile(conditions.lengths[slots][:, within], len(self.kind.stages))

    def _spread(self, stream: np.random.Generator, profile: NoiseProfile, parts: int) -> Floats:
        """Noise of transfers, alike for the members of an operator's group; (operators, parts, members)."""
        pieces = np.broadcast_to(self._parts[:, None, None], (len(self._parts), parts, self.members))
        drawn = noise.factors(stream, pieces, profile)
        for place, scope in enumerate(self.scopes):
            hit = self.scope == place
            drawn[hit] = self._of_group(drawn[hit], scope, lambda cube, axes: np.take(cube, [0], axis=axes[-1]))
        return drawn

    def _per_byte(self, conditions: Conditions, scope: Scope, group: int, slots: Ints) -> Floats:
        """Seconds of a byte; (parts, worlds, members)."""
        rates = conditions.rates
        state = rates.state[slots]  # -1, no microbatch, is the last slot: what follows them
        if scope is Scope.PIPELINE:
            pairs = rates.of_pair(*self.kind.stages)[..., self.grouping.members[group]]
            return np.concatenate([pairs, pairs], axis=-1)[state]
        return np.asarray(self.of_members(rates.of_group(scope), group)[state])

    def _of_group(self, values: Times, scope: Scope, reduce: Any) -> Times:
        """Values of members reduced over each operator's group of a scope; (.., members), as given."""
        if self.kind.meets or scope is self.kind.scope:
            return np.broadcast_to(reduce(values, (-1,)), values.shape)
        sizes = [size if axis in self._axes else 1 for axis, size in enumerate(self.cluster.scenario.stage_shape)]
        cube = values.reshape(*values.shape[:-1], *sizes)
        axes = tuple(axis - 4 for axis in self.cluster.axes(scope))
        for axis in axes:
            cube = reduce(cube, (axis,))
        return np.broadcast_to(cube, (*values.shape[:-1], *sizes)).reshape(values.shape)

    @cached_property
    def _axes(self) -> tuple[int, ...]:
        return axes_of(self.cluster, self.kind.scope)

    def _last(self, values: Times, scope: Scope) -> Times:
        return self._of_group(values, scope, lambda cube, axes: cube.max(axis=axes, keepdims=True))

    @cached_property
    def _gaps_before(self) -> Ints:
        """Whether a stage has launched one operator of a meeting (axis 0) once it calls another; axis 2: members."""
        called = self.kind.calls[:, :, None] <= self.kind.calls[:, None, :]
        return np.repeat(called, self.grouping.members.shape[1], axis=0).transpose(1, 2, 0).astype(np.int64)

    def _waits(self, durations: PartDurations, operators: Sequence[int]) -> list[tuple[int, Times]]:
        """Each operator of a step with the time that the host takes until it has called it."""
        if len(operators) == 1:
            return [(operators[0], durations.gaps[operators[0]])]
        before = self._gaps_before
        return [(j, sum(durations.gaps[i] * before[i, j] for i in operators)) for j in operators]

    def reach(self, durations: PartDurations) -> Times:
        """How long before the part's end each member must come at the latest; (parts, worlds, members)."""
        left = np.zeros(self._shape(durations), dtype=durations.segments.dtype)
        for step in reversed(self.kind.steps):
            if isinstance(step, Compute):
                left = left + durations.segments[step.segment]
            else:
                after = self._last(left, self.kind.operators[step.operators[0]].scope)
                waits = self._waits(durations, step.operators)
                ends = [wait + durations.lags[i] + durations.transfers[i] for i, wait in waits]
                left = after + np.maximum.reduce(ends)
        return left

    def execute(self, durations: PartDurations, came: Times) -> tuple[PartTimes, Times]:
        """The members' operators, and when they are through; ``came`` (parts, worlds, members)."""
        times = PartTimes(*(np.empty(durations.transfers.shape, dtype=came.dtype) for _ in range(3)))
        now = came
        for step in self.kind.steps:
            if isinstance(step, Compute):
                now = now + durations.segments[step.segment]
                continue
            for i, wait in self._waits(durations, step.operators):
                times.call[i] = now + wait
                times.start[i] = times.call[i] + durations.lags[i]
                times.end[i] = self._last(times.start[i], self.kind.operators[i].scope) + durations.transfers[i]
            now = np.maximum.reduce([times.end[i] for i in step.operators])
        return times, now

    def expand(self, drawn: PartDurations, came: Ints, left: Ints) -> tuple[PartDurations, PartTimes]:
        """Durations in whole nanoseconds that make members who come then leave then, and their execution.

        ``came`` (parts, worlds, members) and ``left`` (parts, worlds) are whole nanoseconds.
        """
        factor = ((left[..., None] - came) / (1e9 * self.reach(drawn))).min(axis=-1)
        durations = drawn.scaled(factor)
        times, through = self.execute(durations, came)
        rounded = left - through[..., 0]  # whole nanoseconds do not add up to the last one
        if isinstance(last := self.kind.steps[-1], Compute):
            durations.segments[last.segment] += rounded[..., None]
        else:
            for i in last.operators:
                durations.transfers[i] += rounded[..., None]
                times.end[i] += rounded[..., None]
        return durations, times

    def _shape(self, durations: PartDurations) -> tuple[int, ...]:
        return tuple(max(durations.segments.shape[-3:], durations.transfers.shape[-3:]))
