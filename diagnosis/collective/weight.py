"""How much of an iteration a verdict, or communication, accounts for: what costs next to nothing does not slow it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagnosis.arrays import Floats
from diagnosis.collective.grid import Grid, Usual, kind_of
from diagnosis.collective.verdict import Verdict


def lost_ns(verdict: Verdict, own: Sequence[Grid], usual: Usual | None, iterations: int = 1) -> float:
    """What the culprits of a verdict cost an iteration.

    A late start costs what it is late. A communication costs what its operators take longer than usual or, where
    nothing usual is known, than they would if their straggler were as fast as the others, or the hosts of their group.
    ``own``: the grids of the rows that were compared, of as many ``iterations``. What showed the same culprits
    elsewhere adds to it, and for how long the sends of a busy host were silent.
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
        # a group that sends for longer may wait for a straggler that does not stand out yet
        of_group = verdict.evidence.get("duration_ratio", 1.0) if verdict.cause == "host_slow" else 1.0
        ratio = verdict.evidence.get("ratio", of_group)
        lost = duration * (1.0 - min(ratio, 1.0 / max(ratio, 1e-9)))
    else:
        known = (usual.duration.get(kind_of(chosen, at), np.nan) for at in range(len(chosen.instance)))
        lost = np.nan_to_num(duration - np.fromiter(known, dtype=np.float64), nan=0.0)
    return (float(np.maximum(lost, 0.0).sum()) + verdict.evidence.get("silence_ns", 0.0)) / iterations


def prolonged_ns(own: Sequence[Grid], usual: Usual | None) -> float:
    """What communication has lost, on the communicator that lost most.

    Built-in collectives: by how much they have grown beyond what is usual, of the member that waited least. Custom
    ones: by how much one member really sends for longer than it usually does for as many bytes, or where that is not
    known, for longer than the others; where one begins late, all others wait for it.
    """
    most = 0.0
    for grid in own:
        built_in, custom = grid.choose(grid.complete & ~grid.custom), grid.choose(grid.complete & grid.custom)
        if len(built_in.instance) and usual is not None:
            known = [usual.duration.get(kind_of(built_in, at), np.nan) for at in range(len(built_in.instance))]
            most = max(most, float(np.nansum(np.nanmin(built_in.duration, axis=0) - np.array(known))))
        if len(custom.instance):
            most = max(most, float(np.nansum(_sent_for_longer(custom, usual), axis=1).max()))
    return most


def _sent_for_longer(custom: Grid, usual: Usual | None) -> Floats:
    """By how much ranks sent for longer in custom collectives; shape (ranks, instances)."""
    known = [] if usual is None else [usual.rate.get((custom.communicator, int(rank)), np.nan) for rank in custom.rank]
    if not known or np.isnan(known).all():
        return np.asarray(custom.duration - np.nanmedian(custom.duration, axis=0))
    return np.asarray(custom.actual - custom.sent / np.array(known)[:, None] * 1e9)
