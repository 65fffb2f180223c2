"""Which of the spines that slow channels' traffic may take is slow (a step beyond Holmes 4.3.2).

Where routes were traced, few spines carry a channel, and others' channels over each of them tell: a slow one slows
them all. Where none were, all spines of an ECMP set are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from diagnosis.job import Job
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.topology import Device

Members = tuple[int, ...]
"""Ranks that share a channel."""


def culprit_spines(
    job: Job, leaves: Sequence[Leaf], slow_of: Mapping[Members, bool], comparable: float
) -> dict[Leaf, tuple[Device, ...]]:
    """The spines, one of which is slow, of each channel that is slow because of one.

    It is one that most of the leaves have in common, and of whose channels (``slow_of``: those that were looked at, and
    whether they are slow) the largest part is slow. What several spines may carry speaks for each of them as much less.
    Spines that come near to the first in both, to a part of ``comparable``, cannot be told from it, if they carry the
    same leaves. Leaves that have nothing in common with these are another spine's.
    """
    over = {leaf: job.spines_between(leaf.members) for leaf in leaves}
    looked_at = carried(map(job.spines_between, slow_of))
    slow = carried(job.spines_between(members) for members, is_slow in slow_of.items() if is_slow)
    named: dict[Leaf, tuple[Device, ...]] = {}
    left = [leaf for leaf in leaves if over[leaf]]
    while left:
        shared = carried(over[leaf] for leaf in left)
        most = comparable * max(shared.values())
        likely = [spine for spine, channels in shared.items() if channels >= most]
        shares = {spine: slow.get(spine, 0.0) / looked_at[spine] for spine in likely if spine in looked_at}
        largest = max(shares.values(), default=1.0)  # of what nobody looked at too: that is no evidence for it
        common = {spine for spine in likely if shares.get(spine, largest) >= comparable * largest}
        alike = _alike(common, [over[leaf] for leaf in left])
        of_it = [leaf for leaf in left if not alike.isdisjoint(over[leaf])]
        named |= dict.fromkeys(of_it, tuple(sorted(alike, key=lambda spine: spine.device)))
        left = [leaf for leaf in left if leaf not in named]
    return named


def _alike(common: Set[Device], over: Iterable[Sequence[Device]]) -> frozenset[Device]:
    """Those spines that the first channel over any of them may take, and that others which it shares with may."""
    sets = [own for spines in over if (own := common & {*spines})]
    alike = frozenset(sets[0])
    for _ in sets:
        alike = alike.union(*(own for own in sets if own & alike))
    return alike


def carried(channels: Iterable[Sequence[Device]]) -> Mapping[Device, float]:
    """How many channels each switch carries; of one that several may carry an equal part."""
    total: dict[Device, float] = defaultdict(float)
    for over in channels:
        for switch in over:
            total[switch] += 1 / len(over)
    return total
