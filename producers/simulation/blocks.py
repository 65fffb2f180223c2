"""Executes an iteration part by part, all ranks at once: when the members of each part come and leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.parts import Grouping, Level, Plan
from producers.simulation.schedule import Scope


@dataclass(frozen=True, eq=False)
class Blocks:
    """One iteration: whole nanoseconds since the job's start.

    ``began`` and ``ended`` (pp, worlds, ranks of a stage); ``left`` by family: when each group left each part,
    (parts, worlds, groups), empty where it was not kept.
    """

    began: Ints
    ended: Ints
    left: tuple[Ints, ...]

    @property
    def worlds(self) -> int:
        """Worlds that were executed."""
        return int(self.began.shape[1])

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self.began.nbytes + self.ended.nbytes + sum(times.nbytes for times in self.left)

    def of_world(self, world: int) -> Blocks:
        """One world's."""
        began, ended, *left = (times[:, world : world + 1].copy() for times in (self.began, self.ended, *self.left))
        return Blocks(began, ended, tuple(left))


class Execution:
    """Executes the parts of a plan."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.groupings = tuple(Grouping.of(cluster, family.scope) for family in plan.families)
        self._axes = [
            () if family.scope is None else tuple(axis - 4 for axis in cluster.axes(family.scope))
            for family in plan.families
        ]

    def run(self, totals: Sequence[Ints], began: Ints, *, keep: bool) -> Blocks:
        """Execute an iteration; ``totals`` of each family as of ``FamilyTotals.of``, ``began`` as of ``Blocks``."""
        now = began.reshape(*began.shape[:2], *self.cluster.scenario.stage_shape).copy()
        left = [np.empty_like(t) if keep else t for t in totals]
        for level in self.plan.levels:
            taken = totals[level.family][level.first : level.last]
            leaving = self._coming(now, level) + taken
            self._leave(now, level, leaving)
            if keep:
                left[level.family][level.first : level.last] = leaving
        kept = tuple(t.reshape(*t.shape[:2], -1) for t in left) if keep else ()
        return Blocks(began, now.reshape(began.shape), kept)

    def _coming(self, now: Ints, level: Level) -> Ints:
        """When the last member of each group has come; (parts, worlds, *groups)."""
        scope, axes = self.plan.families[level.family].scope, self._axes[level.family]
        if scope is Scope.PIPELINE:
            return np.maximum(now[level.stages], now[level.stages + 1])
        if scope is Scope.EMBEDDING:
            return np.maximum(now[:1], now[-1:])
        if scope is Scope.MODEL:
            return np.asarray(now.max(axis=(0, *axes), keepdims=True))
        came = now[level.stages]
        return np.asarray(came.max(axis=axes, keepdims=True)) if axes else came

    def _leave(self, now: Ints, level: Level, leaving: Ints) -> None:
        scope = self.plan.families[level.family].scope
        if scope is Scope.PIPELINE:
            now[level.stages] = leaving
            now[level.stages + 1] = leaving
        elif scope is Scope.EMBEDDING:
            now[:1], now[-1:] = leaving, leaving
        elif scope is Scope.MODEL:
            now[:] = leaving
        else:
            now[level.stages] = leaving

    def came(self, blocks: Blocks, stage: int, at: Ints, within: Ints) -> Ints:
        """When ranks of a stage left what precedes some parts in its course; (parts, worlds, ranks).

        ``at`` are the parts' places in the course, ``within`` ranks within the stage.
        """
        times = np.empty((len(at), blocks.worlds, len(within)), dtype=np.int64)
        times[at == 0] = blocks.began[stage][:, within]
        family, row = self._course[stage][at - 1].T
        for f in np.unique(family[at > 0]):
            hit = (family == f) & (at > 0)
            times[hit] = blocks.left[f][row[hit], :, self.groupings[f].of_rank[within][:, None]].transpose(1, 2, 0)
        return times

    @cached_property
    def _course(self) -> tuple[Ints, ...]:
        return tuple(np.array(course, dtype=np.int64) for course in self.plan.course)
