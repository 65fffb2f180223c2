"""What happens inside a part, given when its members come and when they leave together.

The members' own durations are drawn as if nothing were known, and executed: a collective ends for its members when
the last has entered and the transfer is done. Such an execution is linear in all of its durations, so scaling them by
one factor makes it end exactly when the part does. The factor is near 1: how long parts take in all is drawn from what
such executions come to (``totals``).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from producers.simulation import noise
from producers.simulation.cluster import Cluster, Ints
from producers.simulation.conditions import Conditions
from producers.simulation.durations import latency_s, volume
from producers.simulation.noise import Floats, NoiseProfile
from producers.simulation.parts import Grouping, Kind
from producers.simulation.schedule import Compute, Scope
from producers.simulation.steps import PartDurations, PartTimes, Steps

_LAG_CV = 0.5
"""Of the time that the host takes to launch."""


class Inside:
    """Parts of one kind, for any group."""

    def __init__(self, cluster: Cluster, kind: Kind) -> None:
        self.kind = kind
        self.cluster = cluster
        self.grouping = Grouping.of(cluster, kind.scope)
        self.steps = Steps(cluster, kind, self.grouping)
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
        if not shape[0]:
            return np.zeros((0, len(slots), conditions.launching.shape[0], self.members))
        kernels = np.asarray(float(profile.kernels_per_segment))
        amount = self.work[:, None, None] * noise.factors(stream, kernels, profile, shape)
        amount[:, slots >= 0] *= self._lengths(conditions, group, slots[slots >= 0])
        if self._routed.any():
            amount[self._routed] *= noise.expert_factors(
                stream, (int(self._routed.sum()), *shape[1:]), profile.routing_cv
            )
        launching = self.of_members(conditions.launching, group)
        rate = {phase: self.of_members(seconds, group) for phase, seconds in conditions.compute_s.items()}
        by_segment = [rate[s.phase] * launching if s.by_host else rate[s.phase] for s in self.kind.segments]
        return np.asarray(amount[:, :, None] * np.stack(by_segment)[:, None])

    def _lengths(self, conditions: Conditions, group: int, slots: Ints) -> Floats:
        within = self.grouping.members[group]
        return np.tile(conditions.lengths[slots][:, within], len(self.kind.stages))

    def _spread(self, stream: np.random.Generator, profile: NoiseProfile, parts: int) -> Floats:
        """Noise of transfers, alike for the members of an operator's group; (operators, parts, members)."""
        spread = np.empty((len(self._parts), parts, self.members))
        for place, scope in enumerate(self.scopes):
            hit = self.scope == place
            group = self._group_of_member[scope]
            shape = (int(hit.sum()), parts, int(group.max()) + 1)
            spread[hit] = noise.factors(stream, self._parts[hit, None, None], profile, shape)[..., group]
        return spread

    @cached_property
    def _group_of_member(self) -> dict[Scope, Ints]:
        """Of each scope of operators: which of the groups within this one each member is in; (members,)."""
        if self.kind.meets:
            return {scope: np.zeros(self.members, dtype=np.int64) for scope in self.scopes}
        within = self.grouping.members[0]
        return {
            scope: np.unique(Grouping.of(self.cluster, scope).of_rank[within], return_inverse=True)[1]
            for scope in self.scopes
        }

    def _per_byte(self, conditions: Conditions, scope: Scope, group: int, slots: Ints) -> Floats:
        """Seconds of a byte; (parts, worlds, members)."""
        rates = conditions.rates
        state = rates.state[slots]  # -1, no microbatch, is the last slot: what follows them
        if scope is Scope.PIPELINE:
            pairs = rates.of_pair(*self.kind.stages)[..., self.grouping.members[group]]
            return np.concatenate([pairs, pairs], axis=-1)[state]
        return np.asarray(self.of_members(rates.of_group(scope), group)[state])

    def expand(self, drawn: PartDurations, came: Ints, left: Ints) -> tuple[PartDurations, PartTimes]:
        """Durations in whole nanoseconds that make members who come then leave then, and their execution.

        ``came`` (parts, worlds, members) and ``left`` (parts, worlds) are whole nanoseconds.
        """
        factor = ((left[..., None] - came) / (1e9 * self.steps.reach(drawn))).min(axis=-1)
        durations = drawn.scaled(factor)
        times, through = self.steps.execute(durations, came)
        rounded = left - through[..., 0]  # whole nanoseconds do not add up to the last one
        if isinstance(last := self.kind.steps[-1], Compute):
            durations.segments[last.segment] += rounded[..., None]
        else:
            for i in last.operators:
                durations.transfers[i] += rounded[..., None]
                times.end[i] += rounded[..., None]
        return durations, times
