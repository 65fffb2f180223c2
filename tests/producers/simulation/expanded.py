"""All durations of a lazily expanded job, for the engine that executes them event by event."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from producers.simulation import engine
from producers.simulation.cluster import Cluster
from producers.simulation.durations import StageDurations
from producers.simulation.lazy import LazyRun
from producers.simulation.network import World
from producers.simulation.schedule import Program


class ExpandedDurations:
    """Every part of every group, written into the stages' programs; whole nanoseconds."""

    def __init__(self, run: LazyRun) -> None:
        self._run = run

    @property
    def cluster(self) -> Cluster:
        return self._run.cluster

    @property
    def programs(self) -> list[Program]:
        return self._run.programs

    def iteration(self, iteration: int, worlds: Sequence[World]) -> list[StageDurations]:
        run = self._run
        numbers = tuple(run.worlds.index(world) for world in worlds)
        stages = [self._unknown(program, len(worlds)) for program in run.programs]
        for f, insides in enumerate(run.insides):
            for k, inside in enumerate(insides):
                for group, within in enumerate(inside.grouping.members):
                    durations, _ = run.expand(iteration, f, k, group, numbers)
                    for at, stage in enumerate(inside.kind.stages):
                        of_stage = slice(at * len(within), (at + 1) * len(within))
                        segments, operators = inside.kind.segment_at.T, inside.kind.operator_at[at].T
                        if len(inside.kind.stages) == 1:
                            stages[stage].segments[segments[..., None], :, within] = np.moveaxis(
                                durations.segments, 2, 3
                            )
                        for name in ("gaps", "lags", "transfers"):
                            values = np.moveaxis(getattr(durations, name)[..., of_stage], 2, 3)
                            getattr(stages[stage], name)[operators[..., None], :, within] = values
        return stages

    def _unknown(self, program: Program, worlds: int) -> StageDurations:
        ranks = self.cluster.stage_ranks
        segments = np.full((len(program.segments), worlds, ranks), -1)
        return StageDurations(segments, *(np.full((len(program.operators), worlds, ranks), -1) for _ in range(3)))


def executed(run: LazyRun, iteration: int) -> engine.IterationTimes:
    """An iteration, event by event; whole nanoseconds since the job's start."""
    began = run.began_ns(iteration)
    return engine.run(ExpandedDurations(run), run.worlds, [iteration], now=began)[0]
