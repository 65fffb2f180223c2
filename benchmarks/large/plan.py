"""Which runs of thousands of ranks a figure is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.simulated.plan import Case
from producers.simulation.faults import Kind, Pattern
from producers.simulation.large_scenarios import DIMENSIONS, Trouble, large_scenario
from producers.simulation.noise import PROFILES_LARGE
from producers.simulation.scenario import Scenario
from producers.simulation.scenarios import Story

HEALTHY_DIMENSIONS = (3, 4, 3, 6)
"""Half of the healthy jobs are mixtures of experts: those that are parallel in more than three ways."""


@dataclass(frozen=True, slots=True)
class LargeCase(Case):
    """One run: besides its seed, story and noise its size, how many ways it is parallel, and what fault it has.

    ``kind`` and ``pattern`` are the fault's by name; empty: the run is healthy. ``all_logs``: a method that needs the
    logs of all ranks is compared, too.
    """

    ranks: int
    iterations: int
    dimensions: int
    kind: str = ""
    pattern: str = ""
    all_logs: bool = False

    def scenario(self) -> Scenario:
        """The run's scenario; raises ``SettingsError`` where ranks or iterations allow none."""
        troubles = (Trouble(Kind(self.kind), Pattern(self.pattern)),) if self.kind else ()
        return large_scenario(
            self.seed,
            troubles,
            ranks=self.ranks,
            iterations=self.iterations,
            dimensions=self.dimensions,
            noise=PROFILES_LARGE[self.noise],
        )


def cases(
    faulty: int, healthy: int, noises: Sequence[str], first_seed: int, *, ranks: int, iterations: int, all_logs: int = 0
) -> list[LargeCase]:
    """The runs, those of one seed side by side; seeds as those of smaller jobs.

    Every 21 faulty runs have each kind of fault in each pattern once, every 63 also in each layout. The first
    ``all_logs`` of them, for each profile, are compared over all logs as well.
    """
    told = []
    for noise, i in product(noises, range(faulty)):
        kind, pattern, dimensions = _stratum(i)
        size = (ranks, iterations, dimensions)
        told.append(
            LargeCase(first_seed + 2 * i, Story.ONE, noise, *size, kind.value, pattern.value, all_logs=i < all_logs)
        )
    for noise, i in product(noises, range(healthy)):
        dimensions = HEALTHY_DIMENSIONS[i % len(HEALTHY_DIMENSIONS)]
        told.append(LargeCase(first_seed + 2 * i + 1, Story.HEALTHY, noise, ranks, iterations, dimensions))
    return sorted(told, key=lambda case: case.seed)


def _stratum(i: int) -> tuple[Kind, Pattern, int]:
    """What the i-th faulty run is about. Seven kinds and three patterns share no divisor: all pairs come up."""
    kinds, patterns = tuple(Kind), tuple(Pattern)
    turn = i // len(kinds) + i // (len(kinds) * len(patterns))
    return kinds[i % len(kinds)], patterns[i % len(patterns)], DIMENSIONS[turn % len(DIMENSIONS)]
