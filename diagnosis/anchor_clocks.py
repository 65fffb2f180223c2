"""Clocks that are iterations apart, told by how long iterations take: ranks that train in lockstep share that.

Where clocks are less than about half an iteration apart, what is close in time belongs together. Else the anchors of
one rank are laid upon those of another as they lie closest: no two iterations take equally long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Floats, Ints

_NEAR = 0.5
"""Iterations by which clocks may be apart, with what lies between anchors, for times to be compared as they are."""

_CLEARLY = 0.5
"""As far apart, at most, must anchors lie with another offset as they do with the best of these."""

_MOST = 0.75
"""Part of the anchors that are compared; ranks log the same time, so that about all have one to lie upon."""

_SAMPLE = 128
"""Anchors that are laid upon the others, from the middle of the log."""

_FARTHEST = 64
"""Iterations by which clocks may be apart at most."""

_LEAST = 8
"""Fewer anchors tell nothing."""


class Ahead(NamedTuple):
    """By how many ns one clock is ahead of another, where these are iterations apart; 0: they are not, or nobody knows.
    ``doubt`` is how far anchors lie apart then, over how far they would with clocks that are apart, or not: 1 at most.
    """

    ns: int
    doubt: float


def far_ahead(here_ns: Ints, there_ns: Ints) -> Ahead:
    """How far a clock is ahead, by when two ranks passed their anchors: each by its own clock, ascending."""
    if min(len(here_ns), len(there_ns)) < _LEAST:
        return Ahead(0, 1.0)
    usual_ns = float(np.median(np.diff(here_ns)))
    middle = len(there_ns) // 2
    some = there_ns[[middle // 2, middle, middle + middle // 2]]  # the other one may have lost what belongs to one
    offsets = (some[:, None] - here_ns).ravel()
    offsets = offsets[np.abs(offsets) <= _FARTHEST * usual_ns]
    sample = there_ns[max(middle - _SAMPLE // 2, 0) : middle + _SAMPLE // 2]
    apart = np.array([_apart(here_ns, sample - offset, usual_ns) for offset in offsets.tolist()])
    near = np.abs(offsets) < _NEAR * usual_ns
    best_near, best_far = apart[near].min(initial=np.inf), apart[~near].min(initial=np.inf)
    if best_far < _CLEARLY * best_near:
        return Ahead(int(offsets[~near][apart[~near].argmin()]), float(best_far / best_near))
    return Ahead(0, float(min(best_near / best_far, 1.0)) if 0 < best_far < np.inf else 1.0)


def _apart(here_ns: Ints, there_ns: Ints, usual_ns: float) -> float:
    """How far most anchors lie from the nearest ones of another rank, in the mean; infinite where few have any."""
    inside = (there_ns >= here_ns[0] - usual_ns / 2) & (there_ns <= here_ns[-1] + usual_ns / 2)
    if np.count_nonzero(inside) < _MOST * len(there_ns):
        return float("inf")
    there_ns = there_ns[inside]
    after = np.clip(np.searchsorted(here_ns, there_ns), 1, len(here_ns) - 1)
    distances: Floats = np.minimum(np.abs(there_ns - here_ns[after - 1]), np.abs(here_ns[after] - there_ns)).astype(
        np.float64
    )
    return float(np.sort(distances)[: int(_MOST * len(there_ns))].mean())  # what is lost lies next to nothing
