"""Which operators last longer than they usually do (Holmes 4.2.2): the common shape, and the simplest detector.

Every detector shares ``fit`` and ``predict``, so that the search takes any of them. What an operator usually lasts
comes with the samples; what a detector learns from labelled ones is how much longer is abnormal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from diagnosis.arrays import Bools
from diagnosis.irregularity.samples import Samples

LEAST_SAMPLES = 3
"""An operator seen less often has no usual duration; it is never called abnormal."""


class OperatorDetector(Protocol):
    """Learns from labelled operators, tells abnormal ones."""

    def fit(self, samples: Samples, abnormal: Bools) -> Self:
        """Learn from operators of which it is known, shape (n,), whether they are abnormal."""
        ...

    def predict(self, samples: Samples) -> Bools:
        """Which operators are abnormal, shape (n,); what cannot be judged (``judgeable``) is not."""
        ...


def judgeable(samples: Samples) -> Bools:
    """Which operators have a duration and a usual one; shape (n,)."""
    return np.asarray((samples.count >= LEAST_SAMPLES) & ~np.isnan(samples.duration_ns), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class SigmaDetector:
    """Abnormal: beyond the mean by ``sigmas`` standard deviations of the operator's own window.

    Holmes' appendix F calls mu +- 1 sigma its 3-sigma rule; only the upper side says that an operator lasted long.
    """

    sigmas: float = 3.0

    def fit(self, samples: Samples, abnormal: Bools) -> Self:
        """Nothing is learned: the rule needs no labels."""
        return self

    def predict(self, samples: Samples) -> Bools:
        """Which of the operators exceed the limit of their window; shape (n,)."""
        limit = np.where(judgeable(samples), samples.mean + self.sigmas * samples.std, np.inf)
        return np.asarray(np.nan_to_num(samples.duration_ns, nan=-np.inf) > limit, dtype=np.bool_)
