"""Random scenarios for accuracy runs: each a pure function of its seed.

Faults are placed uniformly over devices, time, ranks and parts of an iteration, their sizes are log-uniform in
what they do to the iteration. Half of the jobs are mixtures of experts; a third of the logs lack iteration,
phase and microbatch, a third lack end times.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.fabric import Fabric
from producers.simulation.faults import Fault, Kind, Part, Pattern
from producers.simulation.noise import DEFAULT, Draws, NoiseProfile, Purpose, log_uniform
from producers.simulation.scenario import Omissions, Scenario
from producers.simulation.schedule import longest_chain, programs, work_of_passes
from schemas.errors import SettingsError

WORLDS = (32, 64, 128)
SLOWDOWNS = (1.1, 2.0)
ABSORBED_SLOWDOWN = 1.004
MOST_FAULTS = 3

FIRST_FAULTY = 12
"""Jobs run well this long: warm-up is over and there is something to compare with."""

FEWEST_SPIKES, MOST_SPIKES = 3, 8
"""Iterations in which a device is slow that is slow now and then."""

FEWEST_ITERATIONS = FIRST_FAULTY + MOST_SPIKES
"""There is room for every fault in so many."""

KINDS = (Kind.GPU_SLOW, Kind.NIC_SLOW)
PATTERNS = (Pattern.PERSISTENT, Pattern.SPIKES)

GPU_FLOP_PER_S = 180e12
MOST_LAYER_PASSES = 32
"""Layers a stage times microbatches: bounds the length of a log."""


class Story(StrEnum):
    """What happens in a run."""

    HEALTHY = "healthy"
    ONE = "one"
    """One device is slow."""
    SEVERAL = "several"
    """Two or three devices are slow, at times together."""
    ABSORBED = "absorbed"
    """One device is slow, and bubbles hide it."""
    BEGINNING = "beginning"
    """One device is slow from the first iteration to the last."""


def random_scenario(
    seed: int,
    story: Story,
    *,
    noise: NoiseProfile = DEFAULT,
    iterations: int = 60,
    ranks: int | None = None,
    experts: bool | None = None,
) -> Scenario:
    """The scenario of a seed; ``ranks`` and ``experts`` are drawn where they are not given.

    Raises ``SettingsError`` where ``iterations`` leave no room for a fault.
    """
    draws = Draws(seed).stream(Purpose.SCENARIO)
    scenario = _job(seed, draws, noise, iterations, ranks, experts)
    if story is Story.HEALTHY:
        return scenario
    if iterations < FEWEST_ITERATIONS:
        raise SettingsError(f"{iterations} iterations leave no room for a fault; give {FEWEST_ITERATIONS} or more")
    count = int(draws.integers(2, MOST_FAULTS + 1)) if story is Story.SEVERAL else 1
    slowdown = (ABSORBED_SLOWDOWN, ABSORBED_SLOWDOWN) if story is Story.ABSORBED else SLOWDOWNS
    faults: list[Fault] = []
    while len(faults) < count:
        fault = _fault(scenario, draws, slowdown, hidden=story is Story.ABSORBED)
        if all(fault.rank != other.rank for other in faults):
            faults.append(fault)
    if story is Story.BEGINNING:
        faults = [replace(fault, iterations=tuple(range(iterations))) for fault in faults]
    return replace(scenario, faults=tuple(faults))


def _job(
    seed: int,
    draws: np.random.Generator,
    noise: NoiseProfile,
    iterations: int,
    ranks: int | None,
    experts: bool | None,
) -> Scenario:
    world = int(draws.choice(WORLDS)) if ranks is None else ranks
    layouts = [(tp, pp, world // tp // pp) for tp in (2, 4, 8) for pp in (2, 4, 8) if world // tp // pp > 1]
    tp, pp, dp = layouts[int(draws.integers(len(layouts)))]
    microbatches = int(np.clip(pp * draws.choice((1, 2)), 4, 16))
    layers_of_stage = int(draws.integers(2, max(MOST_LAYER_PASSES // microbatches, 2), endpoint=True))
    mixture = bool(draws.random() < 0.5) if experts is None else experts
    omitted = draws.random(2) < 1 / 3
    scenario = Scenario(
        seed=seed,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=dp if mixture else 1,
        microbatches=microbatches,
        layers=min(layers_of_stage, 4) * pp + int(draws.integers(pp)),
        hidden=int(draws.choice((4096, 5120, 6144, 8192))),
        sequence_length=int(draws.choice((2048, 4096, 8192))),
        iterations=iterations,
        noise=noise,
        omissions=Omissions(labels=bool(omitted[0]), ends=bool(omitted[1])),
    )
    return replace(scenario, compute_ms=compute_ms(scenario) * float(draws.uniform(0.8, 1.25)))


def compute_ms(scenario: Scenario) -> float:
    """What the compute of an iteration takes on GPUs of today."""
    tokens = scenario.sequence_length * scenario.micro_batch_size / scenario.cp
    layer = tokens * (24 * scenario.hidden**2 + 4 * scenario.sequence_length * scenario.hidden) / scenario.tp
    stages = programs(replace(scenario, microbatches=1))  # microbatches are all alike
    return 1e3 * longest_chain(stages, scenario.microbatches) * layer / GPU_FLOP_PER_S


def _fault(scenario: Scenario, draws: np.random.Generator, slowdowns: tuple[float, float], *, hidden: bool) -> Fault:
    kind = KINDS[int(draws.integers(len(KINDS)))]
    pattern = PATTERNS[int(draws.integers(len(PATTERNS)))]
    part = list(Part)[int(draws.integers(len(Part)))] if kind is Kind.GPU_SLOW else Part.ALL
    return Fault(
        kind=kind,
        rank=int(draws.choice(_ranks_with(scenario, kind, hidden=hidden))),
        iterations=_iterations(draws, scenario.iterations, pattern),
        slowdown=float(log_uniform(np.asarray(draws.random()), slowdowns)),
        part=part,
    )


def _ranks_with(scenario: Scenario, kind: Kind, *, hidden: bool) -> Ints:
    """Ranks with a device of the kind in use; of GPUs that bubbles shall hide, those of the lighter stages."""
    cluster = Cluster(scenario)
    if kind is Kind.NIC_SLOW:
        return Fabric(cluster).carries("nic")
    return hidden_ranks(scenario) if hidden else cluster.grid.ravel()


def hidden_ranks(scenario: Scenario) -> Ints:
    """Ranks of the lighter stages, whose slowness bubbles hide; of all, where no stage is lighter."""
    work = work_of_passes(programs(scenario))
    lighter = [stage for stage, w in enumerate(work) if w < max(work)]
    return Cluster(scenario).grid[lighter or slice(None)].ravel()


def _iterations(draws: np.random.Generator, iterations: int, pattern: Pattern) -> tuple[int, ...]:
    """When a fault acts: from some iteration on, in half of the runs to the end; or now and then."""
    if pattern is Pattern.SPIKES:
        count = int(draws.integers(FEWEST_SPIKES, MOST_SPIKES, endpoint=True))
        return tuple(sorted(int(i) for i in draws.choice(np.arange(FIRST_FAULTY, iterations), count, replace=False)))
    first = int(draws.integers(FIRST_FAULTY, iterations - 5))
    last = iterations - 1 if draws.random() < 0.5 else int(draws.integers(first + 4, iterations))
    return tuple(range(first, last + 1))
