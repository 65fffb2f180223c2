"""From labelled logs to a trained model.

An operator is truly abnormal if the fault made it take longer by at least a tenth of what the iteration lost. The
simulation knows that of every operator; of recorded logs a person labels those that are, in iterations of their choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.monitor import IterationMonitor, Judgement
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.irregularity.operator_detector import OperatorDetector
from diagnosis.irregularity.run import DEGRADATION
from diagnosis.irregularity.samples import Length, Samples
from diagnosis.irregularity.training_set import chosen
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.job import Job, pivots
from diagnosis.numbering import numbered
from diagnosis.operators import UNKNOWN, Operators
from offbeat.models import Model
from producers.simulation import Kind, LazyLog, LazyRun, SimulatedRun, simulate
from producers.simulation.extent import MOST_OPERATORS, most_operators
from producers.simulation.lazy_truth import LazyTruth
from producers.simulation.noise import suited
from producers.simulation.scenario import Omissions, Scenario
from producers.simulation.scenarios import Story, random_scenario
from schemas.errors import InputError, SettingsError

MOST_LOOKED_AT = 2_000_000
"""Operators of a run that is too large to be simulated whole; they take some gigabyte."""

MOST_PIVOTS = 64
"""A model of a job can be tuned with any number of pivots up to this one."""

MOST_RANKS = 16_384
"""Of a job that is simulated in part: each iteration works out what all ranks do."""

LABEL_COLUMNS = ("rank", "communicator", "iteration", "position")
"""What names an operator in a file of labels."""

MOST_OF_A_RUN = 4
"""Irregular iterations of a run that are learned from: those of one fault look alike."""

HELD_OUT = 5
"""Every fifth run (of a single log: iteration) is not learned from, but tells how well the model does."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """The operators of one irregular iteration, and which of them are truly abnormal; shape (n,)."""

    iteration: int
    samples: Samples
    abnormal: Bools


class Counts(NamedTuple):
    """Operators rightly called abnormal, wrongly called so, and abnormal ones that were not."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @classmethod
    def of(cls, truth: Bools, said: Bools) -> Counts:
        """Of operators of shape (n,)."""
        return cls(int((truth & said).sum()), int((said & ~truth).sum()), int((truth & ~said).sum()))

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def precision(self) -> float:
        """Share of those called abnormal that are; 0 where none was called so."""
        return self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        """Share of the abnormal ones that were called so; 0 where there is none."""
        return self.right / max(self.right + self.missed, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.right / max(2 * self.right + self.wrong + self.missed, 1)


@dataclass(frozen=True)
class Log:
    """A job's log as a detector sees it: its operators, what each took, and how long the iterations took.

    ``duration_ns`` has shape (n,), ``lengths_ns`` an entry an iteration from 0 on; NaN: not known.
    """

    job: Job
    operators: Operators
    duration_ns: Floats
    lengths_ns: Floats
    settings: MonitorSettings = field(default_factory=MonitorSettings)
    _windows: dict[tuple[int, ...], WindowStatistics] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, job: Job, table: pa.Table) -> Log:
        """Of rows of telemetry.comm_ops that carry iterations and positions."""
        operators = Operators.from_arrow(table)
        duration_ns = np.where(operators.ended, operators.end_ns - operators.call_ns, np.nan)
        return cls(job, operators, duration_ns, iteration_lengths(job, operators))

    @cached_property
    def _judgements(self) -> Mapping[int, Judgement]:
        """What the pipeline says of each iteration."""
        monitor, first = IterationMonitor(self.settings), self._first
        lengths = enumerate(self.lengths_ns[first:].tolist(), start=first)
        return {at: monitor.judge(at, None if np.isnan(ns) else int(ns)) for at, ns in lengths}

    @property
    def _first(self) -> int:
        """The first iteration that the log has anything of."""
        seen = self.operators.iteration[self.operators.iteration != UNKNOWN]
        return int(seen.min(initial=len(self.lengths_ns)))

    @property
    def irregular(self) -> Mapping[int, int]:
        """Irregular iterations by number, each with the first one of its run."""
        return {at: of.run.first for at, of in self._judgements.items() if of.irregular and of.run is not None}

    @cached_property
    def regular(self) -> Ints:
        """The other iterations, ascending; but for the job's first, which warm it up, and dips of a degradation."""
        degraded = [of.run for of in self._judgements.values() if of.run is not None and of.run.pattern == DEGRADATION]
        within = [iteration for run in degraded for iteration in range(run.first, run.last + 1)]
        warm = np.arange(self._first + self.settings.warm_up, len(self.lengths_ns))
        return np.setdiff1d(warm, [*self.irregular, *within])

    def here(self, iteration: int) -> Bools:
        """Which operators are of an iteration; shape (n,)."""
        return np.asarray(self.operators.iteration == iteration, dtype=np.bool_)

    def samples(self, iteration: int) -> Samples:
        """The operators of an irregular iteration beside what a search of it has: how long the monitor expects it to
        be, and what operators lasted in the iterations that its run is compared with.
        """
        judgement = self._judgements[iteration]
        assert judgement.run is not None
        assert judgement.expected_ns is not None
        window = judgement.run.compared_with
        if window not in self._windows:
            past = np.isin(self.operators.iteration, window)
            usual = WindowStatistics.of_operators(self.operators.take(past), self.duration_ns[past])
            self._windows[window] = usual
        here, length = self.here(iteration), Length(float(self.lengths_ns[iteration]), float(judgement.expected_ns))
        now = self.operators.take(here), self.duration_ns[here]
        return Samples.of(*now, self._windows[window], length, self.job.members)

    def levels(self) -> Levels | None:
        """Where the features of the job stand: what operators of the pivots last in its regular iterations, for each
        number of pivots up to ``MOST_PIVOTS`` all of which are in the log.

        None where that is not known, as of logs without ends.
        """
        own = pivots(self.job)
        others = {pivots(self.job, number) for number in range(1, MOST_PIVOTS + 1)} - {own}
        ranks = sorted({*own, *chain.from_iterable(others)})
        those = np.isin(self.operators.iteration, self.regular) & np.isin(self.operators.rank, ranks)
        usual = WindowStatistics.of_operators(self.operators.take(those), self.duration_ns[those])
        known = set(usual.rank.tolist())
        if known.isdisjoint(own):
            return None
        usual_iteration_ns = float(np.nanmean(self.lengths_ns[self.regular]))

        def of(ranks: tuple[int, ...]) -> Levels:
            return Levels.of_usual(usual.take(np.isin(usual.rank, ranks)), usual_iteration_ns)

        return replace(of(own), others=tuple(of(ranks) for ranks in sorted(others) if known.issuperset(ranks)))


def labelled(log: Log, labels: pa.Table) -> list[Labelled]:
    """The irregular iterations of a log, with the labels of their operators: a row an abnormal one (``LABEL_COLUMNS``).

    What is irregular is told as the pipeline tells it, from the pivots.
    """
    abnormal, _ = named(log.operators, labels)
    return [Labelled(iteration, log.samples(iteration), abnormal[log.here(iteration)]) for iteration in log.irregular]


@dataclass(frozen=True)
class LabelledLog:
    """What is looked at of a simulated run that carries iterations, and the truth: which rows are abnormal, of shape
    (n,), and which iterations the faults lengthened by 1 to 10 %, so that they are neither irregular nor not.
    """

    job: Job
    table: pa.Table
    abnormal: Bools
    between: frozenset[int]

    @classmethod
    def of(cls, run: SimulatedRun) -> LabelledLog:
        """All of a run."""
        return cls(run.job, run.table, run.truth.abnormal, frozenset(run.truth.unscored))

    @classmethod
    def in_part(cls, run: LazyRun) -> LabelledLog:
        """The logs of a job's pivots and of other ranks at random, wherever the fault is, as many as there is room for:
        a person who labels logs of thousands of ranks does not look at all either. Raises ``SettingsError`` where there
        is no room for the pivots'.
        """
        log, truth, scenario = LazyLog(run), LazyTruth(run), run.scenario
        of_a_rank = max(1, most_operators(scenario) // scenario.world)
        watched = pivots(run.job)
        others = np.setdiff1d(run.job.ranks, watched)
        room = min(MOST_LOOKED_AT // of_a_rank - len(watched), len(others))
        if room < 0:
            raise SettingsError(
                f"scenario: {len(watched)} ranks x about {of_a_rank} operators are more than the {MOST_LOOKED_AT} that "
                "are looked at; give fewer iterations, microbatches or layers"
            )
        drawn = np.random.default_rng(scenario.seed).choice(others, room, replace=False)
        ranks = sorted({*watched, *drawn.tolist()})
        slow = {iteration for fault in scenario.faults for iteration in fault.iterations}

        def abnormal(rank: int, iteration: int) -> Bools:
            logged = ~log.lost(rank, iteration)
            marks = truth.abnormal(rank, iteration) if iteration in slow else np.zeros_like(logged)
            return marks[logged]

        iterations = range(scenario.iterations)
        table, _ = log.rows(ranks, iterations)
        marks = [abnormal(rank, iteration) for rank in ranks for iteration in iterations]
        return cls(run.job, table, np.concatenate(marks), frozenset(truth.whole().unscored))


def labelled_run(run: LabelledLog) -> list[Labelled]:
    """The irregular iterations of a simulated run, with the truth of the operators that are looked at."""
    labels = run.table.filter(pa.array(run.abnormal)).select(LABEL_COLUMNS)
    parts = [part for part in labelled(Log.of(run.job, run.table), labels) if part.iteration not in run.between]
    places = np.unique(np.linspace(0, len(parts) - 1, min(MOST_OF_A_RUN, len(parts))).astype(int))
    return [parts[place] for place in places]


def iteration_lengths(job: Job, operators: Operators) -> Floats:
    """How long each iteration took on the pivots (median), from 0 on, in ns; NaN: not known."""
    count = int(operators.iteration.max(initial=UNKNOWN)) + 1
    spans = []
    for pivot in pivots(job):
        own = operators.of_rank(pivot)
        own = own.take(own.iteration != UNKNOWN)
        begins = np.full(count + 1, np.nan)
        np.fmin.at(begins, own.iteration, own.call_ns.astype(np.float64))
        if len(own):
            begins[count] = max(own.call_ns.max(), own.end_ns.max())
        spans.append(np.diff(begins))
    told, lengths = np.asarray(spans).reshape(-1, count), np.full(count, np.nan)
    known = ~np.isnan(told).all(axis=0)
    lengths[known] = np.nanmedian(told[:, known], axis=0)
    return lengths


def named(operators: Operators, labels: pa.Table) -> tuple[Bools, Bools]:
    """Which operators the labels name, and which labels name an operator; shapes (n,) and (labels,)."""
    codes = {name: code for code, name in enumerate(operators.communicators)}
    told: list[Ints] = []
    for name in LABEL_COLUMNS:
        values = labels.column(name).to_pylist()
        told.append(np.array([codes.get(v, UNKNOWN) if name == "communicator" else v for v in values], dtype=np.int64))
    own = (operators.rank, operators.communicator, operators.iteration, operators.position)
    keys = numbered(*(np.concatenate(both) for both in zip(own, told, strict=True)))
    mine, theirs = np.split(keys, [len(operators)])
    return np.isin(mine, theirs) & (mine != UNKNOWN), np.isin(theirs, mine) & (theirs != UNKNOWN)


def job_scenarios(job: Scenario, runs: int, seed: int) -> Iterator[Scenario]:
    """Runs of one job, each with other noise and one other slow device."""
    for at in range(runs):
        template = random_scenario(seed + at, Story.ONE, ranks=None, iterations=job.iterations)
        draws = np.random.default_rng(seed + at)
        fault = replace(template.faults[0], rank=int(draws.integers(job.world)))
        yield replace(job, seed=seed + at, faults=(fault,), omissions=Omissions())


def many_jobs(runs: int, seed: int, iterations: int) -> Iterator[Scenario]:
    """Runs of many jobs: layouts, sizes, half of them mixtures of experts, one slow device each."""
    for at in range(runs):
        scenario = random_scenario(seed + at, Story.ONE, iterations=iterations)
        yield replace(scenario, omissions=Omissions())


def simulated(scenarios: Iterable[Scenario]) -> Iterator[list[Labelled]]:
    """The labelled iterations of each run."""
    for scenario in scenarios:
        yield labelled_run(simulated_run(scenario))


def simulated_run(scenario: Scenario) -> LabelledLog:
    """A run, in part where it is too large to be simulated whole.

    Where a NIC carries too little to slow the job as much as it should, the GPU beside it is slow instead.
    Raises ``SettingsError`` for a job that is too large even so.
    """
    try:
        return _labelled_log(scenario)
    except SettingsError:
        faults = tuple(replace(fault, kind=Kind.GPU_SLOW) for fault in scenario.faults)
        return _labelled_log(replace(scenario, faults=faults))


def _labelled_log(scenario: Scenario) -> LabelledLog:
    if most_operators(scenario) <= MOST_OPERATORS:
        return LabelledLog.of(simulate(scenario))
    if scenario.world > MOST_RANKS:
        raise SettingsError(
            f"scenario: {scenario.world} ranks are more than the {MOST_RANKS} of which some can be simulated; "
            "give smaller tp, pp, cp or dp"
        )
    return LabelledLog.in_part(LazyRun(replace(scenario, noise=suited(scenario.noise, scenario.world))))


def fitted(runs: Iterable[Sequence[Labelled]], detector: OperatorDetector) -> OperatorDetector:
    """A detector that learned from labelled runs; raises ``InputError`` where they hold too little to learn from."""
    parts = [part for run in runs for part in run]
    try:
        samples = Samples.joined([part.samples for part in parts])
        return detector.fit(samples, np.concatenate([part.abnormal for part in parts]))
    except ValueError as error:
        raise InputError(f"{len(parts)} labelled irregular iterations: {error}") from error


def counted(runs: Iterable[Sequence[Labelled]], detector: OperatorDetector) -> Counts:
    """How a detector does on labelled runs."""
    counts = Counts()
    for run in runs:
        for part in run:
            counts = counts.plus(Counts.of(part.abnormal, detector.predict(part.samples)))
    return counts


def thinned(run: Sequence[Labelled], settings: ForestSettings) -> list[Labelled]:
    """Of each iteration what is worth learning from: memory holds many runs then."""
    kept = []
    for part in run:
        if part.abnormal.any() and not part.abnormal.all():
            those = chosen(part.samples, part.abnormal, settings.features, settings.choice)
            kept.append(Labelled(part.iteration, part.samples.take(those), part.abnormal[those]))
    return kept


def train(
    runs: Iterable[Sequence[Labelled]],
    source: str,
    settings: ForestSettings | None = None,
    levels: Levels | None = None,
) -> Model:
    """A forest that learned from all but every fifth of the labelled runs, with its figures on those (none of fewer).

    ``levels`` are where the features of the job stand; a forest that has none is not tuned.
    Raises ``InputError`` where they hold too little to learn from.
    """
    settings = settings or ForestSettings()
    learned: list[list[Labelled]] = []
    held_out: list[Sequence[Labelled]] = []
    for at, run in enumerate(run for run in runs if run):
        if at % HELD_OUT == HELD_OUT - 1:
            held_out.append(run)
        else:
            learned.append(thinned(run, settings))
    detector = fitted(learned, ForestDetector(settings))
    assert isinstance(detector, ForestDetector)
    counts = counted(held_out, detector)
    figures: dict[str, Any] = {
        **{name: round(getattr(counts, name), 4) if held_out else None for name in ("f1", "precision", "recall")},
        "held_out": {"runs": len(held_out), **_sizes(held_out)},
        "learned_from": {"runs": len(learned), **_sizes(learned)},
    }
    return Model(replace(detector, levels=levels), source, figures)


def _sizes(runs: Iterable[Sequence[Labelled]]) -> dict[str, int]:
    parts = [part for run in runs for part in run]
    return {
        "iterations": len(parts),
        "operators": sum(len(part.samples) for part in parts),
        "abnormal": int(sum(part.abnormal.sum() for part in parts)),
    }
