"""Whether a rank that computes for long had more to compute: routing of tokens to experts (Pulse 7.2.4, 7.2.6).

What a rank computes between dispatch and combine grows with the bytes that it gets in the dispatch. A rank that
computes for longer than one that got at least as much is slow; one whose time is explained by its bytes is a hot
expert, and no device is at fault.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Floats
from diagnosis.collective.chronological import Late, comparable, on_grid
from diagnosis.collective.grid import Grid
from diagnosis.collective.participation import UNKNOWN, UNKNOWN_STATE, Participation

_LIKE = 0.1
"""Share of the volume by which what a rank sends back may differ from what it got."""


@dataclass(frozen=True, slots=True, eq=False)
class TrafficMap:
    """Who sent what to whom in one custom collective: ``sent`` of shape (ranks, ranks), source by destination, bytes
    between hosts."""

    sent: Floats

    @property
    def received(self) -> Floats:
        """Bytes that each rank got; shape (ranks,)."""
        return np.asarray(self.sent.sum(axis=0))

    @classmethod
    def of(cls, grid: Grid, table: Participation, at: int) -> TrafficMap:
        """The map of one of the grid's operators."""
        sent = np.zeros((len(grid.rank), len(grid.rank)))
        for source, row in enumerate(grid.row[:, at].tolist()):
            if row != UNKNOWN:
                peers = table.peers(row)
                to = np.searchsorted(grid.rank, table.peer[peers])
                known = (to < len(grid.rank)) & (grid.rank[np.minimum(to, len(grid.rank) - 1)] == table.peer[peers])
                np.add.at(sent[source], to[known], table.peer_sent[peers][known])
        return cls(sent)


def combines(grid: Grid, table: Participation) -> Bools:
    """Which custom collectives bring back what the one before has brought: a combine after its dispatch.

    What goes both ways alike, as between neighbours, is neither: every exchange is like the one before. Who was not
    seen in one of the two does not count.
    """
    found = np.zeros(len(grid.instance), dtype=np.bool_)
    maps = [TrafficMap.of(grid, table, at) for at in range(len(grid.instance))]
    for at in range(1, len(maps)):
        if grid.custom[at] and grid.custom[at - 1] and not found[at - 1]:
            both = np.flatnonzero((grid.state[:, at - 1 : at + 1] != UNKNOWN_STATE).all(axis=1))
            sent, before = (maps[own].sent[np.ix_(both, both)] for own in (at, at - 1))
            found[at] = _alike(sent, before.T) and not _alike(sent, before)
    return found


def _alike(sent: Floats, other: Floats) -> bool:
    volume = float(other.sum())
    return volume > 0 and float(np.abs(sent - other).sum()) <= _LIKE * volume


def explained(grid: Grid, table: Participation, computed_ns: Floats, back: Bools, late: Late, share: float) -> bool:
    """Whether what a late rank computed before the combines ``back`` is explained by what it got in the dispatches.

    It is not where another rank got at least as much and computed for less, by more than ``share``; as far as was seen
    of both.
    """
    computed = on_grid(grid, computed_ns)
    told, known = comparable(computed, back)
    received = np.zeros(len(computed))
    for at in np.flatnonzero(known).tolist():
        received += TrafficMap.of(grid, table, at - 1).received
    total = computed[:, known].sum(axis=1)
    own = int(np.searchsorted(grid.rank, late.rank))
    as_much = told & (received >= received[own]) & (np.arange(len(total)) != own)
    return not bool((total[own] > (1 + share) * total[as_much]).any())
