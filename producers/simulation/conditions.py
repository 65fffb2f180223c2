"""What one iteration of a lazily expanded job happens under: how fast ranks compute and launch, and the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from producers.simulation import noise
from producers.simulation.cluster import Cluster
from producers.simulation.durations import Slowness, compute_s, unit_s
from producers.simulation.network import Network, Rates, World
from producers.simulation.noise import Draws, Floats
from producers.simulation.schedule import BACKWARD, FORWARD, OTHER, Program

PHASES = (FORWARD, BACKWARD, OTHER)
"""Phases in which ranks compute."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """One iteration, or what is typical.

    ``compute_s`` of each phase and ``launching`` have the shape (worlds, pp, ranks of a stage): seconds a unit of
    work, and how much longer than usual the host takes. ``lengths`` (microbatches, ranks of a stage) are relative.
    """

    iteration: int
    rates: Rates
    compute_s: Mapping[str, Floats]
    launching: Floats
    lengths: Floats


class Climate:
    """The conditions of every iteration of a job."""

    def __init__(self, cluster: Cluster, programs: list[Program]) -> None:
        scenario = cluster.scenario
        self.cluster = cluster
        self.draws = Draws(scenario.seed, scenario.age_days)
        self.network = Network(cluster, self.draws)
        self.unit_s = unit_s(scenario, programs)
        self._compute_s = compute_s(cluster, self.draws, self.unit_s)

    def of(self, iteration: int, worlds: Sequence[World]) -> Conditions:
        """The conditions of an iteration under each world's faults."""
        cluster, scenario = self.cluster, self.cluster.scenario
        shape = (len(worlds), *cluster.grid.shape)
        slow = [[Slowness.of(cluster, s, iteration, world) for s in range(scenario.pp)] for world in worlds]
        healthy = np.broadcast_to(self._compute_s[iteration], shape)
        lengths = noise.microbatch_factors(self.draws, iteration, scenario.microbatches, scenario.dp, scenario.noise)
        return Conditions(
            iteration,
            self.network.rates(iteration, worlds),
            {
                phase: healthy * np.array([[s.computing(phase) for s in stages] for stages in slow])
                if any(s.faults for stages in slow for s in stages)
                else healthy
                for phase in PHASES
            },
            np.array([[s.launching for s in stages] for stages in slow]),
            np.repeat(lengths, cluster.stage_ranks // scenario.dp, axis=1),
        )

    def typical(self) -> Conditions:
        """Conditions without noise and faults."""
        cluster, scenario = self.cluster, self.cluster.scenario
        unit = np.full((1, *cluster.grid.shape), self.unit_s)
        return Conditions(
            0,
            self.network.quiet(),
            dict.fromkeys(PHASES, unit),
            np.ones((1, *cluster.grid.shape)),
            np.ones((scenario.microbatches, cluster.stage_ranks)),
        )
