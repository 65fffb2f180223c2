"""Tuning a forest again and again while its job runs (Holmes 4.2.2).

As published it is tuned once a week (``TunedForest``). A search tunes it whenever it asks it, an interval of zero:
shifts add up, so that the forest that was trained, moved by all that the job has drifted since, is the one that weekly
tunings would have made by then. Between them theirs stands still, which a search would have to remember: what it names
would then hang on which searches came before it, and a restart or a replay from further on would name others under the
same ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from diagnosis.irregularity.drift import Levels, Statistic
from diagnosis.irregularity.features import IN_NS
from diagnosis.irregularity.forest import ForestDetector
from diagnosis.irregularity.operator_detector import OperatorDetector
from diagnosis.irregularity.window import WindowStatistics

WEEK_NS = 7 * 86_400 * 10**9


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


def tuning_by(detector: OperatorDetector, statistic: Statistic | None) -> OperatorDetector:
    """The detector, to be tuned by a statistic, None: not at all; one that is no forest as it is."""
    return replace(detector, tuned_by=statistic) if isinstance(detector, ForestDetector) else detector


def is_tunable(detector: OperatorDetector) -> bool:
    """Whether a detector is to be tuned, looks at features that drift, and knows where they stood when it learned."""
    return (
        isinstance(detector, ForestDetector)
        and detector.tuned_by is not None
        and detector.levels is not None
        and not set(detector.settings.features).isdisjoint(IN_NS)
    )


def tuned_to(detector: OperatorDetector, usual: WindowStatistics, usual_iteration_ns: float) -> OperatorDetector:
    """The detector, tuned to what operators and iterations usually last now; one that is not tunable as it is.

    ``usual`` is of the pivots. Where it is empty, or the forest has no levels of these ranks (as one of the pivots told
    nothing of the iteration), nothing is tuned.
    """
    if not is_tunable(detector) or not len(usual) or not np.isfinite(usual_iteration_ns):
        return detector
    assert isinstance(detector, ForestDetector)
    assert detector.levels is not None
    assert detector.tuned_by is not None
    now = Levels.of_usual(usual, usual_iteration_ns)
    then = detector.levels.of_ranks(now.ranks)
    return detector if then is None else replace(detector, levels=then).tuned(now, detector.tuned_by)
