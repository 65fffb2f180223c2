"""Which member makes a channel's transfers slow (a step beyond Holmes 4.3.2).

A collective's members all see the same slow transfer. But a slow NIC slows everything that crosses it: the culprit is
the member whose other channels are slow as well. What is small may still pass as fast as ever: then it is the only
member that lost something on any other channel. Where there is no other channel, when members end may tell whereabouts
in a ring it is (``ring``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.job import Job
from diagnosis.operator_graph.delays import Delays, measure
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.log_view import LogView
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs, Wanted
from diagnosis.operator_graph.ring import crest
from diagnosis.operator_graph.spread import Spreads
from diagnosis.operators import UNKNOWN, Operators


@dataclass(frozen=True, slots=True)
class SeparationSettings:
    """Which member of a slow channel is at fault: told by its other channels or, where these are none, around a ring by
    when members end (a step beyond Holmes 4.3.2)."""

    sigmas: float = 3.0
    """Number of standard deviations over the baseline by which transfers must exceed the usual to be slow, and a wave
    around a ring what it is in the baseline; switches are told by the same."""
    least_slowdown: float = 0.1
    """Part of the usual time by which transfers must exceed it as well to be slow."""
    slow_share: float = 0.5
    """Part of a rank's other channels that must be slow for it to be suspected, beside a slow channel or below a
    ToR."""
    comparable: float = 0.5
    """Part of the strongest suspect's loss that another member must have to be suspected beside it."""
    alone_share: float = 0.1
    """Where no member has that many slow channels, and only one has any, part of the slow channel's loss that it must
    have lost on them to be named."""
    most_operators: int = field(default=128, metadata={"least": 1})
    """Number of a communicator's operators that are compared, spread evenly, where ends are logged; more of them tell
    chance apart better, and cost more logs."""
    most_without_ends: int = 1024
    """The same where ends are not logged: when somebody went on stands for an end then, and scatters more."""
    told_share: float = 0.9
    """Part of the operators that must carry an end for ``most_operators`` to be enough; where ends are known of fewer,
    even from when somebody went on, all operators are compared."""
    wave_height: float = 0.05
    """Height of a wave of late ends around a ring, as a part of what members waited beyond the usual on average, above
    which it tells something."""
    wave_share: float = 0.75
    """Part of the variance among members' waits that the wave must explain."""
    wave_reach: float = 0.125
    """Part of the ring on either side of the wave's crest whose members are named, one hop at least; a lower value
    names fewer, and misses the culprit sooner."""


@dataclass(frozen=True, slots=True)
class Separation:
    """``ranks`` are the members told apart by other channels; empty: the evidence reaches no further than ``members``,
    or than those that it ``points_to``: who alone lost on other channels, or whom the channel's own ends tell. These
    are named instead of all members, but are no ground to call a switch slow.
    """

    members: tuple[int, ...]
    ranks: tuple[int, ...]
    points_to: tuple[int, ...] = ()


def separate(
    logs: Logs,
    leaves: Sequence[Leaf],
    baseline: Sequence[int],
    settings: SeparationSettings,
) -> Generator[Needs, Answer, list[Separation]]:
    """Tell the members of each slow channel apart by their other channels over the same medium."""
    if not leaves:
        return []
    members = {rank for leaf in leaves for rank in leaf.members}
    names = sorted({name for leaf in leaves for name in _alike(logs.job, leaf)})
    yield from logs.fetch_whole([rank for rank in sorted(members) if not (logs.narrow or logs.ended(rank))])
    seen = yield from transfers(logs, members, names, leaves[0].iteration, baseline, settings)
    return [_told_apart(seen, logs.job, leaf, baseline, settings) for leaf in leaves]


Tells = Callable[[Sequence[int]], bool]
"""Whether the members of a channel tell of what is asked."""


class Transferred(NamedTuple):
    """What a rank, or of a channel of two either, transferred in an iteration, in ns: beyond the usual, usually (NaN:
    not known), and by how much that varies.
    """

    amount: float
    usual: float
    chance: float


class Slow(NamedTuple):
    """By how much (ns) a rank's transfers on the channel of some members are slow; 0: they are not."""

    members: tuple[int, ...]
    amount: float


@dataclass(frozen=True, slots=True)
class Transfers:
    """What was transferred on some channels, and by how much that varies by chance."""

    delays: Delays
    chance: Spreads

    def slowness(self, job: Job, rank: int, iteration: int, settings: SeparationSettings, tells: Tells) -> list[float]:
        """By how much (ns) the rank's transfers are slow on each channel whose members tell; 0: they are not."""
        return [slow.amount for slow in self.slow_on(job, rank, iteration, settings, tells)]

    def slow_on(self, job: Job, rank: int, iteration: int, settings: SeparationSettings, tells: Tells) -> list[Slow]:
        """The same with the members of each channel."""
        judged = []
        for members, one in self.of_rank(job, rank, iteration, tells):
            least = max(settings.sigmas * one.chance, settings.least_slowdown * one.usual)
            judged.append(Slow(members, one.amount if one.amount > least else 0.0))
        return judged

    def on_channels(self, job: Job, rank: int, iteration: int, tells: Tells) -> list[Transferred]:
        """What the rank transferred on each channel whose members tell, as far as that is known."""
        return [transferred for _, transferred in self.of_rank(job, rank, iteration, tells)]

    def of_rank(
        self, job: Job, rank: int, iteration: int, tells: Tells
    ) -> Iterator[tuple[tuple[int, ...], Transferred]]:
        """The members of each channel of the rank that tell, with what it transferred there as far as that is known.

        Of two it is what either transferred, the end that lost more, of those of which it is known what is usual and
        what chance: what one sends late shows with the other alone, which it reaches late.
        """
        for channel, members in self._telling(job, rank, iteration, tells):
            ends = members if len(members) == 2 else (rank,)
            seen = [one for end in ends if (one := self._transferred(end, channel, iteration)) is not None]
            if seen:
                yield members, max(seen, key=lambda of: (bool(np.isfinite([of.usual, of.chance]).all()), of.amount))

    def _transferred(self, rank: int, channel: int, iteration: int) -> Transferred | None:
        """What a rank transferred on a channel; None: it is not known of any operator."""
        delays = self.delays
        rows = delays.rows(rank, [iteration])
        known = rows[(delays.channel[rows] == channel) & ~np.isnan(delays.transfer[rows])]
        if not len(known):
            return None
        amount, usual = float(delays.transfer[known].sum()), float(delays.transfer_usual[known].sum())
        return Transferred(amount, usual, self.chance.get((rank, channel), np.inf))

    def knows(self, job: Job, rank: int, iteration: int, tells: Tells) -> bool:
        """Whether the rank has channels whose members tell, and what was transferred is known of each of them."""
        telling = list(self._telling(job, rank, iteration, tells))
        return 0 < len(telling) == len(self.on_channels(job, rank, iteration, tells))

    def _telling(self, job: Job, rank: int, iteration: int, tells: Tells) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The channels of a rank whose members tell, with these."""
        rows = self.delays.rows(rank, [iteration])
        of_row = self.delays.channel[rows]
        for channel in np.unique(of_row).tolist():
            members = self.delays.members(int(rows[of_row == channel][0]), job)
            if len(members) >= 2 and tells(members):
                yield channel, members


def transfers(
    logs: Logs,
    ranks: Collection[int],
    names: Sequence[str],
    iteration: int,
    baseline: Sequence[int],
    settings: SeparationSettings,
) -> Generator[Needs, Answer, Transfers]:
    """What ranks transferred on some communicators, of whose operators no more are asked for than tell."""
    own = set(ranks)
    yield from logs.fetch_one_listing({name: own & {*logs.job.members[name]} for name in names}, iteration)
    sampled = _sampled(logs.part(own, names), logs.whole, names, iteration, settings)
    for _ in range(2):  # whom sends go to is known once the ranks' own are here
        met = _met(logs.part(own, names), own, names, sampled)
        yield from logs.fetch(met.ranks, met.positions)
    part = logs.part(own, names)
    delays = measure(part, part.clocks, baseline)
    return Transfers(delays, delays.spreads("transfer", delays.channel, baseline))


def _sampled(
    view: LogView, whole: Collection[int], names: Collection[str], iteration: int, settings: SeparationSettings
) -> dict[str, Ints]:
    """Positions that stand for all of a communicator, where it has more collectives an iteration than are looked at.

    They are spread evenly, so that of each communicator as many are compared; over those alone, if they are
    enough, that members have told of whose logs are not at hand ``whole``: these need not be asked for again.
    """
    operators, sampled = view.operators, dict[str, Ints]()
    asked = np.isin(operators.communicator, [code for code, of in enumerate(operators.communicators) if of in names])
    groups = asked & ~operators.point_to_point
    ended = operators.ended[groups].sum() >= settings.told_share * groups.sum()
    most = settings.most_operators if ended else settings.most_without_ends
    told = operators.ended | (operators.next_ns != UNKNOWN)
    listed = (operators.iteration == iteration) & (operators.position != UNKNOWN)
    apart = ~np.isin(operators.rank, sorted(whole))
    for code in np.unique(operators.communicator[asked & listed]).tolist():
        on = np.flatnonzero(operators.communicator == code)
        at = on[listed[on]]
        positions = np.unique(operators.position[at])
        if len(positions) <= most or operators.point_to_point[on].any() or told[on].mean() < settings.told_share:
            continue
        others = np.unique(operators.position[at[apart[at]]])
        if most <= len(others):
            positions = others
        sampled[operators.communicators[code]] = positions[np.linspace(0, len(positions) - 1, most).astype(np.int64)]
    return sampled


def _met(view: LogView, ranks: set[int], names: Collection[str], sampled: Mapping[str, Ints]) -> Wanted:
    """What is wanted of communicators of the ranks, as far as it is known what they are: of collectives everybody's
    part, of sends and receives the ranks' own and their peers'; of what nobody has told of yet the ranks' own.
    """
    operators, wanted = view.operators, Wanted()
    groups = operators.groups
    peers = _peers(operators.take(operators.point_to_point & np.isin(operators.rank, sorted(ranks))))
    for name in names:
        group = view.job.members[name]
        if name in groups:
            wanted.add(name, group, sampled.get(name))
        else:
            wanted.add(name, ranks & {*group} | peers.get(name, set()), None)
    return wanted


def _peers(between: Operators) -> dict[str, set[int]]:
    """With whom sends and receives exchange, by communicator."""
    peers: dict[str, set[int]] = {}
    known = between.take((between.peer != UNKNOWN) & (between.communicator != UNKNOWN))
    for code, peer in np.unique(np.stack([known.communicator, known.peer]), axis=1).T.tolist():
        peers.setdefault(known.communicators[code], set()).add(peer)
    return peers


def _alike(job: Job, leaf: Leaf) -> list[str]:
    """Communicators of the leaf's members that use the same medium."""
    local = job.on_one_host(leaf.members)
    names = {name for member in leaf.members for name in job.communicators_of.get(member, ())}
    return [name for name in sorted(names) if (name in job.within_hosts) == local]


def _told_apart(
    seen: Transfers, job: Job, leaf: Leaf, baseline: Sequence[int], settings: SeparationSettings
) -> Separation:
    local = job.on_one_host(leaf.members)

    def tells(members: Sequence[int]) -> bool:  # what all of the leaf's share tells nobody apart
        return not set(leaf.members) <= set(members) and job.on_one_host(members) == local

    slow = {member: seen.slow_on(job, member, leaf.iteration, settings, tells) for member in leaf.members}
    judged = {member: [one.amount for one in of_member] for member, of_member in slow.items()}
    if not any(judged.values()):
        return Separation(leaf.members, (), _on_ring(seen.delays, job, leaf, baseline, settings))
    excess = {member: sum(amounts) for member, amounts in judged.items() if mostly_slow(amounts, settings)}
    if not excess:
        known = all(seen.knows(job, member, leaf.iteration, tells) for member in leaf.members)
        one_wire = not local and not job.spines_between(leaf.members)
        least = settings.alone_share * leaf.excess_ns
        return Separation(leaf.members, (), _alone(judged, least) if known and one_wire else ())
    strongest = max(excess.values())
    ranks = tuple(member for member, amount in excess.items() if amount >= settings.comparable * strongest)
    return Separation(leaf.members, _without_explained(ranks, slow, settings) or ranks)


def _without_explained(
    ranks: Sequence[int], slow: Mapping[int, Sequence[Slow]], settings: SeparationSettings
) -> tuple[int, ...]:
    """Without those that are slow where another suspect takes part, and that lost little without it beside what it lost
    without them: of a slow NIC's small groups the other members' channels are mostly slow as well.
    """

    def without(rank: int, other: int) -> list[float]:
        return [one.amount for one in slow[rank] if other not in one.members]

    def is_explained(rank: int, other: int) -> bool:
        others_own = without(other, rank)
        least = settings.comparable * sum(others_own)
        return mostly_slow(others_own, settings) and sum(without(rank, other)) < least

    return tuple(rank for rank in ranks if not any(is_explained(rank, other) for other in ranks))


def _alone(judged: Mapping[int, Sequence[float]], least: float) -> tuple[int, ...]:
    """The member that alone lost anything on other channels, if it is as much as ``least`` (ns), which is of all of the
    channel's operators, while of others' no more count than were looked at.

    Not asked within a host, whose NVLinks serve all, nor where a described fabric has spines between the members, one
    of which would slow few channels of each rank as well; nor where it is not known of all what they lost.
    """
    lost = {member: sum(amounts) for member, amounts in judged.items() if any(amounts)}
    return tuple(lost) if len(lost) == 1 and min(lost.values()) >= least else ()


def _on_ring(
    delays: Delays, job: Job, leaf: Leaf, baseline: Sequence[int], settings: SeparationSettings
) -> tuple[int, ...]:
    """Whom the ends of a communicator point to, if it is a ring of members on hosts of their own."""
    operators = delays.operators
    members = job.members.get(leaf.communicator or "", ())
    if set(members) != set(leaf.members) or not job.one_a_host(members):  # the two ends of a send are no ring
        return ()
    own = operators.communicator == operators.communicators.index(leaf.communicator)
    if not own.any():
        return ()
    of_members = [own & (operators.rank == member) for member in members]
    if not operators.ended[own & np.isin(operators.iteration, (leaf.iteration, *baseline))].all():
        return ()
    now, before = (
        np.stack([delays.series(delays.transfer, rows, some) for rows in of_members], axis=1)
        for some in ((leaf.iteration,), baseline)
    )
    before = before[~np.isnan(before).any(axis=1)]
    at = crest(
        now[0],
        before,
        sigmas=settings.sigmas,
        height=settings.wave_height,
        explained=settings.wave_share,
        reach=settings.wave_reach,
    )
    return tuple(sorted(members[i] for i in at))


def mostly_slow(judged: Sequence[float], settings: SeparationSettings) -> bool:
    """Whether enough of a rank's channels are slow, going by what each of them lost."""
    slow = sum(amount > 0 for amount in judged)
    return slow > 0 and slow >= settings.slow_share * len(judged)
