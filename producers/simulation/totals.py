"""How long parts take once the last of their members has come, drawn for all groups at once.

A part computes as long as its slowest member: each of its operators waits for the member whose own durations happen
to be longest there, so a part whose members are alike takes longer than any of them alone, and one with a straggler
as long as the straggler. How much longer, and how much parts vary, is measured on executions of each kind of part
under typical conditions (``inside``); a log-sum-exp leads over to stragglers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.conditions import PHASES, Climate, Conditions
from producers.simulation.inside import Inside
from producers.simulation.noise import Floats, Purpose, lognormal
from producers.simulation.parts import Family, Kind, Plan, axes_of
from producers.simulation.schedule import Scope

_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Typical:
    """What executions of a kind come to, relative to durations without noise.

    ``compute`` and ``transfer`` are how much longer a member computes, and its operators transfer; ``waiting`` how
    much longer the part computes than a member; ``cv`` how much parts vary.
    """

    compute: float
    transfer: float
    waiting: float
    cv: float

    @classmethod
    def of(cls, inside: Inside, climate: Climate, number: int) -> Typical:
        """Measured on the first group of a kind."""
        conditions = climate.typical()
        slots = np.full(_SAMPLES, inside.kind.microbatch[0])
        drawn = inside.drawn(climate.draws.stream(Purpose.CALIBRATION, number), conditions, 0, slots)
        longest = inside.longest
        own = drawn.segments.sum(axis=0) + drawn.gaps.sum(axis=0) + drawn.lags[longest].sum(axis=0)
        transfer = drawn.transfers[longest].sum(axis=0).mean(axis=-1)
        total = inside.steps.reach(drawn).max(axis=-1)
        computing, transferring = _without_noise(inside, conditions)
        waiting = (total - transfer).mean() / own.mean() - 1 if own.mean() > 0 else 0.0
        return cls(
            compute=float(own.mean() / computing) if computing > 0 else 1.0,
            transfer=float(transfer.mean() / transferring) if transferring > 0 else 1.0,
            waiting=max(float(waiting), 0.0),
            cv=float(total.std() / total.mean()),
        )


def _without_noise(inside: Inside, conditions: Conditions) -> tuple[float, float]:
    """Seconds that a member computes and launches, and that operators transfer."""
    unit = float(next(iter(conditions.compute_s.values())).flat[0])
    lag = inside.cluster.scenario.noise.host_lag_s
    computing = float(inside.work.sum()) * unit + lag * _launches(inside)
    within = inside.grouping.members[0]
    transferring = 0.0
    for place, scope in enumerate(inside.scopes):
        hit = inside.longest[inside.scope[inside.longest] == place]
        per_byte = _per_byte(conditions, inside.kind, scope)[0, 0][within]
        transferring += float((inside.latency[hit].sum() + inside.bytes[hit].sum() * per_byte).mean())
    return computing, transferring


def _per_byte(conditions: Conditions, kind: Kind, scope: Scope) -> Floats:
    """Seconds of a byte for the ranks of a kind's first stage; (states, worlds, ranks of a stage)."""
    if scope is Scope.PIPELINE:
        return conditions.rates.of_pair(*kind.stages)
    return conditions.rates.of_group(scope)[:, :, kind.stages[0]]


class FamilyTotals:
    """How long the parts of one family take."""

    def __init__(
        self, cluster: Cluster, climate: Climate, family: Family, insides: Sequence[Inside], number: int
    ) -> None:
        self.cluster = cluster
        self.family = family
        self._number = number
        self._draws = climate.draws
        measured: dict[tuple[object, ...], Typical] = {}
        typical = []
        for inside in insides:
            key = (inside.kind.steps, inside.kind.segments, inside.kind.operators, len(inside.kind.stages))
            if key not in measured:
                measured[key] = Typical.of(inside, climate, number * 1000 + len(measured))
            typical.append(measured[key])
        self._typical = {
            name: np.array([getattr(t, name) for t in typical]) for name in ("compute", "transfer", "waiting", "cv")
        }
        self._insides = tuple(insides)
        self._work = np.array([[_work(inside.kind, phase) for phase in PHASES] for inside in insides])
        self._host_work = np.array([sum(s.work for s in i.kind.segments if s.by_host) for i in insides])
        self._launches = np.array([_launches(inside) for inside in insides])
        axes = axes_of(cluster, family.scope)
        self._axes = tuple(axis - 4 for axis in axes)
        self.shape = tuple(1 if a in axes else n for a, n in enumerate(cluster.scenario.stage_shape))

    def of(self, conditions: Conditions) -> Ints:
        """Nanoseconds of every part; shape (parts, worlds, *shape): a part's groups, those of the family's scope."""
        family = self.family
        compute = self._computed(conditions)[family.kind]
        transfer = self._transferred(conditions)
        state = conditions.rates.state[family.microbatch]
        passes = family.microbatch >= 0
        if self.cluster.scenario.noise.sequence_cv > 0 and passes.any():
            cube = conditions.lengths.reshape(-1, 1, *self.cluster.scenario.stage_shape)
            compute[passes] *= self._highest(cube)[family.microbatch[passes]]
        stream = self._draws.at(Purpose.BLOCKS, self._number, conditions.iteration)
        normals = stream.standard_normal((len(family.kind), *self.shape))
        cv = self._typical["cv"][family.kind].reshape(-1, 1, 1, 1, 1)
        compute += transfer[state, family.kind]
        compute *= lognormal(normals, cv)[:, None] * 1e9
        return np.rint(compute, out=compute).astype(np.int64)

    def _computed(self, conditions: Conditions) -> Floats:
        """Seconds that parts of each kind compute; (kinds, worlds, *shape)."""
        members = self._member_s(conditions)
        highest = self._highest(members)
        waiting = self._typical["waiting"].reshape(-1, 1, 1, 1, 1, 1)
        count = int(np.prod([members.shape[axis] for axis in self._axes])) * self._stages
        if count == 1:
            return highest
        # With equal members the sum below is their number, and the part takes ``waiting`` longer than a member.
        steepness = np.log(count) / np.maximum(waiting, 1e-6)
        relative = np.divide(members, highest, out=np.ones_like(members), where=highest > 0)
        crowd = np.exp(steepness * (relative - 1)).sum(axis=self._axes, keepdims=True)
        if self._stages > 1:
            crowd *= self._stages  # of the others, which are about as fast as the first
        return np.asarray(highest * (1 + np.log(np.minimum(crowd, count)) / steepness))

    @property
    def _stages(self) -> int:
        return max(len(inside.kind.stages) for inside in self._insides)

    def _member_s(self, conditions: Conditions) -> Floats:
        """Seconds that each member computes and launches by itself; (kinds, worlds, replicas, data, context, tensor).

        Of stages that meet, those of the slowest.
        """
        lag = self.cluster.scenario.noise.host_lag_s
        rows = []
        for k, inside in enumerate(self._insides):
            stages = list(inside.kind.stages)
            launching = conditions.launching[:, stages].max(axis=1)
            seconds = launching * (self._launches[k] * lag)
            for p, phase in enumerate(PHASES):
                if self._work[k, p]:
                    seconds = seconds + self._work[k, p] * conditions.compute_s[phase][:, stages[0]]
            if self._host_work[k]:
                seconds = seconds + self._host_work[k] * conditions.compute_s[PHASES[-1]][:, stages[0]] * launching
            rows.append(seconds * self._typical["compute"][k])
        members = np.stack(rows)
        return members.reshape(*members.shape[:2], *self.cluster.scenario.stage_shape)

    def _transferred(self, conditions: Conditions) -> Floats:
        """Seconds that parts of each kind transfer; (states, kinds, worlds, *shape)."""
        port = conditions.rates.port
        result = np.zeros((port.shape[0], len(self._insides), port.shape[1], self.cluster.stage_ranks))
        for k, inside in enumerate(self._insides):
            for place, scope in enumerate(inside.scopes):
                hit = inside.longest[inside.scope[inside.longest] == place]
                per_byte = _per_byte(conditions, inside.kind, scope)
                result[:, k] += inside.latency[hit].sum() + inside.bytes[hit].sum() * per_byte
        result *= self._typical["transfer"][:, None, None]
        return self._highest(result.reshape(*result.shape[:-1], *self.cluster.scenario.stage_shape))

    def _highest(self, cube: Floats) -> Floats:
        return cube.max(axis=self._axes, keepdims=True) if self._axes else cube


def _work(kind: Kind, phase: str) -> float:
    return sum(s.work for s in kind.segments if s.phase == phase and not s.by_host)


def _launches(inside: Inside) -> float:
    """How often the host's lag passes, one after the other."""
    return float(len(inside.kind.operators) + len(inside.longest))


def family_totals(
    cluster: Cluster, climate: Climate, plan: Plan, insides: Sequence[Sequence[Inside]]
) -> list[FamilyTotals]:
    """The totals of every family of a plan."""
    return [
        FamilyTotals(cluster, climate, family, of_family, number)
        for number, (family, of_family) in enumerate(zip(plan.families, insides, strict=True))
    ]
