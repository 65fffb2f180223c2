"""Which communicators may have members that the log does not show: a rank without a log is in some of them.

Whoever takes part is told from who logged (communicator_use.py). Where a rank's log is missing, its communicators
look smaller than they are, and what its absence hides would be blamed on the others: a wait for it would pass
for a slow transfer. Communicators of one kind partition the ranks into groups of one size, and each group is a row,
a plane or more of the layout's grid, so that one which is smaller, or into which the missing ranks must fit, is known
to be in doubt. Who takes part there is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

import numpy as np

from diagnosis.communicator_use import CommunicatorUse
from diagnosis.job import Layout

Key = Callable[[CommunicatorUse], Hashable]

_FINER: tuple[Key, ...] = (
    lambda use: (use.ops, use.in_step),
    lambda use: use.largest_bytes.bit_length(),
    lambda use: round(use.calls).bit_length(),
)
"""What communicators of one kind have in common; the next one counts where those before put strangers together."""


def in_doubt(
    uses: Iterable[CommunicatorUse], seen: Collection[int], missing: Collection[int], layout: Layout | None = None
) -> frozenset[str]:
    """Communicators that may have more members than the log shows.

    ``seen`` are the ranks that logged, ``missing`` those that are known to exist and did not. Nobody communicates
    alone: a communicator of one is always in doubt.
    """
    collective = [use for use in uses if not use.point_to_point]
    found = {use.communicator for use in collective if len(use.ranks) == 1 or _lacks(use.ranks, missing, layout)}
    for kind in _kinds(collective, _FINER):
        largest = max(len(use.ranks) for use in kind)
        smaller = {use.communicator for use in kind if len(use.ranks) < largest}
        if missing and _may_hold(kind, largest, seen, missing):
            smaller = {use.communicator for use in kind}
        found |= smaller
    return frozenset(found)


def _lacks(ranks: Sequence[int], missing: Collection[int], layout: Layout | None) -> bool:
    """Whether the missing ranks would make a whole row, plane or more of the layout's grid of these."""
    if layout is None or not layout.world or max(ranks) >= layout.world:
        return False
    degrees = (layout.pp or 1, layout.dp or 1, layout.cp or 1, layout.tp or 1)  # Megatron's order, slowest first
    grid = np.arange(layout.world).reshape(degrees)
    places = np.unravel_index(ranks, degrees)
    spanned = [
        np.arange(degree) if len(set(at.tolist())) > 1 else at[:1] for at, degree in zip(places, degrees, strict=True)
    ]
    row = set(grid[np.ix_(*spanned)].ravel().tolist())
    return set() < row - set(ranks) <= set(missing)


def _kinds(uses: Sequence[CommunicatorUse], keys: Sequence[Key]) -> Iterable[list[CommunicatorUse]]:
    """Communicators by kind: no rank is in two of one kind, as far as the keys can tell."""
    if not keys:
        yield list(uses)
        return
    groups: dict[Hashable, list[CommunicatorUse]] = defaultdict(list)
    for use in uses:
        groups[keys[0](use)].append(use)
    for group in groups.values():
        ranks = [rank for use in group for rank in use.ranks]
        if len(ranks) == len(set(ranks)):
            yield group
        else:
            yield from _kinds(group, keys[1:])


def _may_hold(kind: Sequence[CommunicatorUse], size: int, seen: Collection[int], missing: Collection[int]) -> bool:
    """Whether missing ranks may be in the largest communicators of a kind too, of which ``size`` members are seen.

    Ranks that are missing beyond those that fill the smaller ones may have communicators of their own, if their
    number allows it and no larger size would fit as well. Of a single communicator that not every rank is in nobody
    knows how large it should be.
    """
    if len(kind) == 1 and len(kind[0].ranks) < len(seen):
        return True
    beyond = len(missing) - sum(size - len(use.ranks) for use in kind)
    larger = range(size + 1, size + beyond // len(kind) + 1)
    own_groups = [beyond - len(kind) * (fit - size) for fit in larger]
    return beyond % size != 0 or any(left % fit == 0 for left, fit in zip(own_groups, larger, strict=True))
