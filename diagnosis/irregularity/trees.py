"""Decision trees as flat arrays, walked by all samples at once.

All samples at a node go on together, to one side or the other, so that a node costs a few calls whatever the number
of samples; most operators are plainly normal and share their way. As arrays the trees can be stored as data, read
without the library that grew them, and tuned. The answer is the library's, but for rounding in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Floats

LEAF = -1


@dataclass(frozen=True, slots=True)
class Trees:
    """A forest; arrays of shape (nodes,) but for ``root``, (trees,), the node at which each tree begins.

    At a node a sample goes to ``left`` if its ``feature`` is at most ``threshold``, else to the node after
    ``left``; ``feature`` is ``LEAF`` at a leaf, which says that a share of ``abnormal`` is abnormal.
    Children come after their parent, so every walk ends. Raises ``ValueError`` for arrays that are no such trees.
    """

    root: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    threshold: Floats
    left: npt.NDArray[np.int32]
    abnormal: Floats

    def __post_init__(self) -> None:
        nodes = len(self.feature)
        if any(array.shape != (nodes,) for array in (self.threshold, self.left, self.abnormal)) or not nodes:
            raise ValueError("the arrays of the trees differ in length, or are empty")
        if self.root.ndim != 1 or not len(self.root) or self.root.min() < 0 or self.root.max() >= nodes:
            raise ValueError("a tree begins at a node that there is not")
        if self.feature.min() < LEAF or not (np.abs(self.threshold) <= np.finfo(np.float32).max).all():
            raise ValueError("a node compares what there is not")
        inner = np.flatnonzero(self.feature != LEAF)
        if len(inner) and ((self.left[inner] <= inner).any() or self.left[inner].max() + 1 >= nodes):
            raise ValueError("a node's children do not come after it")
        if not ((self.abnormal >= 0) & (self.abnormal <= 1)).all():
            raise ValueError("a share of abnormal samples lies outside 0 to 1")

    @classmethod
    def of(cls, forest: Any) -> Self:
        """The trees of a fitted scikit-learn forest whose second class is the abnormal one."""
        parts = [_breadth_first(estimator.tree_) for estimator in forest.estimators_]
        begins = np.cumsum([0, *(len(part[0]) for part in parts)])
        feature, threshold, left, abnormal = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        left = left + np.repeat(begins[:-1], np.diff(begins))
        return cls(begins[:-1].astype(np.int32), feature.astype(np.int16), threshold, left.astype(np.int32), abnormal)

    @property
    def features(self) -> int:
        """How many features the trees need at least."""
        return int(self.feature.max()) + 1

    def probability(self, samples: npt.NDArray[np.float32]) -> Floats:
        """Mean share of abnormal samples in the leaves that each sample reaches; shape (n,), samples (n, features).

        Raises ``ValueError`` for too few features.
        """
        if samples.ndim != 2 or samples.shape[1] < self.features:
            raise ValueError(f"the trees need {self.features} features, the samples have shape {samples.shape}")
        columns = np.ascontiguousarray(samples.T)
        threshold = _rounded_down(self.threshold)
        feature, left, abnormal = self.feature.tolist(), self.left.tolist(), self.abnormal.tolist()
        total = np.zeros(len(samples))
        ahead = [(root, np.arange(len(samples))) for root in self.root.tolist()]
        while ahead:
            node, here = ahead.pop()
            if feature[node] == LEAF:
                total[here] += abnormal[node]
                continue
            beyond = columns[feature[node]].take(here) > threshold[node]
            for child, those in ((left[node], here[~beyond]), (left[node] + 1, here[beyond])):
                if len(those):
                    ahead.append((child, those))
        return total / len(self.root)

    def shifted(self, shift: Floats) -> Self:
        """The trees with every node's threshold moved by the shift of its feature; shape (features,)."""
        moved = self.threshold.copy()
        inner = self.feature != LEAF
        moved[inner] += np.asarray(shift, dtype=np.float64)[self.feature[inner]]
        return replace(self, threshold=moved)


def _rounded_down(threshold: Floats) -> npt.NDArray[np.float32]:
    """The largest float32 that is not above: a float32 is at most the one exactly if it is at most the other."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


def _breadth_first(tree: Any) -> tuple[npt.NDArray[Any], Floats, npt.NDArray[Any], Floats]:
    """Feature, threshold, left child and share of one tree, renumbered so that siblings lie side by side."""
    order = [0]
    left = []
    for node in order:  # grows while it is gone through
        first = int(tree.children_left[node])
        left.append(len(order) if first >= 0 else 0)
        if first >= 0:
            order += [first, int(tree.children_right[node])]
    nodes = np.array(order)
    leaf = tree.children_left[nodes] < 0
    feature = np.where(leaf, LEAF, tree.feature[nodes])
    threshold = np.where(leaf, 0.0, tree.threshold[nodes])
    value = tree.value[nodes, 0, :]
    return feature, threshold, np.array(left), value[:, 1] / value.sum(axis=1)
