"""What trained detectors learn from: of the labelled operators those that tell most.

Nearly all operators of an irregular iteration are normal, and plainly so. Of these a few at random are enough; those
that lost much and are normal all the same show where the border runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.irregularity.features import complete, matrix
from diagnosis.irregularity.operator_detector import judgeable
from diagnosis.irregularity.samples import Samples


@dataclass(frozen=True, slots=True)
class ChoiceSettings:
    """Beside each abnormal operator the ``hard`` normal ones that lost most, and ``other`` ones at random.

    More than ``most`` are thinned out at random.
    """

    hard: int = 3
    other: int = 3
    most: int = 200_000
    seed: int = 0


def chosen(samples: Samples, abnormal: Bools, names: tuple[str, ...], settings: ChoiceSettings) -> Ints:
    """Which operators to learn from, ascending, of shape (n,); ``names`` are the features that they must have.

    Raises ``ValueError`` where normal and abnormal ones are not both among them.
    """
    if abnormal.shape != samples.duration_ns.shape:
        raise ValueError(f"{len(samples)} operators have labels of shape {abnormal.shape}")
    usable = judgeable(samples) & complete(matrix(samples, names))
    positive, normal = np.flatnonzero(usable & abnormal), np.flatnonzero(usable & ~abnormal)
    if not len(positive) or not len(normal):
        raise ValueError(
            "a detector learns from both: "
            f"of {usable.sum()} operators that can be judged, {len(positive)} are labelled abnormal"
        )
    excess = matrix(samples.take(normal), ("excess_share",))[:, 0]
    by_excess = normal[np.argsort(-excess, kind="stable")]
    hard, rest = np.split(by_excess, [min(settings.hard * len(positive), len(normal))])
    draws = np.random.default_rng(settings.seed)
    other = draws.choice(rest, min(settings.other * len(positive), len(rest)), replace=False)
    every = np.sort(np.concatenate([positive, hard, other]))
    if len(every) > settings.most:
        every = np.sort(draws.choice(every, settings.most, replace=False))
    return every
