"""A month in which everything takes longer: a forest that learned on the first day, tuned weekly, as Holmes does
(4.2.2, figure 14b), at each search, as searches here do (``diagnosis.irregularity.tuning``), and not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.detectors.comparison import GENERIC, Runs
from benchmarks.detectors.figures import figures
from diagnosis.irregularity.drift import STATISTICS, Levels
from diagnosis.irregularity.features import AS_PUBLISHED, SCALE_FREE
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.tuning import WEEK_NS, TunedForest, TuningSettings
from offbeat import models, training
from offbeat.training import Counts

DAYS = (1, 7, 14, 21, 28)
"""When the forest is judged; learned is on day 0."""

DAY_NS = 86_400 * 10**9

UNTUNED = "untuned"

EACH_SEARCH = "tuned at each search by mean"

TUNING = {
    UNTUNED: TuningSettings(interval_ns=100 * WEEK_NS),
    **{f"tuned weekly by {statistic}": TuningSettings(statistic) for statistic in STATISTICS},
    EACH_SEARCH: TuningSettings(interval_ns=0),
}

FEATURES = {"the paper's features": AS_PUBLISHED, "scale-free features": SCALE_FREE}

Followed = Mapping[str, Mapping[str, list[Counts]]]
"""How forests did on one job on each of the days, by their features and how they were tuned."""


def followed(learned: Runs, levels: Levels, days: Sequence[tuple[Runs, Levels]]) -> Followed:
    """How forests do that learned where the features stood at ``levels``; ``days``: what there is to judge on each.

    Raises ``InputError`` where there is too little to learn from, ``ModelError`` where the model that ships cannot be
    used.
    """
    thin = [training.thinned(run, ForestSettings()) for run in learned]
    told: dict[str, dict[str, list[Counts]]] = {}
    for name, features in FEATURES.items():
        forest = training.fitted(thin, ForestDetector(ForestSettings(features=features)))
        assert isinstance(forest, ForestDetector)
        told[name] = {how: [] for how in TUNING}
        for how, settings in TUNING.items():
            tuned = TunedForest(replace(forest, levels=levels), 0, settings)
            for day, (judged, now) in zip(DAYS, days, strict=True):
                told[name][how].append(training.counted(judged, tuned.at(day * DAY_NS, now)))
    generic = models.load(models.DEFAULT).detector
    told[GENERIC] = {UNTUNED: [training.counted(judged, generic) for judged, _ in days]}
    return told


def told(jobs: Sequence[Followed]) -> dict[str, Any]:
    """On each of the days F1 over some jobs, and its interval."""
    by_name = {
        name: {how: [figures([job[name][how][at] for job in jobs]) for at in range(len(DAYS))] for how in by_tuning}
        for name, by_tuning in jobs[0].items()
    }
    return {
        "jobs": len(jobs),
        "days": DAYS,
        **{
            kept: {
                name: {how: [one[kept] for one in of_days] for how, of_days in by_tuning.items()}
                for name, by_tuning in by_name.items()
            }
            for kept in ("f1", "interval_95")
        },
    }
