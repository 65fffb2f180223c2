"""One run of thousands of ranks, from its seed to its score."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from benchmarks.large.baselines import TRADITIONAL, Baselines, traditional
from benchmarks.large.observed import TimedLog, observe
from benchmarks.large.plan import LargeCase
from benchmarks.large.rankings import SETS, VARIANTS, place_of_set, shared_place
from benchmarks.large.volume import operators_an_iteration, volume
from benchmarks.simulated import rankings, scoring
from benchmarks.simulated.detection import Detection
from benchmarks.simulated.trial import Score, Traffic, layout_of
from diagnosis.job import pivots
from offbeat.settings import Settings
from producers.simulation import LazyRun
from producers.simulation.lazy_truth import LazyTruth
from producers.simulation.scenarios import Story
from producers.simulation.truth import Truth


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took: seconds of simulation beside those of diagnosis, and operators that searches asked for.

    ``operators`` is how many a rank of the first stage calls in an iteration, ``all_operators`` how many all ranks do.
    ``traditional_s`` is what three sigma over all logs took for one iteration; None: it was not run.
    """

    simulate_s: float
    operators: int
    all_operators: int
    fetched_rows: tuple[int, ...]
    traditional_s: float | None = None


@dataclass(frozen=True, slots=True)
class Alone:
    """Searches of iterations that a run's only fault slows, and how many of them have its set among their first K."""

    searches: int = 0
    right: int = 0


@dataclass(frozen=True, slots=True)
class LargeScore(Score):
    """What a finished run of thousands of ranks counts for; ``detect_s`` is without the simulator's time.

    ``set_sizes`` is how many devices the ranking cannot tell from each fault's; 0: it is not ranked. ``alone`` is what
    single searches say.
    """

    asked: LargeCase
    cost: Cost
    set_sizes: tuple[int, ...] = ()
    alone: Alone = Alone()

    @property
    def case(self) -> LargeCase:
        """The run that it is the score of."""
        return self.asked

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """What ``to_json`` gave; raises ``TypeError`` or ``KeyError`` for anything else."""
        own = {"asked", "cost", "set_sizes", "alone"}
        common = Score.from_json({name: value for name, value in row.items() if name not in own})
        asked = LargeCase(**{**row["asked"], "story": Story(row["asked"]["story"])})
        cost = Cost(**{**row["cost"], "fetched_rows": tuple(row["cost"]["fetched_rows"])})
        fields = {name: getattr(common, name) for name in Score.__dataclass_fields__}
        return cls(**fields, asked=asked, cost=cost, set_sizes=tuple(row["set_sizes"]), alone=Alone(**row["alone"]))


def run_case(case: LargeCase, settings: Settings) -> LargeScore:
    """Simulate a run, have the pipeline look at what it asks for, and hold the truth beside what it says."""
    started = time.perf_counter()
    run = LazyRun(case.scenario())
    return judged(case, run, settings, time.perf_counter() - started)


def judged(case: LargeCase, run: LazyRun, settings: Settings, simulate_s: float = 0.0) -> LargeScore:
    """The score of a simulated run; ``simulate_s`` is what it took so far."""
    log = TimedLog(run)
    baselines = Baselines(run.job, pivots(run.job, settings.pivots), settings.search.locate.baseline_iterations)
    started = time.perf_counter()
    detection = observe(log, settings, [baselines])
    detect_s = time.perf_counter() - started - log.taken.wall - baselines.seconds
    simulated_s = log.taken.wall
    truth = LazyTruth(run).whole()
    told = rankings.implications(detection.findings)
    ranked: dict[str, Mapping[str, float]] = {
        name: rankings.scores(told, variant) for name, variant in VARIANTS.items()
    }
    simpler: dict[str, Mapping[str, float]] = {**baselines.scores}
    traditional_s = None
    if case.all_logs and detection.searched:
        first, started, simulated = detection.searched[0], time.perf_counter(), log.taken.wall
        simpler[TRADITIONAL] = traditional(log, first, detection.iterations[first][0]["baseline"] or ())
        traditional_s = round(time.perf_counter() - started - (log.taken.wall - simulated), 3)
    shift = scoring.shift_of(truth, run.job, detection)
    faults = scoring.score_faults(truth, run.job, detection, shift, ranked)
    of_sets = [place_of_set(fault.inseparable, told) for fault in faults]
    places = [
        {name: shared_place(fault.inseparable, scores) for name, scores in simpler.items()}
        | {SETS: of_set.place if of_set else None}
        for fault, of_set in zip(faults, of_sets, strict=True)
    ]
    logged = volume(log)
    # Of the ranks that nobody watches not even summaries are worked out here; a job's agents do send them.
    unasked = detection.bytes.pivots + logged.summaries
    return LargeScore(
        seed=case.seed,
        story=case.story.value,
        noise=case.noise,
        layout=layout_of(run.scenario),
        faults=tuple(
            replace(fault, places={**fault.places, **more}) for fault, more in zip(faults, places, strict=True)
        ),
        said=scoring.score_incidents(truth, run.job, detection, shift),
        iterations=scoring.score_iterations(truth, detection, shift),
        searched=len(detection.searched),
        traffic=Traffic(logged.everything, unasked, detection.bytes.fetched),
        detect_s=round(detect_s, 3),
        asked=case,
        cost=Cost(
            simulate_s=round(simulate_s + simulated_s, 3),
            operators=len(run.programs[0].operators),
            all_operators=operators_an_iteration(log),
            fetched_rows=tuple(detection.fetched_rows[iteration] for iteration in detection.searched),
            traditional_s=traditional_s,
        ),
        set_sizes=tuple(of_set.devices if of_set else 0 for of_set in of_sets),
        alone=_alone(truth, detection, shift),
    )


def _alone(truth: Truth, detection: Detection, shift: int) -> Alone:
    """What the findings of single iterations say, in a run with one fault."""
    if len(truth.faults) != 1:
        return Alone()
    [fault] = truth.faults
    searched = [iteration for iteration in detection.searched if iteration + shift in fault.iterations]
    right = 0
    for iteration in searched:
        told = rankings.implications(row for row in detection.findings if row["iteration"] == iteration)
        of_set = place_of_set(fault.inseparable, told)
        right += of_set is not None and of_set.place <= scoring.TOP_K
    return Alone(len(searched), right)
