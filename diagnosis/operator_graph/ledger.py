"""What each rank lost of an iteration's time, as the walk that follows amounts reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.operator_graph.delays import Kind, measure
from diagnosis.operator_graph.leaf import Leaf, Wait, reference
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Wanted
from diagnosis.operator_graph.spread import Spreads
from diagnosis.operators import UNKNOWN
from diagnosis.robust import of_most

LEAST_WITNESSES = 2
"""Fewer ranks than this do not show what is common."""


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """``material_share`` of the iteration's excess makes a loss a cause, ``follow_share`` a wait worth following (a
    rank can await one and the same delay of several others). ``sigmas`` makes a loss no chance; ``follow_sigmas`` are
    enough to follow a wait, which accuses nobody: a group's waits scatter with the noise of all of its members.

    ``most_ranks`` bounds a walk, and so do ``most_channels`` slow ones that share no member: what is slow is above
    them, and more of them say nothing new. Of a communicator's operators at most ``most_operators`` are looked at on
    its other members, and stand for the rest; ``explained_share`` of a delay must be found in the iteration itself,
    else the walk looks into the iteration before. ``straggler_share`` of a queued channel's delay must end with one
    member to be that one's; operators with less than ``straggler_least`` of its longest one are left out.
    """

    material_share: float = 0.25
    follow_share: float = 0.15
    sigmas: float = 3.0
    follow_sigmas: float = 1.0
    explained_share: float = 0.5
    most_ranks: int = 64
    most_channels: int = 6
    most_operators: int = 256
    straggler_share: float = 0.75
    straggler_least: float = 0.1


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the walk stands: a rank that was ``amount`` ns late by ``until_ns`` (its clock; None: the end)."""

    rank: int
    until_ns: int | None
    amount: int
    path: tuple[int, ...]


@dataclass
class Witnesses:
    """What each rank whose log was read computed and transferred beyond the usual over the iteration, in ns."""

    compute: dict[int, float] = field(default_factory=dict)
    transfer: dict[int, float] = field(default_factory=dict)


class Ledger:
    """The excess of the ranks of some logs, as the walk reads it; ``witnesses`` are those it came by before, ``whole``
    the ranks of which all rows are here.
    """

    def __init__(
        self,
        logs: Logs,
        iteration: int,
        baseline: Sequence[int],
        excess_ns: int,
        settings: AttributionSettings,
        witnesses: Witnesses,
        whole: Collection[int],
    ) -> None:
        self._logs = logs
        self._delays = measure(logs, logs.clocks(), baseline)
        self._iteration = iteration
        self._baseline = baseline
        self._least = settings.material_share * excess_ns
        self._least_wait = settings.follow_share * excess_ns
        self._settings = settings
        self._witnesses = witnesses
        self._whole = sorted(whole)
        self._spreads: dict[Kind, Spreads] = {}

    def witness(self) -> None:
        """Note what ranks whose rows are all here computed and transferred, as far as that is known."""
        delays = self._delays
        for rank in self._whole:
            rows = delays.rows(rank, [self._iteration])
            if delays.knows("compute", rows):
                self._witnesses.compute[rank] = float(np.nansum(delays.compute[rows]))
            if self._transfers_known(rows):
                self._witnesses.transfer[rank] = float(np.nansum(delays.transfer[rows] * self._weights(rows)))

    def _transfers_known(self, rows: Ints) -> bool:
        """Whether it is known what a rank transferred, but for what is too little to be followed: what of a
        communicator was not split into waiting and transferring has others there that stand for it.
        """
        delays = self._delays
        if not delays.knows("exposed", rows):
            return False
        between = delays.operators.point_to_point[rows]
        split = ~np.isnan(delays.transfer[rows])
        groups = self._group("step")[rows]
        stood_for = np.isin(groups, groups[split & ~between])
        unknown = np.maximum(np.nan_to_num(delays.exposed[rows]), 0)[~split & ~stood_for].sum()
        return bool(unknown < self._least_wait)

    def clock_error_ns(self, ranks: Iterable[int]) -> int:
        """How far the clocks of ranks may be off, at worst."""
        return self._logs.clocks().worst_error_ns({self._logs.job.clock(rank) for rank in ranks})

    def rows(self, stand: Stand) -> Ints:
        """The operators that a rank's delay can stem from: of this iteration, and of the one before where these explain
        too little.
        """
        delays = self._delays
        rows = delays.rows(stand.rank, [self._iteration], stand.until_ns)
        explained = np.nansum(delays.compute[rows]) + np.nansum(delays.step[rows])
        if stand.until_ns is not None and explained < self._settings.explained_share * stand.amount:
            rows = delays.rows(stand.rank, [self._iteration - 1, self._iteration], stand.until_ns)
        return rows

    def unsplit(self, stands: Iterable[Stand]) -> Wanted:
        """Communicators whose members must be seen to tell waiting from transferring.

        Where ends are not logged they tell waiting from computing as well, and what counts is the time until the rank's
        next call. All point-to-point ones count together: which of a send and a receive that ran at once took the time
        is known only when both peers are.
        """
        operators, groups = self._delays.operators, self._group("step")
        wanted = Wanted()
        for stand in stands:
            rows = self.rows(stand)
            for group in np.unique(groups[rows]):
                chosen = rows[groups[rows] == group]
                if self._worth_following(chosen):
                    for code in np.unique(operators.communicator[chosen]):
                        on = chosen[operators.communicator[chosen] == code]
                        between = bool(group == UNKNOWN)
                        places = None if between else self._telling(on)
                        wanted.add(operators.communicators[code], self._takes_part(on, between=between), places)
        return wanted

    def _telling(self, rows: Ints) -> Ints | None:
        """Places of a rank's operators on a communicator that tell where it lost time: half of them those that lost
        most, half of them spread evenly, as those of others on it; None: all. Where ends are not logged all are needed.
        """
        operators, most = self._delays.operators, self._settings.most_operators
        rows = rows[operators.iteration[rows] == self._iteration]
        places = operators.position[rows]
        if len(rows) <= most or (places == UNKNOWN).any() or not operators.ended[rows].all():
            return None
        order = np.argsort(-np.nan_to_num(self._delays.step[rows]), kind="stable")
        evenly = np.linspace(0, len(rows) - 1, most - most // 2).astype(np.int64)
        return np.unique(places[np.r_[order[: most // 2], evenly]])

    def _weights(self, rows: Ints) -> Floats:
        """How many times each of a rank's rows counts where it was split into waiting and transferring, since it stands
        for others of its communicator that were not: in proportion to what these lost. Shape (rows,).
        """
        weights = np.ones(len(rows))
        operators, split = self._delays.operators, ~np.isnan(self._delays.transfer[rows])
        collective = ~operators.point_to_point[rows] & operators.ended[rows]
        lost = np.maximum(np.nan_to_num(self._delays.exposed[rows]), 0)
        for code in np.unique(operators.communicator[rows[collective]]):
            on = collective & (operators.communicator[rows] == code)
            seen = float(lost[on & split].sum())
            if seen > 0:
                weights[on] = min(float(lost[on].sum()) / seen, on.sum() / (on & split).sum())
        return weights

    def _takes_part(self, rows: Ints, *, between: bool) -> set[int]:
        """The ranks that share operators of one communicator: its members, or the peers of sends and receives."""
        operators = self._delays.operators
        if between:
            return {int(peer) for peer in np.unique(operators.peer[rows]) if peer != UNKNOWN}
        return {*self._logs.job.members.get(operators.communicators[operators.communicator[rows[0]]], ())}

    def leaves(self, stand: Stand, rows: Ints) -> Iterator[Leaf]:
        """Where the rank itself lost a material share: computing, or in a communicator's transfers."""
        delays, weights = self._delays, self._weights(rows)
        common = self._share_of_iteration("compute", stand, rows) * self._common("compute", (stand.rank,))
        if self._material("compute", rows, common):
            yield self._leaf(stand, delays.compute, rows, None, (stand.rank,), common)
        transferred = self._share_of_iteration("transfer", stand, rows)
        for channel in np.unique(delays.channel[rows]):
            on = delays.channel[rows] == channel
            chosen, times = rows[on], float(weights[on].max())
            members = delays.members(int(chosen[0]), self._logs.job)
            common = self._common("transfer", members)
            if not delays.operators.ended[chosen].all() and self._logs.job.on_one_host(members):
                common = max(common, self._of_its_replica(members))
            common *= transferred
            if self._material("transfer", chosen, common, times=times):
                late = self._straggler(chosen)
                if late is not None:
                    yield self._late_leaf(stand, chosen, late, common)
                    continue
                name = delays.operators.communicators[delays.operators.communicator[chosen[0]]]
                yield self._leaf(stand, delays.transfer, chosen, name, members, common, times)

    def _share_of_iteration(self, kind: Literal["compute", "transfer"], stand: Stand, rows: Ints) -> float:
        """The part of what a rank usually computes or transfers in the iteration that its rows take: of what all lose
        in common in it as much is theirs.
        """
        if stand.until_ns is None:
            return 1.0
        rows = rows[self._delays.operators.iteration[rows] == self._iteration]
        whole = self._delays.usual(kind, self._delays.rows(stand.rank, [self._iteration]))
        return self._delays.usual(kind, rows) / whole if whole > 0 else 1.0

    def _straggler(self, rows: Ints) -> int | None:
        """The member that keeps the others, where calls are queued; None where they are not, or nobody does.

        A collective's kernels end on all members at once, so what a member does after that shows alone: whose GPU is
        slow goes on last, time after time, and by more than chance; a slow channel releases all alike.
        """
        delays, operators = self._delays, self._delays.operators
        excess = np.nan_to_num(delays.transfer[rows])
        slow = rows[excess >= self._settings.straggler_least * excess.max(initial=1.0)]
        at = np.flatnonzero(np.isin(delays.meeting, delays.meeting[slow]) & ~np.isnan(delays.behind))
        if not len(at):
            return None
        weight = np.zeros(int(delays.meeting.max()) + 1)
        weight[delays.meeting[slow]] = delays.transfer[slow]
        order = at[np.lexsort((delays.behind[at], delays.meeting[at]))]
        final = order[np.r_[np.diff(delays.meeting[order]) != 0, True]]
        share = np.bincount(operators.rank[final], weights=weight[delays.meeting[final]])
        rank = int(share.argmax())
        if share[rank] < self._settings.straggler_share * share.sum():
            return None
        own = (operators.rank == rank) & (delays.channel == delays.channel[rows[0]])
        own &= np.isin(operators.position, operators.position[slow])
        now = delays.behind[own & (operators.iteration == self._iteration)]
        chance = self._settings.sigmas * delays.spread(delays.behind, own, self._baseline)
        return rank if float(np.nansum(now)) > chance else None

    def waits(self, stand: Stand, rows: Ints) -> Iterator[tuple[Wait, int]]:
        """Material waits, with the time (the awaited rank's clock) before which the delay arose.

        Where a host is late as a whole, which of its ranks is last changes from operator to operator: of those none of
        which is awaited long enough, the one that is most stands for all.
        """
        delays, operators = self._delays, self._delays.operators
        known = (delays.awaited[rows] != UNKNOWN) & (delays.awaited[rows] != stand.rank) & ~np.isnan(delays.wait[rows])
        waited = np.where(known, delays.wait[rows] * self._weights(rows), 0.0)
        ranks, of = np.unique(delays.awaited[rows[known]], return_inverse=True)
        amounts = np.bincount(of, weights=waited[known], minlength=len(ranks))
        for awaited, amount in self._followed(dict(zip(ranks.tolist(), amounts.tolist(), strict=True))).items():
            chosen = rows[known & (delays.awaited[rows] == awaited)]
            worst = int(chosen[np.argmax(delays.wait[chosen])])
            until = self._entered(awaited, int(chosen[np.argmax(operators.call_ns[chosen])]))
            name = operators.communicators[operators.communicator[worst]]
            yield Wait(stand.rank, awaited, name, operators.ops[operators.op[worst]], int(amount)), until

    def _followed(self, amounts: Mapping[int, float]) -> dict[int, float]:
        """Which of the awaited ranks to follow, and for how much: those awaited long enough, and of each host of which
        none is, though together they are, the one that is awaited most.
        """
        followed = {rank: amount for rank, amount in amounts.items() if amount >= self._least_wait}
        clock = self._logs.job.clock
        told = {clock(rank) for rank in followed}
        hosts: dict[str, dict[int, float]] = {}
        for rank, amount in amounts.items():
            if amount > 0 and clock(rank) not in told:
                hosts.setdefault(clock(rank), {})[rank] = amount
        for of_host in hosts.values():
            if (together := sum(of_host.values())) >= self._least_wait:
                followed[max(of_host, key=of_host.__getitem__)] = together
        return followed

    def _entered(self, awaited: int, row: int) -> int:
        """When the awaited rank called the operator that ``row`` is to another member, on its own clock."""
        delays = self._delays
        low, high = np.searchsorted(delays.operators.rank, [awaited, awaited + 1])
        same = low + np.flatnonzero(delays.meeting[low:high] == delays.meeting[row])
        return int(delays.operators.call_ns[same].max())

    def _common(self, kind: Literal["compute", "transfer"], members: tuple[int, ...]) -> float:
        """What three in four of the other ranks at hand computed or transferred longer than usual: nobody's fault.

        Longer sequences slow every GPU's compute, a congested fabric or a busy host every transfer. The members of
        the channel in question are no witnesses: they share its transfers. Few others tell nothing.
        """
        known = self._witnesses.compute if kind == "compute" else self._witnesses.transfer
        return _in_common([amount for rank, amount in known.items() if rank not in members])

    def _of_its_replica(self, members: tuple[int, ...]) -> float:
        """What three in four of the ranks at hand transferred longer than usual on the other stages of the members'
        replica. Without ends what is computed until the next call counts as a tensor group's transfers, and sequences
        that are longer in one replica slow all of its stages, and no other's.
        """
        layout = self._logs.job.layout
        if layout is None:
            return 0.0
        replicas = {layout.replica(rank) for rank in members}
        stages = {layout.pipeline_stage(rank) for rank in members}
        if len(replicas) > 1 or None in replicas:
            return 0.0
        return _in_common(
            [
                amount
                for rank, amount in self._witnesses.transfer.items()
                if layout.replica(rank) in replicas and layout.pipeline_stage(rank) not in stages
            ]
        )

    def _material(self, kind: Kind, rows: Ints, common: float = 0.0, times: float = 1.0) -> bool:
        """Whether what a rank's rows of one group lost (so many ``times``) beyond what is common is a material share
        of the iteration's excess, and no chance.
        """
        return self._exceeds(kind, rows, self._least, self._settings.sigmas, common, times)

    def _worth_following(self, rows: Ints) -> bool:
        """Whether a rank may have waited long enough in a group's operators for those to be seen that it waited for."""
        return self._exceeds("step", rows, self._least_wait, self._settings.follow_sigmas)

    def _exceeds(
        self, kind: Kind, rows: Ints, least: float, sigmas: float, common: float = 0.0, times: float = 1.0
    ) -> bool:
        if not len(rows):
            return False
        values: Floats = getattr(self._delays, kind)
        amount = times * float(np.nansum(values[rows])) - common
        if amount < least:
            return False
        place = int(self._delays.operators.rank[rows[0]]), int(self._group(kind)[rows[0]])
        return amount > times * sigmas * self._spreads_of(kind).get(place, np.inf)

    def _group(self, kind: Kind) -> Ints:
        """What a rank's rows are summed over: all that it computed, what ran on a channel, or on a communicator; all
        sends and receives together.
        """
        delays = self._delays
        if kind == "compute":
            return np.zeros(len(delays.channel), dtype=np.int64)
        if kind == "transfer":
            return delays.channel
        return np.where(delays.operators.point_to_point, UNKNOWN, delays.operators.communicator)

    def _spreads_of(self, kind: Kind) -> Spreads:
        if kind not in self._spreads:
            # what a rank computed shows only where all of its rows are here
            whole = np.isin(self._delays.operators.rank, self._whole) if kind == "compute" else None
            self._spreads[kind] = self._delays.spreads(kind, self._group(kind), self._baseline, whole)
        return self._spreads[kind]

    def _leaf(
        self,
        stand: Stand,
        values: Floats,
        rows: Ints,
        communicator: str | None,
        members: tuple[int, ...],
        common: float,
        times: float = 1.0,
    ) -> Leaf:
        worst = int(rows[np.nanargmax(values[rows])])
        excess = int(times * np.nansum(values[rows]) - common)
        iteration = int(self._delays.operators.iteration[worst])
        operator = reference(self._delays.operators, worst)
        return Leaf(stand.rank, communicator, members, excess, iteration, operator, (*stand.path, stand.rank))

    def _late_leaf(self, stand: Stand, rows: Ints, late: int, common: float) -> Leaf:
        """The delay of a queued channel, where it is one member's."""
        delays, path = self._delays, (*stand.path, stand.rank)
        worst = int(rows[np.nanargmax(delays.transfer[rows])])
        own = (delays.meeting == delays.meeting[worst]) & (delays.operators.rank == late)
        operator = reference(delays.operators, int(np.flatnonzero(own)[0]) if own.any() else worst)
        excess = int(np.nansum(delays.transfer[rows]) - common)
        iteration = int(delays.operators.iteration[worst])
        return Leaf(late, None, (late,), excess, iteration, operator, path if path[-1] == late else (*path, late))


def _in_common(amounts: Sequence[float]) -> float:
    """What most of the amounts (ns) reach; 0 where they are few, or it is less than nothing."""
    return max(0.0, of_most(amounts)) if len(amounts) >= LEAST_WITNESSES else 0.0
