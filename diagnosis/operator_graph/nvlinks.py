"""Channels across hosts that a host's slow NVLinks slow as well (a step beyond Holmes 4.3.2).

A ring enters a host by a NIC, passes from member to member over NVLinks, and leaves by another NIC. Where nothing tells
the NICs of its members apart, what the members transfer within their hosts may tell that it is NVLinks. Where the same
search ends at NVLinks that it crosses, and these lost more, it is slow with them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from diagnosis.job import Job
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operator_graph.separation import Separation, SeparationSettings, Transfers, transfers


def slow_links(
    logs: Logs,
    channels: Iterable[tuple[Leaf, Separation]],
    baseline: Sequence[int],
    settings: SeparationSettings,
) -> Generator[Needs, Answer, dict[Leaf, tuple[int, ...]]]:
    """Of each channel across hosts whose members nothing told apart the members on the only host whose NVLinks, which
    carry traffic between several of them, are slow for others too; channels of which there is no such host are left
    out.
    """
    job = logs.job
    mates_of = {leaf: _mates(job, leaf.members) for leaf, of in channels if not (of.ranks or of.points_to)}
    telling = {rank: at_home(job, rank) for hosts in mates_of.values() for mates in hosts for rank in mates}
    names = sorted({name for names in telling.values() for name in names})
    if not names:
        return {}
    ranks = [rank for rank, names in telling.items() if names]
    seen = yield from transfers(logs, ranks, names, next(iter(mates_of)).iteration, baseline, settings)
    found = {}
    for leaf, hosts in mates_of.items():
        slow = [mates for mates in hosts if all(lost_at_home(seen, job, leaf, rank, settings) for rank in mates)]
        if len(slow) == 1:
            found[leaf] = slow[0]
    return found


def slow_with_links(
    job: Job, channels: Iterable[tuple[Leaf, Separation]], leaves: Iterable[Leaf]
) -> dict[Leaf, tuple[int, ...]]:
    """Of each channel across hosts that some member seems to slow the members on another host with several of them,
    whose NVLinks are among the ``leaves`` and lost more; other channels are left out.
    """
    links = [leaf for leaf in leaves if leaf.communicator is not None and job.on_one_host(leaf.members)]
    found = {}
    for leaf, of in channels:
        told = {*of.ranks, *of.points_to}
        elsewhere = [mates for mates in _mates(job, leaf.members) if told and told.isdisjoint(mates)]
        larger = [link for link in links if link.excess_ns > leaf.excess_ns]
        lost_more = [(link.excess_ns, mates) for mates in elsewhere for link in larger if {*mates} & {*link.members}]
        if lost_more:
            found[leaf] = max(lost_more)[1]
    return found


def at_home(job: Job, rank: int) -> tuple[str, ...]:
    """The smallest communicator of a rank that stays on its host."""
    names = [name for name in job.communicators_of.get(rank, ()) if name in job.within_hosts]
    return (min(names, key=lambda name: (len(job.members[name]), name)),) if names else ()


def _mates(job: Job, members: Sequence[int]) -> list[tuple[int, ...]]:
    """The members of each host that has several of them."""
    of_host: dict[str, list[int]] = {}
    for rank in members:
        of_host.setdefault(job.clock(rank), []).append(rank)
    return [tuple(mates) for mates in of_host.values() if len(mates) > 1]


def lost_at_home(seen: Transfers, job: Job, leaf: Leaf, rank: int, settings: SeparationSettings) -> bool:
    """Whether a rank lost a part of what the leaf did, beyond chance, within its host.

    On all its channels there together: what is small takes as long over slow NVLinks.
    """
    within = seen.on_channels(job, rank, leaf.iteration, job.on_one_host)
    lost, chance = sum(one.amount for one in within), sum(one.chance for one in within)
    return lost > max(settings.sigmas * chance, settings.alone_share * leaf.excess_ns)
