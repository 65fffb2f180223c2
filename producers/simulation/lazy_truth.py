"""The truth of a lazily expanded run: what happened beside the same seed without the faults."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from producers.simulation.lazy import LazyRun
from producers.simulation.noise import Floats
from producers.simulation.truth import (
    ABSORBED,
    ACTUAL,
    HEALTHY,
    OPERATOR_SHARE,
    FaultTruth,
    Truth,
    fault_truths,
)


class LazyTruth:
    """For scoring alone: nothing that looks for faults may see it."""

    def __init__(self, run: LazyRun) -> None:
        self.run = run

    @cached_property
    def lengths(self) -> Floats:
        """Seconds of every iteration in every world, mean over the ranks; (iterations, worlds)."""
        began = [self.run.began_ns(i).mean(axis=(0, 2)) for i in range(self.run.scenario.iterations + 1)]
        return np.diff(np.array(began), axis=0) / 1e9

    def faults(self) -> tuple[FaultTruth, ...]:
        """Each fault with what it did alone."""
        return fault_truths(self.run.fabric, self.run.slow, self.lengths)

    def whole(self) -> Truth:
        """All but the operators, which are marked rank by rank (``abnormal``)."""
        healthy = HEALTHY if self.run.slow else ACTUAL
        return Truth(
            scenario=self.run.scenario,
            faults=self.faults(),
            durations_ns=tuple(int(x * 1e9) for x in self.lengths[:, ACTUAL]),
            healthy_ns=tuple(int(x * 1e9) for x in self.lengths[:, healthy]),
            abnormal=np.zeros(0, dtype=np.bool_),
        )

    def abnormal(self, rank: int, iteration: int) -> npt.NDArray[np.bool_]:
        """Which operators of a rank took longer because of the faults, lost lines included; (operators,)."""
        if not self.run.slow:
            return np.zeros(len(self.run.operators(rank, iteration)), dtype=np.bool_)
        actual, healthy = self.lengths[iteration, [ACTUAL, HEALTHY]]
        times = [self.run.operators(rank, iteration, world=world) for world in (ACTUAL, HEALTHY)]
        took = [t[:, 2] - t[:, 0] for t in times]
        longer = took[0] - took[1] >= OPERATOR_SHARE * (actual - healthy) * 1e9
        return np.asarray(longer & (actual >= ABSORBED * healthy))
