"""One job of thousands of ranks: every detector learns from some hours of its log and judges the next day's.

Some jobs are followed over a month.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.detectors import comparison, drifting
from benchmarks.detectors.comparison import Compared, Runs, layout_of
from benchmarks.detectors.drifting import DAYS, Followed
from benchmarks.detectors.large_jobs import RANKS, labelled, periods
from diagnosis.irregularity.forest import ForestSettings, grown
from diagnosis.irregularity.samples import Samples
from offbeat import training
from producers.simulation.noise import DEFAULT_LARGE, NoiseProfile

Importances = Mapping[str, Mapping[str, float]]
"""How much each feature of a list told the forest apart by, largest first; they add up to 1."""


@dataclass(frozen=True, slots=True)
class LargeJob:
    """A job: as many faults to learn from as given, and half as many to judge, on one day or over a month."""

    seed: int
    faults: int
    followed: bool
    ranks: int = RANKS
    noise: NoiseProfile = DEFAULT_LARGE

    @property
    def days(self) -> tuple[int, ...]:
        """When it is judged."""
        return DAYS if self.followed else DAYS[:1]

    @property
    def faults_of_days(self) -> list[int]:
        """How many faults there are on the day to learn from, and on each to judge."""
        return [self.faults, *[max(self.faults // 2, 1)] * len(self.days)]

    @property
    def all_faults(self) -> int:
        """Faults in all."""
        return sum(self.faults_of_days)


@dataclass(frozen=True, slots=True)
class LargeScore:
    """How detectors did on a job; ``drift`` where it was followed."""

    compared: Compared
    importances: Importances
    drift: Followed | None


def run(job: LargeJob) -> LargeScore:
    """Have every detector learn and judge; raises ``InputError`` where there is too little to learn from."""
    asked = periods(job.seed, job.faults_of_days, [0, *job.days], job.ranks, job.noise)
    first, *later = (labelled(period) for period in asked)
    learned = [training.thinned(run, ForestSettings()) for run in first.of_faults]
    days = [(day.of_faults, day.levels) for day in later]
    return LargeScore(
        comparison.compared(layout_of(asked[0].scenario), first.of_faults, later[0].of_faults),
        {name: _importances(learned, names) for name, names in drifting.FEATURES.items()},
        drifting.followed(first.of_faults, first.levels, days) if job.followed else None,
    )


def told(scores: Sequence[LargeScore]) -> dict[str, Any]:
    """Figures over all jobs."""
    drift = [score.drift for score in scores if score.drift is not None]
    return {
        **comparison.told([score.compared for score in scores]),
        "importances": {name: _mean([score.importances[name] for score in scores]) for name in drifting.FEATURES},
        "drift": drifting.told(drift) if drift else None,
    }


def _importances(learned: Runs, features: tuple[str, ...]) -> dict[str, float]:
    """Decrease of impurity by feature, as scikit-learn tells it (figure 21c)."""
    parts = [part for run in learned for part in run]
    samples, abnormal = Samples.joined([part.samples for part in parts]), [part.abnormal for part in parts]
    forest = grown(samples, np.concatenate(abnormal), ForestSettings(features=features))
    return dict(zip(features, forest.feature_importances_.tolist(), strict=True))


def _mean(of_jobs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over jobs, largest first."""
    means = {name: float(np.mean([shares[name] for shares in of_jobs])) for name in of_jobs[0]}
    return {name: round(mean, 4) for name, mean in sorted(means.items(), key=lambda one: -one[1])}
