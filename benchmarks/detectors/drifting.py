"""A month in which everything takes longer: a forest that learned in the first week, tuned weekly and not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.detectors.figures import figures
from benchmarks.detectors.per_job import Task, job_of
from benchmarks.simulated.workers import results
from diagnosis.irregularity.drift import STATISTICS, WEEK_NS, Levels
from diagnosis.irregularity.features import AS_PUBLISHED, SCALE_FREE
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.tuning import TunedForest, TuningSettings
from offbeat import training
from offbeat.training import Counts, Labelled, Log

WEEKS = 4
DRIFT = 0.0703
"""Of a month: the larger one of figure 10a."""

_SEEDS_OF_WEEKS = 500

TUNING = {
    "untuned": TuningSettings(interval_ns=100 * WEEK_NS),
    **{f"tuned weekly by {statistic}": TuningSettings(statistic) for statistic in STATISTICS},
}

FEATURES = {"the paper's features": AS_PUBLISHED, "scale-free features": SCALE_FREE}


def weeks_of(seeds: int, job: int, learn: int) -> list[Task]:
    """A job's runs to learn from, and after each week half as many to judge, whose compute takes longer and longer."""
    quiet, tasks, judge = job_of(seeds, job), [], max(learn // 2, 1)
    for week in range(WEEKS + 1):
        slower = replace(quiet, compute_ms=quiet.compute_ms * (1 + DRIFT * week / WEEKS))
        first = seeds + 1000 * job + _SEEDS_OF_WEEKS + 50 * week
        runs = training.job_scenarios(slower, learn + judge if week == 0 else judge, first)
        tasks += [Task(job, scenario, week == 0 and at < learn, week) for at, scenario in enumerate(runs)]
    return tasks


def followed(tasks: Sequence[Task], processes: int, tell: Callable[[], None]) -> dict[str, Any]:
    """F1 after each week, for both lists of features: untuned, and tuned weekly by each statistic."""
    learned: dict[int, list[list[Labelled]]] = defaultdict(list)
    judged: dict[tuple[int, int], list[list[Labelled]]] = defaultdict(list)
    levels: dict[tuple[int, int], Levels] = {}
    for task, run, seen in results(_simulated, tasks, processes):
        if task.learn or task.week:
            levels.setdefault((task.job, task.week), seen)
        if task.learn:
            learned[task.job].append(run)
        else:
            judged[task.job, task.week].append(run)
        tell()
    jobs = sorted(learned)
    told: dict[str, Any] = {"jobs": len(jobs), "weeks": WEEKS, "drift": DRIFT}
    for name, features in FEATURES.items():
        counts: dict[str, list[list[Counts]]] = defaultdict(lambda: [[] for _ in range(WEEKS + 1)])
        for job in jobs:
            forest = training.fitted(learned[job], ForestDetector(ForestSettings(features=features)))
            assert isinstance(forest, ForestDetector)
            forest = replace(forest, levels=levels[job, 0])
            tuned = {how: TunedForest(forest, 0, settings) for how, settings in TUNING.items()}
            for week in range(WEEKS + 1):
                for how, following in tuned.items():
                    now = following.at(week * WEEK_NS, levels[job, week])
                    counts[how][week].append(training.counted(judged[job, week], now))
        told[name] = {how: [figures(of_jobs)["f1"] for of_jobs in weeks] for how, weeks in counts.items()}
    return told


def _simulated(task: Task) -> tuple[Task, list[Labelled], Levels]:
    run = training.simulated_run(task.scenario)
    return task, training.labelled_run(run), Log.of(run.job, run.table).levels()
