"""Whether slow channels have nothing but spines in common, and which of these is slow (a step beyond Holmes 4.3.2).

Where routes were traced, few spines carry a channel, and others' channels over each of them tell: a slow one slows
them all. Where none were, all spines of an ECMP set are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from diagnosis.job import Job
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.switch_settings import SwitchSettings
from diagnosis.topology import Device

Members = tuple[int, ...]
"""Ranks that share a channel."""


def with_spines_alone_in_common(
    job: Job, leaves: Sequence[Leaf], slow_of: Mapping[Members, bool], settings: SwitchSettings
) -> list[Leaf]:
    """Slow channels all over the fabric that have a spine in common, where enough of them share nothing else: it is
    likelier that this one is slow than that several NICs are at once. Beside the leaves count slow channels that no
    other spine can have slowed. Where one spine explains all that is slow, it is likelier than two slow ToRs.
    """
    over = {leaf: job.spines_between(leaf.members) for leaf in leaves}
    slow = {leaf.members for leaf in leaves} | {members for members, is_slow in slow_of.items() if is_slow}
    leaves = [leaf for leaf in leaves if over[leaf] and all(map(job.tors, leaf.members))]
    cleared = _cleared(job, slow_of, settings)
    slowed_by: dict[Device, list[Members]] = {}
    for members in (members for members, is_slow in slow_of.items() if is_slow):
        if len(spines := {*job.spines_between(members)} - cleared) == 1:
            slowed_by.setdefault(spines.pop(), []).append(members)
    common = set[Device]()
    for spine in {spine for leaf in leaves for spine in over[leaf]}:
        channels = [leaf.members for leaf in leaves if spine in over[leaf]] + slowed_by.get(spine, [])
        least = settings.least_apart
        if _apart(job, channels, cleared) >= least or _explains_all(job, spine, slow, cleared, least):
            common.add(spine)
    return [leaf for leaf in leaves if not common.isdisjoint(over[leaf])]


def _cleared(job: Job, slow_of: Mapping[Members, bool], settings: SwitchSettings) -> set[Device]:
    """The ToRs, and the spines that channels were traced over, too few of whose channels are slow for it to be slow.

    What crosses several ToRs tells of each of them as much less.
    """

    def crossed(channels: Iterable[Members]) -> Mapping[Device, float]:
        above = (([*_tors(job, members)], job.spines_between(members)) for members in channels)
        return _carried(part for tors, spines in above for part in (tors, spines if len(spines) == 1 else ()))

    slow = crossed(members for members, is_slow in slow_of.items() if is_slow)
    return {
        device
        for device, looked_at in crossed(slow_of).items()
        if slow.get(device, 0.0) < settings.slow_share * looked_at
    }


def _tors(job: Job, members: Members) -> set[Device]:
    return {tor for rank in members for tor in job.tors(rank)}


def _explains_all(job: Job, spine: Device, slow: Set[Members], cleared: Set[Device], least: int) -> bool:
    """Whether no other spine may carry all that is slow: enough channels, no two of which share a NIC, and not all a
    ToR. One that several spines may carry counts as much less.
    """
    over = [job.spines_between(members) for members in slow]
    if spine in cleared or set[Device].intersection(*map(set, over)) != {spine}:
        return False
    tors = {tor for members in slow for tor in _tors(job, members)}
    enough = min(_apart(job, slow, tors), sum(1 / len(spines) for spines in over)) >= least
    return enough and _apart(job, slow, cleared) > 1


def _apart(job: Job, channels: Iterable[Members], cleared: Set[Device]) -> int:
    """How many channels there are no two of which share a NIC, or a ToR that may be slow."""
    below, apart = set[Device](), 0
    for members in sorted(channels, key=len):  # of small ones more are apart
        own = {nic for rank in members for nic in job.nics(rank)} | _tors(job, members) - cleared
        if below.isdisjoint(own):
            below |= own
            apart += 1
    return apart


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
    looked_at = _carried(map(job.spines_between, slow_of))
    slow = _carried(job.spines_between(members) for members, is_slow in slow_of.items() if is_slow)
    named: dict[Leaf, tuple[Device, ...]] = {}
    left = [leaf for leaf in leaves if over[leaf]]
    while left:
        shared = _carried(over[leaf] for leaf in left)
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


def _carried(channels: Iterable[Sequence[Device]]) -> Mapping[Device, float]:
    """How many channels each switch carries; of one that several may carry an equal part."""
    total: dict[Device, float] = defaultdict(float)
    for over in channels:
        for switch in over:
            total[switch] += 1 / len(over)
    return total
