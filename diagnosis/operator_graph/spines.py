"""Which of the spines that slow channels' traffic may take is slow (a step beyond Holmes 4.3.2).

Where routes were traced, few spines carry a channel, and others' channels over each of them tell: a slow one slows
them all. Where none were, all spines of an ECMP set are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from diagnosis.job import Job
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.topology import Device

Members = tuple[int, ...]
"""Ranks that share a channel."""


def culprit_spines(
    job: Job, leaves: Sequence[Leaf], slow_of: Mapping[Members, bool], comparable: float
) -> dict[Leaf, tuple[Device, ...]]:
    """The spines, one of which is slow, of each channel that is slow because of one.

    It is one that most of the leaves have in common; and of the channels that it carries (``slow_of``: those that were
    looked at, and whether they are slow) most are slow. Spines that come near to the first in both, to a part of
    ``comparable``, cannot be told from it. Leaves that have nothing in common with these are another spine's.
    """
    over = {leaf: job.spines_between(leaf.members) for leaf in leaves}
    known = {members: frozenset(job.spines_between(members)) for members in slow_of}
    named: dict[Leaf, tuple[Device, ...]] = {}
    left = [leaf for leaf in leaves if over[leaf]]
    while left:
        crossed = Counter(spine for leaf in left for spine in over[leaf])
        most = comparable * max(crossed.values())
        shares = {
            spine: _slow_share([slow for members, slow in slow_of.items() if spine in known[members]])
            for spine, times in crossed.items()
            if times >= most
        }
        least = comparable * max(shares.values())
        common = tuple(sorted((spine for spine, share in shares.items() if share >= least), key=lambda d: d.device))
        of_it = [leaf for leaf in left if not set(common).isdisjoint(over[leaf])]
        named |= dict.fromkeys(of_it, common)
        left = [leaf for leaf in left if leaf not in named]
    return named


def _slow_share(slow: Sequence[bool]) -> float:
    """Part of channels that are slow; 1 where none was looked at but those that are asked about."""
    return sum(slow) / len(slow) if slow else 1.0
