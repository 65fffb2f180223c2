"""The features that trained detectors look at (Holmes 4.2.2): an operator's own, its window's and its iteration's.

Those in ns are the paper's. The scale-free ones say the same relative to the iteration: what they learn on one job
holds on another, and next month, when everything takes longer. ``excess_share`` is the question itself: how much
of what the iteration lost did this operator lose?

The paper looks at a rank's own number as well, the scale-free list does not. A forest learns by it which rank was slow
in the logs that it was trained on, and in another job the number means something else; the rank's place in its
communicator takes its place (``place``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Bools, Floats
from diagnosis.irregularity.samples import Samples

VERSION = 1
"""Rises when a feature of the same name comes to mean something else: models of another version are refused."""

IN_NS = ("elapsed", "mean", "std", "q1", "q2", "q3", "iqr", "iteration", "iteration_mean")
"""What drifts with the job, and what tuning shifts."""

SCALE_FREE = (
    "z_score",
    "excess_share",
    "q1_excess_share",
    "q2_excess_share",
    "q3_excess_share",
    "std_share",
    "iqr_share",
    "elapsed_to_mean",
    "elapsed_to_iteration",
    "mean_to_iteration",
    "iteration_to_mean",
    "pattern",
    "phase",
    "place",
)

AS_PUBLISHED = ("elapsed", "mean", "std", "z_score", "q1", "q2", "q3", "iqr", "iteration", "rank", "size", "pattern")
"""The paper's list (4.2.2), with what its text adds: the operator's own duration, and the iteration's."""

EVERY = tuple(dict.fromkeys((*AS_PUBLISHED, *IN_NS, *SCALE_FREE)))

LISTS: Mapping[str, tuple[str, ...]] = {"scale_free": SCALE_FREE, "published": AS_PUBLISHED, "every": EVERY}
"""The lists by name."""

_LEAST_NS = 1.0
_LARGEST = 1e6
_LEAST_EXCESS = 1e-3
"""Of the usual iteration: an iteration that lost less is taken to have lost this much."""


def matrix(samples: Samples, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """The features of each operator; shape (n, len(names)), NaN where one is not known.

    Raises ``ValueError`` for a feature that there is not.
    """
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise ValueError(f"there is no feature {unknown[0]!r}; there are {', '.join(EVERY)}")
    columns = np.empty((len(samples), len(names)), dtype=np.float32)
    for at, name in enumerate(names):
        columns[:, at] = _COLUMNS[name](samples)
    return columns


def complete(features: npt.NDArray[np.float32]) -> Bools:
    """Which operators have every feature; shape (n,)."""
    return np.asarray(np.isfinite(features).all(axis=1), dtype=np.bool_)


def _excess(samples: Samples) -> Floats:
    """What the iteration lost, ns."""
    lost = samples.iteration_ns - samples.usual_iteration_ns
    return np.maximum(lost, _LEAST_EXCESS * samples.usual_iteration_ns)


def _share_beyond(usual: Callable[[Samples], Floats]) -> Callable[[Samples], Floats]:
    return lambda s: _ratio(s.duration_ns - usual(s), _excess(s))


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.clip(above / np.maximum(below, _LEAST_NS), -_LARGEST, _LARGEST)


_COLUMNS: dict[str, Callable[[Samples], npt.NDArray[np.generic]]] = {
    "elapsed": lambda s: s.duration_ns,
    "mean": lambda s: s.mean,
    "std": lambda s: s.std,
    "q1": lambda s: s.q1,
    "q2": lambda s: s.q2,
    "q3": lambda s: s.q3,
    "iqr": lambda s: s.q3 - s.q1,
    "iteration": lambda s: s.iteration_ns,
    "iteration_mean": lambda s: s.usual_iteration_ns,
    "rank": lambda s: s.rank,
    "size": lambda s: s.size,
    "pattern": lambda s: s.pattern,
    "phase": lambda s: s.phase,
    "place": lambda s: np.nan_to_num(s.place, nan=-1.0),
    "z_score": lambda s: _ratio(s.duration_ns - s.mean, s.std),
    "excess_share": _share_beyond(lambda s: s.mean),
    "q1_excess_share": _share_beyond(lambda s: s.q1),
    "q2_excess_share": _share_beyond(lambda s: s.q2),
    "q3_excess_share": _share_beyond(lambda s: s.q3),
    "std_share": lambda s: _ratio(s.std, _excess(s)),
    "iqr_share": lambda s: _ratio(s.q3 - s.q1, _excess(s)),
    "elapsed_to_mean": lambda s: _ratio(s.duration_ns, s.mean),
    "elapsed_to_iteration": lambda s: _ratio(s.duration_ns, s.iteration_ns),
    "mean_to_iteration": lambda s: _ratio(s.mean, s.usual_iteration_ns),
    "iteration_to_mean": lambda s: _ratio(s.iteration_ns, s.usual_iteration_ns),
}
