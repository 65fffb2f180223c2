"""Jobs of 32 to 128 ranks, of which all logs are judged; each run has another slow device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.detectors.comparison import Compared, compared, layout_of
from offbeat import training
from offbeat.training import Labelled
from producers.simulation.noise import DEFAULT, NoiseProfile
from producers.simulation.scenario import Scenario
from producers.simulation.scenarios import Story, random_scenario

ITERATIONS = 40
SEEDS_A_JOB = 1000

JUDGED = 2000
"""Operators of an iteration that are judged, at random: nearest neighbours take a millisecond each."""


@dataclass(frozen=True, slots=True)
class SmallJob:
    """A job, the runs of it to learn from, and half as many to judge."""

    scenario: Scenario
    learned: tuple[Scenario, ...]
    judged: tuple[Scenario, ...]


def job_of(seeds: int, job: int, noise: NoiseProfile) -> Scenario:
    """A job without faults."""
    return random_scenario(seeds + SEEDS_A_JOB * job, Story.HEALTHY, noise=noise, iterations=ITERATIONS)


def small_job(seeds: int, job: int, learn: int, noise: NoiseProfile = DEFAULT) -> SmallJob:
    """The runs of the n-th job from some seed on."""
    scenario = job_of(seeds, job, noise)
    runs = tuple(training.job_scenarios(scenario, learn + max(learn // 2, 1), seeds + SEEDS_A_JOB * job + 1))
    return SmallJob(scenario, runs[:learn], runs[learn:])


def compared_on(job: SmallJob) -> Compared:
    """How each detector does on a job."""
    learned = list(training.simulated(job.learned))
    judged = [
        [_few(part, scenario.seed) for part in run]
        for scenario, run in zip(job.judged, training.simulated(job.judged), strict=True)
    ]
    return compared(layout_of(job.scenario), learned, judged)


def _few(part: Labelled, seed: int) -> Labelled:
    draws = np.random.default_rng([seed, part.iteration])
    those = np.sort(draws.permutation(len(part.samples))[:JUDGED])
    return Labelled(part.iteration, part.samples.take(those), part.abnormal[those])
