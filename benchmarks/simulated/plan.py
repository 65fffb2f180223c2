"""Which runs an accuracy figure is made of: each a pure function of where its seeds start and its ordinal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from producers.simulation.noise import PROFILES
from producers.simulation.scenario import Scenario
from producers.simulation.scenarios import Story, random_scenario

STORIES = (Story.ONE, Story.SEVERAL, Story.ONE, Story.ABSORBED, Story.ONE)
"""What happens in the faulty runs, again and again in this order."""

FROM_THE_BEGINNING = (Story.BEGINNING,)
"""Of runs in which nothing is usual before the fault."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its seed, what happens in it, its profile of noise by name."""

    seed: int
    story: Story
    noise: str

    def scenario(self) -> Scenario:
        """The run's scenario."""
        return random_scenario(self.seed, self.story, noise=PROFILES[self.noise])


def cases(
    faulty: int, healthy: int, noises: Sequence[str], first_seed: int, stories: Sequence[Story] = STORIES
) -> list[Case]:
    """The runs, those of one seed side by side: profiles of noise are compared on the same jobs and faults.

    Faulty runs take the even offsets from the first seed, healthy ones the odd, so that more runs leave the others
    as they are. The seeds come in order: a series that is cut short is a smaller series of the same kind.
    """
    told = [(first_seed + 2 * i, stories[i % len(stories)]) for i in range(faulty)]
    told += [(first_seed + 2 * i + 1, Story.HEALTHY) for i in range(healthy)]
    return [Case(seed, story, noise) for (seed, story), noise in product(sorted(told), noises)]
