"""What Holmes' detector is measured against (5.1.1, appendix F): nearest neighbours, with PCA or without, and an SVM.

They look at the paper's features, or the forest's, scaled to unit variance, and learn from the same operators as the
forest does; a sigma rule (``SigmaDetector``) looks at the window alone. Both methods keep what they learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from diagnosis.arrays import Bools
from diagnosis.irregularity.features import AS_PUBLISHED, complete, matrix
from diagnosis.irregularity.operator_detector import judgeable
from diagnosis.irregularity.samples import Samples
from diagnosis.irregularity.training_set import ChoiceSettings, chosen

CHOICE = ChoiceSettings(most=20_000)

CHOICE_OF_SVM = ChoiceSettings(most=5_000)
"""The time to fit one grows with the square of the samples."""

NEIGHBOURS = 5
COMPONENTS = 5


@dataclass(frozen=True, slots=True)
class BaselineDetector:
    """A scikit-learn classifier over the features ``names``; made anew by ``make`` at each fit."""

    make: Callable[[], Any]
    names: tuple[str, ...] = AS_PUBLISHED
    choice: ChoiceSettings = CHOICE
    _fitted: Any = field(default=None, repr=False)

    def fit(self, samples: Samples, abnormal: Bools) -> Self:
        """Learn from labelled operators; raises ``ValueError`` where both kinds are not among them."""
        those = chosen(samples, abnormal, self.names, self.choice)
        return replace(self, _fitted=self.make().fit(matrix(samples.take(those), self.names), abnormal[those]))

    def predict(self, samples: Samples) -> Bools:
        """Which operators are abnormal; shape (n,). Raises ``ValueError`` before it was fitted."""
        if self._fitted is None:
            raise ValueError("the classifier was not fitted")
        features = matrix(samples, self.names)
        known = np.flatnonzero(judgeable(samples) & complete(features))
        abnormal = np.zeros(len(samples), dtype=np.bool_)
        if len(known):
            abnormal[known] = self._fitted.predict(features[known])
        return abnormal


def knn(names: tuple[str, ...] = AS_PUBLISHED) -> BaselineDetector:
    """The label of most of the nearest neighbours."""
    return BaselineDetector(lambda: _scaled(_neighbours()), names)


def knn_pca(names: tuple[str, ...] = AS_PUBLISHED) -> BaselineDetector:
    """The same among principal components."""

    def make() -> Any:
        from sklearn.decomposition import PCA

        return _scaled(PCA(COMPONENTS, random_state=0), _neighbours())

    return BaselineDetector(make, names)


def svm(names: tuple[str, ...] = AS_PUBLISHED) -> BaselineDetector:
    """A support vector machine with a radial kernel."""

    def make() -> Any:
        from sklearn.svm import SVC

        return _scaled(SVC(class_weight="balanced"))

    return BaselineDetector(make, names, CHOICE_OF_SVM)


def _neighbours() -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(NEIGHBOURS)


def _scaled(*steps: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), *steps)
