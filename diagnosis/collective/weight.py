"""How much of an iteration a verdict accounts for: what costs next to nothing is not why an iteration is slow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagnosis.collective.grid import Grid, Usual, kind_of
from diagnosis.collective.verdict import Verdict


def lost_ns(verdict: Verdict, own: Sequence[Grid], usual: Usual | None, iterations: int = 1) -> float:
    """What the culprits of a verdict cost an iteration.

    A late start costs what it is late. A communication costs what its operators take longer than usual or, where
    nothing usual is known, than they would if their straggler were as fast as the others. ``own``: the grids of the
    rows that were compared, of as many ``iterations``. What showed the same culprits elsewhere adds to it, and for how
    long the sends of a busy host were silent.
    """
    return sum(_lost_ns(one, own, usual, iterations) for one in (verdict, *verdict.weaker))


def _lost_ns(verdict: Verdict, own: Sequence[Grid], usual: Usual | None, iterations: int) -> float:
    told = verdict.evidence.get("lost_ns", verdict.evidence.get("late_ns"))
    if told is not None:
        return told
    grid = next((grid for grid in own if grid.communicator == verdict.communicator), None)
    if grid is None:
        return 0.0
    custom = verdict.method in {"actual_rate", "rate_to_peer"}
    chosen = grid.choose(grid.complete & (grid.custom == custom))
    if not len(chosen.instance) or not len(chosen.rank):
        return 0.0
    duration = np.nanmedian(chosen.duration, axis=0)
    if custom or usual is None:
        ratio = verdict.evidence.get("ratio", 1.0)
        lost = duration * (1.0 - min(ratio, 1.0 / max(ratio, 1e-9)))
    else:
        known = (usual.duration.get(kind_of(chosen, at), np.nan) for at in range(len(chosen.instance)))
        lost = np.nan_to_num(duration - np.fromiter(known, dtype=np.float64), nan=0.0)
    return (float(np.maximum(lost, 0.0).sum()) + verdict.evidence.get("silence_ns", 0.0)) / iterations
