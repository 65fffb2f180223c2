"""Labelled operators of a job of thousands of ranks, some hours of its log at a time.

A person who labels the logs of such a job looks at irregular iterations, and of each at the logs of some ranks. So does
a ``Period``: now and then a device is slow for a moment; the ranks that are judged are the pivots, a few others at
random, and one that the slow device belongs to. What is usual is what the monitor's baseline says it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from diagnosis.arrays import Floats
from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.irregularity.samples import Length, Samples
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.job import Job, pivots
from diagnosis.operators import Operators
from offbeat.training import Labelled
from producers.simulation import Fault, Kind, LazyLog, LazyRun, Pattern, Scenario
from producers.simulation.large_scenarios import Trouble, large_scenario
from producers.simulation.lazy_truth import LazyTruth
from producers.simulation.noise import DEFAULT_LARGE, NoiseProfile
from producers.simulation.scenario import Omissions
from schemas.errors import SettingsError

RANKS = 4096

OTHER_RANKS = 8
"""Ranks that are judged beside the pivots."""

MONITOR = MonitorSettings()

FIRST_FAULTY = MONITOR.warm_up + MONITOR.window

APART = 5
"""Iterations from one fault to the next: their windows differ, as they do over hours."""


@dataclass(frozen=True, slots=True)
class Period:
    """Some hours of a job's log. ``scenario`` is without faults; ``faults`` act one after the other, each alone."""

    scenario: Scenario
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Labels:
    """The irregular iterations of a period, those of a fault together, and where its features in ns stood."""

    of_faults: list[list[Labelled]]
    levels: Levels


def periods(
    seed: int,
    faults: Sequence[int],
    ages_days: Sequence[int],
    ranks: int = RANKS,
    noise: NoiseProfile = DEFAULT_LARGE,
) -> list[Period]:
    """The job of a seed at several ages, each with so many faults of its own on devices of its own.

    Devices are of all kinds, uniform within a kind; what they do to the iteration is log-uniform from 1.1 to 2.
    Raises ``SettingsError`` for ranks that cannot be laid out.
    """
    drawn = large_scenario(seed, (Trouble(pattern=Pattern.SPIKES),) * sum(faults), ranks=ranks, noise=noise)
    ahead = iter(drawn.faults)
    return [one_at_a_time(drawn, list(islice(ahead, count)), age) for count, age in zip(faults, ages_days, strict=True)]


def one_at_a_time(job: Scenario, faults: Sequence[Fault], age_days: int) -> Period:
    """Some hours of a job of an age, whose faults act whenever their turn is."""
    scenario = replace(job, faults=(), omissions=Omissions(), iterations=_faulty(len(faults))[0], age_days=age_days)
    return Period(scenario, tuple(replace(fault, iterations=_faulty(at)) for at, fault in enumerate(faults)))


def labelled(period: Period) -> Labels:
    """The irregular iterations of a period, with the truth of the operators of the ranks that are judged."""
    healthy = LazyLog(LazyRun(period.scenario))
    draws = np.random.default_rng([period.scenario.seed, period.scenario.age_days])
    watched = {*pivots(healthy.run.job), *draws.choice(period.scenario.world, OTHER_RANKS, replace=False).tolist()}
    ranks = [sorted(watched | {fault.rank}) for fault in period.faults]
    before = _Before(healthy)
    for rank in sorted({rank for of_fault in ranks for rank in of_fault}):
        firsts = [fault.iterations[0] for fault, some in zip(period.faults, ranks, strict=True) if rank in some]
        before.look_at(rank, firsts)
    of_faults = [
        _irregular(LazyLog(run_with(period, fault)), before, some)
        for fault, some in zip(period.faults, ranks, strict=True)
    ]
    return Labels(of_faults, before.levels(period.faults[-1].iterations[0]))


def run_with(period: Period, fault: Fault) -> LazyRun:
    """A period's log with one of its faults, up to the iteration after it.

    Where the device carries too little to slow the job as much as it should, a GPU is slow instead.
    """
    short = replace(period.scenario, iterations=fault.iterations[-1] + 2)
    try:
        return LazyRun(replace(short, faults=(fault,)))
    except SettingsError:
        return LazyRun(replace(short, faults=(replace(fault, kind=Kind.GPU_SLOW),)))


class _Before:
    """The log of a period before each fault: how long iterations took, and what operators usually last."""

    def __init__(self, healthy: LazyLog) -> None:
        self._log = healthy
        iterations = range(healthy.run.scenario.iterations - 1)
        self._lengths = np.array([_length_ns(healthy, iteration) for iteration in iterations])
        self._usual: dict[tuple[int, int], WindowStatistics] = {}

    def look_at(self, rank: int, firsts: Sequence[int]) -> None:
        """Work out what a rank's operators usually last before each of some iterations."""
        operators = _operators(self._log, rank, range(min(firsts) - MONITOR.window, max(firsts)))
        took = _durations(operators)
        for first in firsts:
            past = (operators.iteration >= first - MONITOR.window) & (operators.iteration < first)
            self._usual[rank, first] = WindowStatistics.of_operators(operators.take(past), took[past])

    def usual(self, rank: int, first: int) -> WindowStatistics:
        """What operators of a rank that was looked at usually last before an iteration."""
        return self._usual[rank, first]

    def usual_ns(self, first: int) -> float:
        """How long iterations usually take before one."""
        return float(np.nanmean(self._lengths[first - MONITOR.window : first]))

    def levels(self, first: int) -> Levels:
        """Of what the pivots' operators usually last before an iteration, by which a search tunes."""
        of_pivots = [self._usual[pivot, first] for pivot in pivots(self._log.run.job)]
        return Levels.of_usual(WindowStatistics.joined(of_pivots), self.usual_ns(first))


def _irregular(log: LazyLog, before: _Before, ranks: Sequence[int]) -> list[Labelled]:
    """The iterations of a fault that are irregular to the monitor, and truly so."""
    truth, [fault] = LazyTruth(log.run), log.run.scenario.faults
    parts, first = [], fault.iterations[0]
    for iteration in sorted(set(fault.iterations) & set(truth.whole().positives)):
        length = Length(_length_ns(log, iteration), before.usual_ns(first))
        if length.iteration_ns > MONITOR.delta * length.usual_ns:
            logs = [_operators(log, rank, [iteration]) for rank in ranks]
            beside = [
                _beside(own, before.usual(rank, first), length, log.run.job)
                for rank, own in zip(ranks, logs, strict=True)
            ]
            marks = [truth.abnormal(rank, iteration)[~log.lost(rank, iteration)] for rank in ranks]
            parts.append(Labelled(iteration, Samples.joined(beside), np.concatenate(marks)))
    return parts


def _faulty(ordinal: int) -> tuple[int, int]:
    """Iterations in which a period's n-th device is slow: those of one fault look alike, so that two are enough."""
    first = FIRST_FAULTY + APART * ordinal
    return first, first + 2


def _operators(log: LazyLog, rank: int, iterations: Sequence[int]) -> Operators:
    return Operators.from_arrow(log.rows([rank], iterations)[0])


def _beside(operators: Operators, usual: WindowStatistics, length: Length, job: Job) -> Samples:
    return Samples.of(operators, _durations(operators), usual, length, job.members)


def _durations(operators: Operators) -> Floats:
    return np.where(operators.ended, operators.end_ns - operators.call_ns, np.nan)


def _length_ns(log: LazyLog, iteration: int) -> float:
    """How long an iteration took on the pivots (median); NaN: not known."""
    spans = [log.span(pivot, iteration) for pivot in pivots(log.run.job)]
    known = [span.end_ns - span.start_ns for span in spans if min(span.start_ns, span.end_ns) >= 0]
    return float(np.median(known)) if known else np.nan
