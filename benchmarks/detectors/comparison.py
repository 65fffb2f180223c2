"""Detectors beside each other: each learns from the same labelled iterations of a job, and judges others of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.detectors.figures import figures
from diagnosis.irregularity import baselines
from diagnosis.irregularity.features import AS_PUBLISHED, EVERY, SCALE_FREE
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.operator_detector import OperatorDetector, SigmaDetector
from offbeat import models, training
from offbeat.training import Counts, Labelled
from producers.simulation import Scenario

Runs = Sequence[Sequence[Labelled]]
"""Labelled iterations, those of a fault together."""

GENERIC = "generic forest"
"""The model that ships; it learns nothing from the job."""

DETECTORS: Mapping[str, OperatorDetector] = {
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


@dataclass(frozen=True, slots=True)
class Compared:
    """How each detector did on one job; ``learned_from`` and ``judged`` count irregular iterations."""

    layout: str
    learned_from: int
    judged: int
    operators: int
    abnormal: int
    by_detector: Mapping[str, Counts]


def compared(layout: str, learned: Runs, judged: Runs) -> Compared:
    """How each detector does on a job, the model that ships among them.

    Raises ``InputError`` where there is too little to learn from, ``ModelError`` where that model cannot be used.
    """
    # thinned out as for a model file: the same operators for every detector
    thin = [training.thinned(run, ForestSettings()) for run in learned]
    counts = {name: training.counted(judged, training.fitted(thin, detector)) for name, detector in DETECTORS.items()}
    counts[GENERIC] = training.counted(judged, models.load(models.DEFAULT).detector)
    parts = [part for run in judged for part in run]
    return Compared(
        layout,
        learned_from=sum(len(run) for run in learned),
        judged=len(parts),
        operators=sum(len(part.samples) for part in parts),
        abnormal=int(sum(part.abnormal.sum() for part in parts)),
        by_detector=counts,
    )


def told(jobs: Sequence[Compared]) -> dict[str, Any]:
    """Figures over some jobs."""
    names = jobs[0].by_detector if jobs else ()
    return {
        "jobs": [job.layout for job in jobs],
        "iterations": {
            "learned_from": sum(job.learned_from for job in jobs),
            "judged": sum(job.judged for job in jobs),
        },
        "operators_judged": sum(job.operators for job in jobs),
        "of_these_abnormal": sum(job.abnormal for job in jobs),
        "by_detector": {name: figures([job.by_detector[name] for job in jobs]) for name in names},
    }


def layout_of(scenario: Scenario) -> str:
    """A job's degrees of parallelism in short."""
    return ",".join(f"{name}={getattr(scenario, name)}" for name in ("tp", "pp", "cp", "dp", "ep"))
