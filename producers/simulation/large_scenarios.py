"""Random jobs of thousands of ranks, for lazily expanded runs: each a pure function of its seed and what is given.

Ranks log 4,000 to 10,000 operators an iteration. Faults are placed uniformly over the devices of a kind, over time
and over parts of an iteration; their sizes are log-uniform in what they do to the iteration. Half of the jobs are
mixtures of experts; a third of the logs lack phase and microbatch, a third lack end times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.fabric import DEVICE_KINDS, Fabric
from producers.simulation.faults import FEWEST_OF_A_FLUCTUATION, FLUCTUATES_EVERY, Fault, Kind, Part, Pattern
from producers.simulation.noise import DEFAULT_LARGE, Draws, NoiseProfile, Purpose, log_uniform
from producers.simulation.scenario import FabricShape, Omissions, Scenario
from producers.simulation.scenarios import ABSORBED_SLOWDOWN, FIRST_FAULTY, SLOWDOWNS, compute_ms, hidden_ranks
from producers.simulation.schedule import program
from schemas.errors import SettingsError

FLUCTUATIONS = (1.05, 1.13)
"""Slowdowns of the iterations that a fluctuation hits."""

OPERATORS = (4_000, 10_000)
"""Operators of a rank and iteration."""

LONGEST_MS = 30_000.0
"""Compute of an iteration."""

DIMENSIONS = (3, 4, 6)
"""How many ways a job is parallel: over tensors, data and pipeline; experts, too; sequence and context, too."""

_FEWEST_LASTING = 5
_MOST_TRIES = 200


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault to be drawn: of a kind and pattern, or of any. ``absorbed``: bubbles hide it, of a GPU only."""

    kind: Kind | None = None
    pattern: Pattern | None = None
    absorbed: bool = False


def large_scenario(
    seed: int,
    troubles: tuple[Trouble, ...] = (),
    *,
    ranks: int = 2048,
    iterations: int = 100,
    dimensions: int | None = None,
    noise: NoiseProfile = DEFAULT_LARGE,
    age_days: int = 0,
) -> Scenario:
    """The scenario of a seed, with one fault for each trouble, all on different ranks.

    Raises ``SettingsError`` where ranks cannot be laid out or iterations leave no room for a fault.
    """
    if dimensions is not None and dimensions not in DIMENSIONS:
        raise SettingsError(f"a job is parallel in {DIMENSIONS} ways, not in {dimensions}")
    draws = Draws(seed).stream(Purpose.SCENARIO, place=1)
    scenario = replace(_job(seed, draws, ranks, dimensions), iterations=iterations, noise=noise, age_days=age_days)
    omitted = draws.random(2) < 1 / 3
    scenario = replace(scenario, omissions=Omissions(labels=bool(omitted[0]), ends=bool(omitted[1])))
    faults: list[Fault] = []
    while len(faults) < len(troubles):
        fault = _fault(scenario, draws, troubles[len(faults)])
        if all(fault.rank != other.rank for other in faults):
            faults.append(fault)
    return replace(scenario, faults=tuple(faults))


def _job(seed: int, draws: np.random.Generator, ranks: int, dimensions: int | None) -> Scenario:
    """A job whose ranks log as many operators as they should."""
    for _ in range(_MOST_TRIES):
        scenario = _tried(seed, draws, ranks, dimensions)
        speed = float(draws.uniform(0.8, 1.25))
        if scenario is not None and OPERATORS[0] <= _operators(scenario) <= OPERATORS[1]:
            taking = compute_ms(scenario) * speed
            if taking <= LONGEST_MS:
                return replace(scenario, compute_ms=taking)
    raise SettingsError(f"no job of {ranks} ranks was found; give a multiple of 256")


def _tried(seed: int, draws: np.random.Generator, ranks: int, dimensions: int | None) -> Scenario | None:
    # Everything is drawn in any case, so that what is given does not change the rest.
    mixture, sequences = draws.random(2) < (0.5, 0.75)
    tp, pp, cp = (int(draws.choice(sizes)) for sizes in ((4, 8, 8), (4, 8, 8, 16), (1, 1, 2, 4)))
    rounds, layers, boxes = (int(draws.choice(counts)) for counts in ((2, 4, 8), range(2, 17), (2, 4)))
    hidden, length = int(draws.choice((4096, 6144, 8192, 12288))), int(draws.choice((4096, 8192)))
    pod, spines, more = int(draws.choice((16, 32))), int(draws.choice((8, 16))), int(draws.integers(pp))
    if dimensions is not None:
        mixture, sequences = dimensions > 3, dimensions > 4
        cp = 1 if dimensions < 6 else max(cp, 2)
    dp, rest = divmod(ranks, tp * cp * pp)
    if rest or dp < 4 or dp % boxes or ranks % 8:
        return None
    hosts = ranks // 8
    return Scenario(
        seed=seed,
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=tp * cp * boxes if mixture else 1,
        fold_experts=bool(mixture),
        sequence_parallel=bool(sequences),
        microbatches=int(np.clip(pp * rounds, 16, 96)),
        layers=layers * pp + more,
        hidden=hidden,
        sequence_length=length * cp,
        iterations=1,
        fabric=FabricShape(hosts_per_pod=max(min(pod, hosts // 4), 1), spines=spines),
    )


def _operators(scenario: Scenario) -> int:
    """Operators of the first stage, which logs about as many as the others."""
    one, two = (len(program(replace(scenario, microbatches=count), 0).operators) for count in (1, 2))
    return one + (scenario.microbatches - 1) * (two - one)


def _fault(scenario: Scenario, draws: np.random.Generator, trouble: Trouble) -> Fault:
    kinds, patterns = list(Kind), list(Pattern)
    drawn = kinds[int(draws.integers(len(kinds)))], patterns[int(draws.integers(len(patterns)))]
    kind = Kind.GPU_SLOW if trouble.absorbed else trouble.kind or drawn[0]
    pattern = trouble.pattern or drawn[1]
    part = list(Part)[int(draws.integers(len(Part)))]
    bounds = FLUCTUATIONS if pattern is Pattern.FLUCTUATION else SLOWDOWNS
    slowdown = float(log_uniform(np.asarray(draws.random()), bounds))
    return Fault(
        kind=kind,
        rank=int(draws.choice(_places(scenario, kind, absorbed=trouble.absorbed))),
        iterations=_iterations(draws, scenario.iterations, pattern),
        slowdown=ABSORBED_SLOWDOWN if trouble.absorbed else slowdown,
        part=part if kind is Kind.GPU_SLOW else Part.ALL,
    )


def _places(scenario: Scenario, kind: Kind, *, absorbed: bool) -> Ints:
    """One rank for each device of a kind that is in use (of spines their numbers)."""
    cluster = Cluster(scenario)
    ranks = np.arange(scenario.world)
    if absorbed:
        return hidden_ranks(scenario)
    if kind is Kind.GPU_SLOW:
        return ranks
    if kind is Kind.CPU_SLOW:
        return ranks[:: scenario.gpus_per_host]
    fabric = Fabric(cluster)
    carrying = fabric.carries(DEVICE_KINDS[kind])
    if kind is Kind.NVLINK_SLOW:
        return carrying * scenario.gpus_per_host
    if kind is Kind.TOR_SLOW:
        return np.unique(fabric.tor, return_index=True)[1][carrying]
    return carrying


def _iterations(draws: np.random.Generator, iterations: int, pattern: Pattern) -> tuple[int, ...]:
    """When a fault acts: from some iteration on, in half of the runs to the end; in a rhythm; or now and then."""
    # A fluctuation shows by coming again and again only, so it begins in the first third of what there is to hit.
    rhythm = max(FEWEST_OF_A_FLUCTUATION * max(FLUCTUATES_EVERY), 2 * (iterations - FIRST_FAULTY) // 3)
    least = {Pattern.PERSISTENT: _FEWEST_LASTING, Pattern.SPIKES: 8, Pattern.FLUCTUATION: rhythm}
    room = iterations - FIRST_FAULTY - least[pattern]
    if room < 0:
        raise SettingsError(f"{iterations} iterations leave no room for a fault; give {iterations - room} or more")
    if pattern is Pattern.SPIKES:
        while True:
            count = int(draws.integers(3, 8, endpoint=True))
            at = np.sort(draws.choice(np.arange(FIRST_FAULTY, iterations), count, replace=False))
            if not set(np.diff(at).tolist()) <= set(FLUCTUATES_EVERY) or count < FEWEST_OF_A_FLUCTUATION:
                return tuple(int(i) for i in at)
    first = FIRST_FAULTY + int(draws.integers(room + 1))
    if pattern is Pattern.PERSISTENT:
        to_the_end = draws.random() < 0.5
        last = int(draws.integers(first + _FEWEST_LASTING - 1, iterations))
        return tuple(range(first, iterations if to_the_end else last + 1))
    period = draws.uniform(FLUCTUATES_EVERY[0] + 0.5, FLUCTUATES_EVERY[-1] - 0.5)
    beats = np.arange(first, iterations - 0.5, period)
    return tuple(int(i) for i in np.floor(beats))
