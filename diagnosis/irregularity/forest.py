"""The random forest that tells abnormal operators (Holmes 4.2.2), with its tuning against drift.

It is grown with scikit-learn and kept as arrays (``trees``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

from diagnosis.arrays import Bools, Floats
from diagnosis.irregularity.drift import Levels, Statistic
from diagnosis.irregularity.features import SCALE_FREE, complete, matrix
from diagnosis.irregularity.operator_detector import judgeable
from diagnosis.irregularity.samples import Samples
from diagnosis.irregularity.training_set import ChoiceSettings, chosen
from diagnosis.irregularity.trees import Trees


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """How a forest is grown; an operator is abnormal from a probability of ``abnormal_from`` on."""

    features: tuple[str, ...] = SCALE_FREE
    criterion: Literal["gini", "entropy"] = "gini"
    trees: int = field(default=40, metadata={"least": 1})
    least_in_leaf: int = field(default=5, metadata={"least": 1})
    most_leaves: int = field(default=256, metadata={"least": 2})
    features_at_split: float = field(default=0.4, metadata={"above": 0, "most": 1})
    abnormal_from: float = field(default=0.5, metadata={"above": 0, "most": 1})
    seed: int = 0
    choice: ChoiceSettings = field(default_factory=ChoiceSettings)


def grown(samples: Samples, abnormal: Bools, settings: ForestSettings) -> Any:
    """The scikit-learn forest of labelled operators; ``abnormal`` has shape (n,).

    Raises ``ValueError`` where both kinds of operators are not among them.
    """
    from sklearn.ensemble import RandomForestClassifier

    those = chosen(samples, abnormal, settings.features, settings.choice)
    forest = RandomForestClassifier(
        n_estimators=settings.trees,
        criterion=settings.criterion,
        min_samples_leaf=settings.least_in_leaf,
        max_leaf_nodes=settings.most_leaves,
        max_features=settings.features_at_split,
        random_state=settings.seed,
    )
    return forest.fit(matrix(samples.take(those), settings.features), abnormal[those])


@dataclass(frozen=True, slots=True)
class ForestDetector:
    """Abnormal: what the forest says is. Not fitted until ``trees`` are there.

    ``levels`` are those of the job that it was trained on; without them it cannot be tuned. ``tuned_by`` is the
    statistic by which a search tunes it; None: not at all.
    """

    settings: ForestSettings = field(default_factory=ForestSettings)
    trees: Trees | None = None
    levels: Levels | None = None
    tuned_by: Statistic | None = "mean"

    def fit(self, samples: Samples, abnormal: Bools) -> Self:
        """Grow the forest from labelled operators; ``abnormal`` has shape (n,).

        Raises ``ValueError`` where both kinds of operators are not among them.
        """
        return replace(self, trees=Trees.of(grown(samples, abnormal, self.settings)))

    def predict(self, samples: Samples) -> Bools:
        """Which operators are abnormal; shape (n,). Raises ``ValueError`` before it was fitted."""
        return np.asarray(self.probability(samples) >= self.settings.abnormal_from, dtype=np.bool_)

    def probability(self, samples: Samples) -> Floats:
        """How sure the forest is that each operator is abnormal, 0 to 1; 0 where it cannot be judged."""
        if self.trees is None:
            raise ValueError("the forest was not fitted; fit it, or load a trained model")
        features = matrix(samples, self.settings.features)
        known = np.flatnonzero(judgeable(samples) & complete(features))
        probability = np.zeros(len(samples))
        probability[known] = self.trees.probability(features[known])
        return probability

    def tuned(self, now: Levels, statistic: Statistic = "mean") -> Self:
        """The forest with all thresholds of each feature in ns moved by as much as the feature's level has moved.

        Raises ``ValueError`` where it was not fitted or its levels are not known.
        """
        if self.trees is None or self.levels is None:
            raise ValueError("a forest is tuned from the levels that it was trained at; it carries none")
        moved = now.shift_since(self.levels, statistic)
        shift = np.array([moved.get(name, 0.0) for name in self.settings.features])
        return replace(self, trees=self.trees.shifted(shift), levels=now)
