"""What computing takes on a healthy cluster; strengths of the noise as in the simulation of operators."""

from __future__ import annotations

from collections import Counter

import numpy as np

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.noise import Floats, NoiseProfile, factors, lognormal


class ComputeTimes:
    """Durations of segments, of each rank's GPU by itself."""

    def __init__(self, scenario: NicScenario) -> None:
        noise, seed = scenario.noise, scenario.seed
        shape = (scenario.iterations, scenario.world)
        speeds = lognormal(stream(seed, Purpose.SPEED).standard_normal(scenario.world), noise.gpu_speed_sigma)
        shocks = stream(seed, Purpose.SERIES).standard_normal(shape)
        series = np.empty(shape)
        series[0] = shocks[0]
        for i in range(1, scenario.iterations):
            series[i] = noise.rank_rho * series[i - 1] + np.sqrt(1 - noise.rank_rho**2) * shocks[i]
        common = lognormal(stream(seed, Purpose.COMMON).standard_normal(scenario.iterations), noise.common_sigma)
        self._factors = speeds * np.exp(noise.rank_sigma * series) * common[:, None]
        self._kernels = NoiseProfile(operator_cv=noise.kernel_cv, outlier_share=noise.outlier_share)
        self._scenario = scenario
        self._segments: Counter[int] = Counter()
        self._chance = [stream(seed, Purpose.SEGMENTS, host) for host in range(scenario.hosts)]
        self._drawn: dict[tuple[int, int], float] = {}

    def sequences(self, iteration: int) -> Floats:
        """How much longer each microbatch takes than on average, by its sequences; shape (microbatches, replicas)."""
        s = self._scenario
        normals = stream(s.seed, Purpose.SEQUENCES, 0, iteration).standard_normal((s.microbatches, s.dp))
        return lognormal(normals, s.noise.sequence_cv * np.sqrt(s.microbatches))

    def segment(self, rank: int, iteration: int, seconds: float, parts: int = 1) -> float:
        """What a rank's next segment takes, which usually takes so long; of a host's ranks kernels are slow alike.

        ``parts`` are what tensor parallelism divides it into, each of as many kernels as in other simulations.
        """
        host = self._scenario.host_of(rank)
        ordinal = self._segments[rank]
        self._segments[rank] += 1
        if (host, ordinal) not in self._drawn:
            kernels = np.array([float(parts * self._kernels.kernels_per_segment)])
            self._drawn[host, ordinal] = float(factors(self._chance[host], kernels, self._kernels)[0])
        return float(seconds * self._factors[iteration, rank] * self._drawn[host, ordinal])
