"""Whether ranks' NICs are slow by themselves, or a switch above them is (a step beyond Holmes 4.3.2).

A slow switch slows whatever crosses it, so the walk ends at whichever of the NICs below it was awaited last, and the
channel between these cannot tell. Other channels can. Where those of other hosts' ranks below the same ToR are slow as
well, it is the ToR; where those of the suspects are not that stay below their ToRs, it is a spine between these. And
where several channels are slow that have nothing in common but spines, it is one of these (``spines`` tells which);
what no other spine can have slowed counts there too, though nobody waited for it long enough for the walk to end there,
and a channel does not whose suspects are slow below their ToRs as well.
A spine that slows most channels of a job is told by those between two ranks that do not cross it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnosis.job import Job
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operator_graph.nvlinks import at_home, lost_at_home
from diagnosis.operator_graph.separation import (
    Separation,
    SeparationSettings,
    Tells,
    Transferred,
    Transfers,
    mostly_slow,
    transfers,
)
from diagnosis.operator_graph.spines import Members, culprit_spines, with_spines_alone_in_common
from diagnosis.operator_graph.switch_settings import SwitchSettings
from diagnosis.topology import Device

Names = tuple[str, ...]
"""Communicators."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """A slow channel between hosts: the ranks that are suspected, and whose transfers tell of what is above them.

    ``members`` and ``mates`` (ranks of other hosts below ``tor``) come with the communicators that these show on.
    """

    leaf: Leaf
    suspects: tuple[int, ...]
    told_apart: bool
    tor: Device | None
    members: Mapping[int, Names]
    mates: Mapping[int, Names]


def slow_switches(
    logs: Logs,
    channels: Iterable[tuple[Leaf, Separation]],
    baseline: Sequence[int],
    settings: SwitchSettings,
    separation: SeparationSettings,
) -> Generator[Needs, Answer, dict[Leaf, tuple[Device, ...]]]:
    """The switch that each slow channel is due to, or the spines one of which it is due to.

    Channels whose NICs or cables may be at fault are left out, as are all where the fabric is not described, and those
    with a member that lost time on its host, where no switch is.
    """
    job = logs.job
    suspected = [_channel(job, leaf, apart, settings) for leaf, apart in channels if job.topology]
    if not suspected:
        return {}
    telling = [item for channel in suspected for item in (*channel.members.items(), *channel.mates.items())]
    ranks, names = {rank for rank, _ in telling}, sorted({name for _, names in telling for name in names})
    seen = yield from transfers(logs, ranks, names, suspected[0].leaf.iteration, baseline, separation)
    slow: dict[Leaf, tuple[Device, ...]] = {}
    over_spines, others = list[Leaf](), list[Leaf]()
    for channel in suspected:
        if any(lost_at_home(seen, job, channel.leaf, rank, separation) for rank in channel.members):
            continue
        if _is_fine_below(job, seen, channel, settings, separation):
            over_spines.append(channel.leaf)
        elif channel.tor is not None and _is_slow_elsewhere(job, seen, channel, settings, separation):
            slow[channel.leaf] = (channel.tor,)
        elif not _is_slow_below(job, seen, channel, settings, separation):
            others.append(channel.leaf)
    slow_of = _slow_channels(job, seen, ranks, [*over_spines, *others], settings, separation)
    over_spines += with_spines_alone_in_common(job, others, slow_of, settings)
    return slow | culprit_spines(job, over_spines, slow_of, settings.comparable_spines)


def slow_spines(
    logs: Logs,
    shared: Sequence[Leaf],
    baseline: Sequence[int],
    settings: SwitchSettings,
    separation: SeparationSettings,
) -> Generator[Needs, Answer, dict[Leaf, tuple[Device, ...]]]:
    """The spines, one of which slows most of a job: of channels that are slow as most others are those over them.

    Rings of many members cross every spine, and are slow all alike; between two ranks few spines carry what they send.
    Whatever crosses those that are named lost by them.
    Where channels over other spines are slow as well nobody is named: that is a congested fabric.
    """
    job = logs.job
    leaves = [leaf for leaf in shared if 0 < len(job.spines_between(leaf.members)) < len(job.spines)]
    ranks = {rank for leaf in leaves for rank in leaf.members}
    names = sorted({name for rank in ranks for name in _smallest_abroad(job, rank, settings)})
    if not names:
        return {}
    seen = yield from transfers(logs, ranks, names, leaves[0].iteration, baseline, separation)
    slow_of = _slow_channels(job, seen, ranks, leaves, settings, separation)
    common = with_spines_alone_in_common(job, leaves, slow_of, settings)
    named = culprit_spines(job, common, slow_of, settings.comparable_spines)
    culprits = {spine for of_leaf in named.values() for spine in of_leaf}
    others = [slow for members, slow in slow_of.items() if culprits.isdisjoint(job.spines_between(members))]
    if not sum(others) < (1 - settings.slow_share) * len(others):
        return {}
    found = tuple(sorted(culprits, key=lambda spine: spine.device))
    return {
        leaf: named.get(leaf, found) for leaf in shared if not culprits.isdisjoint(job.spines_between(leaf.members))
    }


def _slow_channels(
    job: Job,
    seen: Transfers,
    ranks: Iterable[int],
    leaves: Sequence[Leaf],
    settings: SwitchSettings,
    separation: SeparationSettings,
) -> dict[Members, bool]:
    """Whether each channel across hosts that was looked at is slow as the leaves are, beyond chance; what is neither
    that nor certainly fine is left out, and what is fine because hardly anything passes.
    """
    judged: list[tuple[Members, bool, float]] = []
    for iteration in {leaf.iteration for leaf in leaves}:
        slowdowns = [_slowdown(job, seen, leaf) for leaf in leaves if leaf.iteration == iteration]
        if not (known := [by for by in slowdowns if by > 0]):
            continue
        bound = settings.fine_share * min(known)
        for rank in ranks:
            for members, at in seen.of_rank(job, rank, iteration, lambda members: not job.on_one_host(members)):
                by_chance, least = separation.sigmas * at.chance, bound * at.usual
                if at.amount > max(by_chance, least) or at.amount + by_chance < least:
                    judged.append((members, at.amount > least, at.usual))
    telling = settings.least_usual * min((usual for _, slow, usual in judged if slow), default=0.0)
    found: dict[Members, list[bool]] = {}
    for members, slow, usual in judged:
        if slow or usual >= telling:
            found.setdefault(members, []).append(slow)
    return {members: 2 * sum(slow) > len(slow) for members, slow in found.items()}


def _slowdown(job: Job, seen: Transfers, leaf: Leaf) -> float:
    """By which part of the usual a slow channel's transfers take longer."""
    itself = seen.on_channels(job, leaf.rank, leaf.iteration, lambda members: set(members) == set(leaf.members))
    return max((at.amount / at.usual for at in itself if at.usual > 0), default=0.0)


def _channel(job: Job, leaf: Leaf, apart: Separation, settings: SwitchSettings) -> _Channel:
    suspects = apart.ranks or apart.members
    above = {job.tor(rank) for rank in suspects}
    tor = above.pop() if len(above) == 1 else None
    mates = {} if tor is None else _mates(job, tor, leaf, suspects, settings)
    of_host: dict[str, list[int]] = {}
    for rank in leaf.members:
        of_host.setdefault(job.clock(rank), []).append(rank)
    first = {own[0] for own in of_host.values() if len(own) > 1}
    members = {rank: (*_abroad(job, rank), *(at_home(job, rank) if rank in first else ())) for rank in leaf.members}
    return _Channel(leaf, suspects, bool(apart.ranks), tor, members, mates)


def _mates(job: Job, tor: Device, leaf: Leaf, suspects: Sequence[int], settings: SwitchSettings) -> dict[int, Names]:
    """Some ranks of other hosts than the leaf's below a ToR, with their smallest communicators without suspects."""
    clocks = {job.clock(rank) for rank in leaf.members}
    telling = {}
    for rank in job.ranks_below[tor.device]:
        names = _smallest_abroad(job, rank, settings, suspects)
        if names and job.clock(rank) not in clocks:
            telling[rank] = names
    ranks = list(telling)
    spread = np.unique(np.linspace(0, len(ranks) - 1, settings.most_mates).astype(int)) if ranks else ()
    return {ranks[i]: telling[ranks[i]] for i in spread}


def _smallest_abroad(job: Job, rank: int, settings: SwitchSettings, without: Sequence[int] = ()) -> Names:
    """The smallest communicators of a rank that cross NICs and have no member among some ranks."""
    names = [name for name in _abroad(job, rank) if set(job.members[name]).isdisjoint(without)]
    return tuple(sorted(names, key=lambda name: (len(job.members[name]), name))[: settings.most_communicators])


def _abroad(job: Job, rank: int) -> Names:
    """Communicators of a rank that cross NICs."""
    return tuple(name for name in job.communicators_of.get(rank, ()) if name not in job.within_hosts)


def _is_fine_below(
    job: Job, seen: Transfers, channel: _Channel, settings: SwitchSettings, separation: SeparationSettings
) -> bool:
    """Whether all suspects of a channel between ToRs are certainly hardly slowed beside it, on most channels that stay
    below their own, and its members on all that stay on a host of several of them.
    """
    if len({job.tor(rank) for rank in channel.leaf.members} - {None}) < 2:
        return False
    iteration = channel.leaf.iteration
    slowdown = _slowdown(job, seen, channel.leaf)

    def is_fine(rank: int) -> bool:
        below = are_fine(_below_its_tor(job, seen, rank, iteration))
        return 2 * sum(below) > len(below)

    def are_fine(transferred: Sequence[Transferred]) -> list[bool]:
        usual = [at for at in transferred if at.usual > 0]
        slowdowns = [(at.amount / at.usual, separation.sigmas * at.chance / at.usual) for at in usual]
        return [by < settings.fine_at_most and by + chance < settings.fine_share * slowdown for by, chance in slowdowns]

    at_home = (seen.on_channels(job, rank, iteration, job.on_one_host) for rank in channel.leaf.members)
    return all(map(is_fine, channel.suspects)) and all(all(are_fine(transferred)) for transferred in at_home)


def _is_slow_below(
    job: Job, seen: Transfers, channel: _Channel, settings: SwitchSettings, separation: SeparationSettings
) -> bool:
    """Whether the suspects are certainly slowed, beside their channel, on most channels that stay below their own ToRs:
    no spine does that.
    """
    least = settings.fine_share * _slowdown(job, seen, channel.leaf)

    def is_slow(rank: int) -> bool:
        below = [at for at in _below_its_tor(job, seen, rank, channel.leaf.iteration) if at.usual > 0]
        slow = [at.amount - separation.sigmas * at.chance > least * at.usual for at in below]
        return 2 * sum(slow) > len(slow)

    return least > 0 and all(map(is_slow, channel.suspects))


def _below_its_tor(job: Job, seen: Transfers, rank: int, iteration: int) -> list[Transferred]:
    """What a rank transferred on the channels between hosts that stay below its own ToR."""
    own = job.tor(rank)

    def tells(members: Sequence[int]) -> bool:
        return own is not None and not job.on_one_host(members) and {job.tor(member) for member in members} == {own}

    return seen.on_channels(job, rank, iteration, tells)


def _is_slow_elsewhere(
    job: Job, seen: Transfers, channel: _Channel, settings: SwitchSettings, separation: SeparationSettings
) -> bool:
    """Whether ranks of several hosts below the suspects' ToR are slow, on channels that do not tell of each other; also
    on those over other spines than the suspects' channel, as far as there are any: what its spines slow is no ToR's.
    """
    over, telling = set(job.spines_between(channel.leaf.members)), _telling_of_tor(job, channel)

    def over_other_spines(tells: Tells) -> Tells:
        return lambda members: tells(members) and over.isdisjoint(job.spines_between(members))

    least = min(settings.least_share * _slowdown(job, seen, channel.leaf), settings.fine_at_most)
    beside = replace(separation, least_slowdown=max(separation.least_slowdown, least))

    def slowness(rank: int, tells: Tells) -> list[float]:
        return seen.slowness(job, rank, channel.leaf.iteration, beside, tells)

    def are_slow(of_ranks: Iterable[list[float]]) -> bool:
        amounts = [amount for of_rank in of_ranks for amount in of_rank]
        return sum(amount > 0 for amount in amounts) >= settings.slow_share * len(amounts)

    known = {rank: amounts for rank, tells in telling.items() if (amounts := slowness(rank, tells))}
    elsewhere = [slowness(rank, over_other_spines(telling[rank])) for rank in known]
    hosts = {job.clock(rank) for rank in (channel.suspects[0], *known)}
    return (
        len(hosts) >= settings.least_hosts
        and all(mostly_slow(of_rank, separation) for of_rank in known.values())
        and are_slow(known.values())
        and are_slow(elsewhere)
    )


def _telling_of_tor(job: Job, channel: _Channel) -> dict[int, Tells]:
    """Which channels of each rank tell of the ToR above: those of suspects beside their own, of others without them."""

    def beside(members: Sequence[int]) -> bool:
        return not set(channel.leaf.members) <= set(members) and not job.on_one_host(members)

    def without(members: Sequence[int]) -> bool:
        return set(channel.suspects).isdisjoint(members) and not job.on_one_host(members)

    suspects = dict.fromkeys(channel.suspects if channel.told_apart else (), beside)
    return {**suspects, **dict.fromkeys(channel.mates, without)}
