"""Who an irregular iteration is blamed on: leaves of a search made culprits, and of these the ones that count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagnosis.causes import Cause, Level
from diagnosis.job import Job
from diagnosis.operator_graph.host import Whose
from diagnosis.operator_graph.leaf import Leaf, OperatorRef
from diagnosis.operator_graph.separation import Separation
from diagnosis.topology import Device, are_switches

_ON_A_HOST = {"gpu", "nvlink", "cpu"}
"""Kinds of devices on a host, the CPU among them that is named with NVLinks which it may slow instead."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who lost how much of an iteration's excess.

    ``ranks`` are the culprits; with several ``candidates`` (sets) the evidence cannot tell which, and ``ranks``
    is their union. ``operator_ns`` and ``iteration_ns`` are the series that ``irregularity_rate`` correlates.
    ``goes_on_late`` is that of its leaf, where it computes slowly.
    """

    cause: Cause
    level: Level
    ranks: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]
    devices: tuple[Device, ...]
    operator: OperatorRef
    excess_ns: int
    share: float
    path: tuple[int, ...]
    operator_ns: tuple[int, ...] = ()
    iteration_ns: tuple[int, ...] = ()
    irregularity_rate: float = 0.0
    goes_on_late: bool = False

    @property
    def is_switch(self) -> bool:
        """Whether it is a switch, with the ranks below it."""
        return are_switches(device.kind for device in self.devices)


def largest_by_place(leaves: Sequence[Leaf]) -> list[Leaf]:
    """The largest leaf of each rank that computes and of each channel that transfers."""
    largest: dict[tuple[str | None, tuple[int, ...]], Leaf] = {}
    for leaf in sorted(leaves, key=lambda leaf: -leaf.excess_ns):
        largest.setdefault((leaf.communicator, leaf.members), leaf)
    return list(largest.values())


def culprit_of(job: Job, leaf: Leaf, excess_ns: int, apart: Separation | None, whose: Whose) -> Culprit:
    """Who a leaf names, with what tells the members of its channel ``apart`` (None: it is no channel), and ``whose``
    fault it is; where slow NVLinks cannot be told from a slow host, the host's CPUs are named with them.
    """
    if whose == "host":
        return _host_culprit(job, leaf, excess_ns)
    if apart is None:
        return compute_culprit(job, leaf, excess_ns)
    culprit = transfer_culprit(job, leaf, apart.members, apart.ranks or apart.points_to, excess_ns)
    return replace(culprit, devices=(*culprit.devices, job.cpu(leaf.rank))) if whose == "either" else culprit


def compute_culprit(job: Job, leaf: Leaf, excess_ns: int) -> Culprit:
    """The GPU of a rank that computes slowly."""
    return Culprit(
        cause="compute_slow",
        level="device",
        ranks=(leaf.rank,),
        candidates=(),
        devices=(job.gpu(leaf.rank),),
        operator=leaf.operator,
        excess_ns=min(leaf.excess_ns, excess_ns),
        share=min(1.0, leaf.excess_ns / excess_ns),
        path=leaf.path,
        goes_on_late=leaf.goes_on_late,
    )


def _host_culprit(job: Job, leaf: Leaf, excess_ns: int) -> Culprit:
    """All ranks of a host, which its CPU slows."""
    return replace(
        compute_culprit(job, leaf, excess_ns),
        cause="host_slow",
        level="machine",
        ranks=job.ranks_beside(leaf.rank),
        devices=(job.cpu(leaf.rank),),
    )


def switch_culprit(job: Job, leaf: Leaf, excess_ns: int, switches: tuple[Device, ...]) -> Culprit:
    """A ToR with the ranks below it, or the spines, one of which is slow, with the ranks whose traffic shows it."""
    below = job.ranks_below.get(switches[0].device, tuple(sorted(leaf.members)))
    level: Level = "device" if len(switches) == 1 else "group"
    return replace(
        compute_culprit(job, leaf, excess_ns),
        cause="communication_slow",
        level=level,
        ranks=below,
        devices=switches,
    )


def transfer_culprit(job: Job, leaf: Leaf, members: tuple[int, ...], told: tuple[int, ...], excess_ns: int) -> Culprit:
    """The member that could be told apart, else the group with its candidates."""
    ranks = told or members
    alone = len(ranks) == 1
    return Culprit(
        cause="communication_slow",
        level="device" if alone else "group",
        ranks=ranks,
        candidates=() if alone else tuple((rank,) for rank in ranks),
        devices=job.carriers(members, ranks),
        operator=leaf.operator,
        excess_ns=min(leaf.excess_ns, excess_ns),
        share=min(1.0, leaf.excess_ns / excess_ns),
        path=leaf.path,
    )


def decisive(
    culprits: Sequence[Culprit], *, mixed_share: float, comparable_share: float, whole_share: float
) -> list[Culprit]:
    """The culprits that count: each once, without what is slow with another, and without what explains little beside
    another. The shares are those of ``LocateSettings``.
    """
    named = _merged(_beside_slow_hosts(culprits, comparable_share), mixed_share)
    return _material(_without_their_parts(named, comparable_share), comparable_share, whole_share)


def _beside_slow_hosts(culprits: Sequence[Culprit], comparable: float) -> list[Culprit]:
    """Without what ranks of a slow host share with others over spines, unless it lost so much that the host explains
    little of it; and without these spines, if that is most of what tells of them.
    """
    hosts = [culprit for culprit in culprits if culprit.cause == "host_slow"]

    def is_of_a_host(culprit: Culprit) -> bool:
        near = [host for host in hosts if not {*host.ranks}.isdisjoint(culprit.ranks)]
        over_spines = {device.kind for device in culprit.devices} == {"spine"}
        return over_spines and any(host.share >= comparable * culprit.share for host in near)

    of_hosts = Counter(culprit.devices for culprit in culprits if is_of_a_host(culprit))
    others = [culprit for culprit in culprits if not is_of_a_host(culprit)]
    beside = Counter(culprit.devices for culprit in others)
    return [culprit for culprit in others if of_hosts[culprit.devices] <= beside[culprit.devices]]


def _merged(culprits: Sequence[Culprit], mixed_share: float) -> list[Culprit]:
    """One culprit a set of ranks, or of switches; a group that holds a rank whose network is named says nothing new."""
    named: dict[tuple[int, ...], Culprit] = {}
    for culprit in sorted(_by_switches(culprits), key=lambda c: (c.level == "group" and not c.is_switch, -c.excess_ns)):
        known = named.get(culprit.ranks)
        if known is None:
            by_network = {r for c in named.values() if c.cause in {"communication_slow", "mixed_slow"} for r in c.ranks}
            if culprit.level != "group" or culprit.is_switch or not by_network & set(culprit.ranks):
                named[culprit.ranks] = culprit
        elif "host_slow" in {known.cause, culprit.cause}:
            named[culprit.ranks] = _with_its_links(known, culprit)
        elif known.cause != culprit.cause and culprit.excess_ns >= mixed_share * known.excess_ns:
            devices = tuple(dict.fromkeys((*known.devices, *culprit.devices)))
            named[culprit.ranks] = replace(known, cause="mixed_slow", devices=devices)
    return list(named.values())


def _by_switches(culprits: Sequence[Culprit]) -> list[Culprit]:
    """Of those about the same switches the one that lost most, with the ranks of all."""
    largest: dict[tuple[Device, ...], Culprit] = {}
    for culprit in sorted(culprits, key=lambda c: -c.excess_ns):
        if culprit.is_switch:
            known = largest.setdefault(culprit.devices, culprit)
            largest[culprit.devices] = replace(known, ranks=tuple(sorted({*known.ranks, *culprit.ranks})))
    return [*(culprit for culprit in culprits if not culprit.is_switch), *largest.values()]


def _with_its_links(one: Culprit, other: Culprit) -> Culprit:
    """A slow host, and what its ranks lost among themselves: what it launches late looks like slow NVLinks."""
    host, links = (one, other) if one.cause == "host_slow" else (other, one)
    if links.cause == "host_slow":
        return max(one, other, key=lambda culprit: culprit.excess_ns)
    whole = round(host.excess_ns / host.share) if host.share else 0
    share = min(1.0, host.share + links.share)
    return replace(host, excess_ns=min(whole, host.excess_ns + links.excess_ns), share=share)


def _without_their_parts(culprits: Sequence[Culprit], comparable: float) -> list[Culprit]:
    """Without the GPUs and NVLinks of hosts that are slow, the NICs and cables below switches that are, and the groups
    that one of their ranks is in: they are slow with these, unless they lost so much that these explain little of it.
    """
    wholes = [culprit for culprit in culprits if culprit.cause == "host_slow" or culprit.is_switch]

    def follows(culprit: Culprit, whole: Culprit) -> bool:
        if culprit.is_switch:
            return False
        local = {device.kind for device in culprit.devices} <= _ON_A_HOST
        if whole.is_switch and (local or culprit.cause != "communication_slow"):
            return False
        if culprit.level == "group":
            return not {*culprit.ranks}.isdisjoint(whole.ranks)
        return (local or whole.is_switch) and {*culprit.ranks} < {*whole.ranks}

    def is_explained(culprit: Culprit) -> bool:
        return any(follows(culprit, whole) and whole.share >= comparable * culprit.share for whole in wholes)

    return [culprit for culprit in culprits if culprit.cause == "host_slow" or not is_explained(culprit)]


def _material(culprits: Sequence[Culprit], comparable_share: float, whole_share: float) -> list[Culprit]:
    """Without those who lost little beside one who explains all: had they been faster, nothing had changed."""
    largest = max((culprit.share for culprit in culprits), default=0.0)
    least = comparable_share * largest if largest >= whole_share else 0.0
    return [culprit for culprit in culprits if culprit.share >= least]
