"""Detectors that learn from some runs of a job and judge others of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.detectors.figures import figures
from benchmarks.simulated.workers import results
from diagnosis.irregularity import baselines
from diagnosis.irregularity.features import AS_PUBLISHED, EVERY, SCALE_FREE
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.operator_detector import OperatorDetector, SigmaDetector
from offbeat import models, training
from offbeat.training import Counts, Labelled
from producers.simulation.scenario import Scenario
from producers.simulation.scenarios import Story, random_scenario

ITERATIONS = 40
SEEDS_A_JOB = 1000

JUDGED = 2000
"""Operators of an iteration that are judged, at random: nearest neighbours take a millisecond each."""

DETECTORS: dict[str, OperatorDetector] = {
    "forest, gini": ForestDetector(),
    "forest, entropy": ForestDetector(ForestSettings(criterion="entropy")),
    "forest, every feature": ForestDetector(ForestSettings(features=EVERY)),
    "forest, the paper's features": ForestDetector(ForestSettings(features=AS_PUBLISHED)),
    "1 sigma": SigmaDetector(1.0),
    "3 sigma": SigmaDetector(),
    "KNN": baselines.knn(),
    "KNN, the forest's features": baselines.knn(SCALE_FREE),
    "KNN + PCA": baselines.knn_pca(),
    "KNN + PCA, the forest's features": baselines.knn_pca(SCALE_FREE),
    "SVM": baselines.svm(),
    "SVM, the forest's features": baselines.svm(SCALE_FREE),
}

GENERIC = "generic forest"


@dataclass(frozen=True, slots=True)
class Task:
    """A run of a job, to learn from or to judge; ``week`` from 0 on, where the job is followed."""

    job: int
    scenario: Scenario
    learn: bool
    week: int = 0


def job_of(seeds: int, job: int) -> Scenario:
    """A job without faults."""
    return random_scenario(seeds + SEEDS_A_JOB * job, Story.HEALTHY, iterations=ITERATIONS)


def runs_of(seeds: int, job: int, learn: int) -> list[Task]:
    """The runs of a job: those to learn from, and half as many to judge."""
    first = seeds + SEEDS_A_JOB * job + 1
    scenarios = training.job_scenarios(job_of(seeds, job), learn + max(learn // 2, 1), first)
    return [Task(job, scenario, at < learn) for at, scenario in enumerate(scenarios)]


def compared(tasks: Sequence[Task], processes: int, tell: Callable[[], None]) -> dict[str, Any]:
    """Figures of every detector over the jobs; raises ``ModelError`` where the generic model cannot be used."""
    learned: dict[int, list[list[Labelled]]] = defaultdict(list)
    judged: dict[int, list[list[Labelled]]] = defaultdict(list)
    layouts = {task.job: _layout(task.scenario) for task in tasks}
    for task, run in results(_simulated, tasks, processes):
        if task.learn:
            learned[task.job].append(training.thinned(run, ForestSettings()))
        else:
            judged[task.job].append([_few(part, task.scenario.seed) for part in run])
        tell()
    counts: dict[str, list[Counts]] = {name: [] for name in (*DETECTORS, GENERIC)}
    generic = models.load(models.DEFAULT).detector
    for job in sorted(layouts):
        for name, detector in DETECTORS.items():
            counts[name].append(training.counted(judged[job], training.fitted(learned[job], detector)))
        counts[GENERIC].append(training.counted(judged[job], generic))
    return {
        "jobs": [layouts[job] for job in sorted(layouts)],
        "iterations": {
            "learned_from": sum(len(run) for runs in learned.values() for run in runs),
            "judged": sum(len(run) for runs in judged.values() for run in runs),
        },
        "operators_judged": sum(len(part.samples) for runs in judged.values() for run in runs for part in run),
        "by_detector": {name: figures(of_jobs) for name, of_jobs in counts.items()},
    }


def _simulated(task: Task) -> tuple[Task, list[Labelled]]:
    return task, next(training.simulated([task.scenario]))


def _few(part: Labelled, seed: int) -> Labelled:
    draws = np.random.default_rng([seed, part.iteration])
    those = np.sort(draws.permutation(len(part.samples))[:JUDGED])
    return Labelled(part.iteration, part.samples.take(those), part.abnormal[those])


def _layout(scenario: Scenario) -> str:
    return f"tp={scenario.tp},pp={scenario.pp},dp={scenario.dp},ep={scenario.ep}"
