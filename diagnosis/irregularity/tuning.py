"""Tuning a forest again and again while its job runs (Holmes 4.2.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from diagnosis.irregularity.drift import WEEK_NS, Levels, Statistic
from diagnosis.irregularity.forest import ForestDetector


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """``statistic`` of each feature says how far it has moved; the mean suffers least from irregular iterations
    (appendix E). The forest is tuned once in ``interval_ns``.
    """

    statistic: Statistic = "mean"
    interval_ns: int = WEEK_NS


@dataclass
class TunedForest:
    """A forest that learned at ``tuned_ns`` and has been tuned since, each time from where it stood."""

    forest: ForestDetector
    tuned_ns: int
    settings: TuningSettings = field(default_factory=TuningSettings)

    def at(self, now_ns: int, levels: Levels) -> ForestDetector:
        """The forest to judge by, tuned to the levels if the last time is an interval ago.

        Raises ``ValueError`` for a forest that cannot be tuned (``ForestDetector.tuned``).
        """
        if now_ns - self.tuned_ns >= self.settings.interval_ns:
            self.forest = self.forest.tuned(levels, self.settings.statistic)
            self.tuned_ns = now_ns
        return self.forest
