"""What each rank lost of an iteration's time, as the walk that follows amounts reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.delays import measure
from diagnosis.operator_graph.leaf import Leaf, Wait, reference
from diagnosis.operator_graph.log_view import LogView
from diagnosis.operator_graph.materiality import Materiality
from diagnosis.operator_graph.meetings import alone
from diagnosis.operator_graph.needs import Wanted
from diagnosis.operator_graph.sampling import telling, weights, weights_without_ends
from diagnosis.operator_graph.witnesses import Transferred, Witnesses
from diagnosis.operators import UNKNOWN


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the walk stands: a rank that was ``amount`` ns late by ``until_ns`` (its clock; None: the end)."""

    rank: int
    until_ns: int | None
    amount: int
    path: tuple[int, ...]


class Ledger:
    """The excess of the ranks of some logs, as the walk reads it; ``witnesses`` are those it came by before, ``whole``
    the ranks of which all rows are here; of communicators that are ``stood_for`` some operators stand for all.
    """

    def __init__(
        self,
        view: LogView,
        iteration: int,
        baseline: Sequence[int],
        excess_ns: int,
        settings: AttributionSettings,
        witnesses: Witnesses,
        whole: Collection[int],
        stood_for: Collection[str | None] = (),
    ) -> None:
        self._view = view
        self._stood_for = stood_for
        self._delays = measure(view, view.clocks, baseline)
        self._materiality = Materiality(self._delays, baseline, whole, excess_ns, settings)
        self._iteration = iteration
        self._baseline = baseline
        self._settings = settings
        self._witnesses = witnesses
        self._whole = sorted(whole)

    def witness(self) -> None:
        """Note what ranks whose rows are all here computed and transferred, as far as that is known."""
        delays = self._delays
        for rank in self._whole:
            rows = delays.rows(rank, [self._iteration])
            if delays.knows("compute", rows) and not self._is_sampled(rows):
                self._witnesses.compute[rank] = float(np.nansum(delays.compute[rows]))
            if self._transfers_known(rows):
                self._witnesses.transfer[rank] = self._transferred(rows)

    def _transferred(self, rows: Ints) -> Transferred:
        """What a rank transferred beyond the usual in its rows."""
        delays, job = self._delays, self._view.job
        amounts = delays.transfer[rows] * self._weights(rows)
        channels, first, of_row = np.unique(delays.channel[rows], return_index=True, return_inverse=True)
        within = np.array([job.on_one_host(delays.members(int(rows[at]), job)) for at in first], dtype=np.bool_)
        by_channel = np.bincount(of_row.ravel(), weights=np.nan_to_num(amounts), minlength=len(channels))
        return Transferred(float(by_channel[within].sum()), float(by_channel[~within].sum()))

    def _transfers_known(self, rows: Ints) -> bool:
        """Whether it is known what a rank transferred, but for what is too little to be followed: what of a
        communicator was not split into waiting and transferring has others there that stand for it.
        """
        delays = self._delays
        if not delays.knows("exposed", rows):
            return False
        between = delays.operators.point_to_point[rows]
        split = ~np.isnan(delays.transfer[rows])
        groups = self._materiality.group("step")[rows]
        with_others = np.isin(groups, groups[split & ~between])
        unknown = np.maximum(np.nan_to_num(delays.exposed[rows]), 0)[~split & ~with_others].sum()
        return bool(unknown < self._materiality.least_wait_ns)

    def clock_error_ns(self, ranks: Iterable[int]) -> int:
        """How far the clocks of ranks may be off, at worst."""
        return self._view.clock_error_ns(ranks)

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
        operators, groups = self._delays.operators, self._materiality.group("step")
        wanted = Wanted()
        for stand in stands:
            rows = self.rows(stand)
            for group in np.unique(groups[rows]):
                chosen = rows[groups[rows] == group]
                if self._materiality.is_worth_following(chosen):
                    for code in np.unique(operators.communicator[chosen]):
                        on = chosen[operators.communicator[chosen] == code]
                        between = bool(group == UNKNOWN)
                        positions, stand_ins = (None, None) if between else self._positions(on)
                        ranks = self._takes_part(on, between=between)
                        wanted.add(operators.communicators[code], ranks, positions, stand_ins)
        return wanted

    def _is_sampled(self, rows: Ints) -> bool:
        """Whether others stand for some of a rank's operators after which nobody knows what it computed."""
        operators = self._delays.operators
        names = {operators.communicators[code] for code in np.unique(operators.communicator[rows])}
        return not names.isdisjoint(self._stood_for)

    def _weights(self, rows: Ints) -> Floats:
        """How many times each of a rank's rows counts that were split into waiting and transferring."""
        times = weights(self._delays, rows)
        if self._is_sampled(rows):
            times *= weights_without_ends(self._delays, rows, self._stood_for, self._settings.most_operators)
        return times

    def _positions(self, rows: Ints) -> tuple[Ints | None, Ints | None]:
        """Positions of a rank's operators on a communicator that are looked at on its other members, None: all; and
        those that stand for all where there is no room for them.

        Where ends are not logged all are wanted: what the rank computed after an operator that no other tells of is not
        known.
        """
        operators, most = self._delays.operators, self._settings.most_operators
        now = rows[operators.iteration[rows] == self._iteration]
        if operators.ended[now if len(now) else rows].all():
            told = telling(self._delays, now, most)
            return (None if told is None else told.positions), None
        latest = rows[operators.iteration[rows] == operators.iteration[rows].max()]
        told = telling(self._delays, latest, most)
        own = operators.position[latest] if told is None else told.positions
        return None, None if (own == UNKNOWN).any() else own

    def _takes_part(self, rows: Ints, *, between: bool) -> set[int]:
        """The ranks that share operators of one communicator: its members, or the peers of sends and receives."""
        operators = self._delays.operators
        if between:
            return {int(peer) for peer in np.unique(operators.peer[rows]) if peer != UNKNOWN}
        return {*self._view.job.members.get(operators.communicators[operators.communicator[rows[0]]], ())}

    def leaves(self, stand: Stand, rows: Ints) -> Iterator[Leaf]:
        """Where the rank itself lost a material share: computing, or in a communicator's transfers.

        Of a channel across hosts that lost it as most others did the leaf is ``shared``.
        """
        delays, times = self._delays, self._weights(rows)
        common = self._share_of_iteration("compute", stand, rows) * self._witnesses.computed(stand.rank)
        if self._materiality.is_material("compute", rows, common):
            leaf = self._leaf(stand, delays.compute, rows, None, (stand.rank,), common)
            yield replace(leaf, goes_on_late=self._goes_on_late(rows))
        transferred = self._share_of_iteration("transfer", stand, rows)
        for channel in np.unique(delays.channel[rows]):
            on = delays.channel[rows] == channel
            chosen, counts = rows[on], times[on]
            members = delays.members(int(chosen[0]), self._view.job)
            within = self._view.job.on_one_host(members)
            common = self._witnesses.transferred(members, within=within)
            if within and not delays.operators.ended[chosen].all():
                common = max(common, self._witnesses.common_to_replica(self._view.job.layout, members))
            common *= transferred
            if self._materiality.is_material("transfer", chosen, common, counts):
                late = self._straggler(chosen)
                if late is None and delays.operators.point_to_point[chosen].all():
                    late = self._computing_end(chosen)
                if late is not None:
                    yield self._late_leaf(stand, chosen, late, common, counts)
                    continue
                yield self._channel_leaf(stand, chosen, members, common, counts)
            elif not within and self._materiality.is_material("transfer", chosen, times=counts):
                yield replace(self._channel_leaf(stand, chosen, members, 0.0, counts), shared=True)

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
        slow goes on last, time after time, and by more than chance; a slow channel releases all alike. Who was last is
        known only where it is known of all.
        """
        delays, operators = self._delays, self._delays.operators
        excess = np.nan_to_num(delays.transfer[rows])
        slow = rows[excess >= self._settings.straggler_least * excess.max(initial=1.0)]
        at = self._known_meetings(slow, delays.behind)
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

    def _known_meetings(self, rows: Ints, values: Floats) -> Ints:
        """The rows of all that met in some rows, where the values are known of each of them."""
        meeting = self._delays.meeting
        at = np.flatnonzero(np.isin(meeting, meeting[rows][meeting[rows] != UNKNOWN]))
        return at[~np.isin(meeting[at], meeting[at[np.isnan(values[at])]])]

    def _computing_end(self, rows: Ints) -> int | None:
        """Which end of some sends and receives computes slowly, where nobody tells when these had ended.

        What passes until the first of both goes on counts as their transfer, and may be what it computes. A slow
        transfer keeps the other as long. What is not known of both is left out.
        """
        delays, operators = self._delays, self._delays.operators
        if operators.ended[rows].any():
            return None
        at = self._known_meetings(rows, delays.after)
        ranks, of = np.unique(operators.rank[at], return_inverse=True)
        if len(ranks) != 2:
            return None
        kept = np.bincount(of, weights=delays.after[at])
        late = int(kept.argmax())
        return int(ranks[late]) if kept[1 - late] < (1 - self._settings.straggler_share) * kept[late] else None

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
        followed = {rank: amount for rank, amount in amounts.items() if amount >= self._materiality.least_wait_ns}
        clock = self._view.job.clock
        told = {clock(rank) for rank in followed}
        hosts: dict[str, dict[int, float]] = {}
        for rank, amount in amounts.items():
            if amount > 0 and clock(rank) not in told:
                hosts.setdefault(clock(rank), {})[rank] = amount
        for of_host in hosts.values():
            if (together := sum(of_host.values())) >= self._materiality.least_wait_ns:
                followed[max(of_host, key=of_host.__getitem__)] = together
        return followed

    def _entered(self, awaited: int, row: int) -> int:
        """When the awaited rank called the operator that ``row`` is to another member, on its own clock."""
        delays = self._delays
        low, high = np.searchsorted(delays.operators.rank, [awaited, awaited + 1])
        same = low + np.flatnonzero(delays.meeting[low:high] == delays.meeting[row])
        return int(delays.operators.call_ns[same].max())

    def _channel_leaf(self, stand: Stand, rows: Ints, members: tuple[int, ...], common: float, times: Floats) -> Leaf:
        """The delay of a channel's transfers."""
        operators = self._delays.operators
        name = operators.communicators[operators.communicator[rows[0]]]
        return self._leaf(stand, self._delays.transfer, rows, name, members, common, times)

    def _leaf(
        self,
        stand: Stand,
        values: Floats,
        rows: Ints,
        communicator: str | None,
        members: tuple[int, ...],
        common: float,
        times: Floats | float = 1.0,
    ) -> Leaf:
        worst = int(rows[np.nanargmax(values[rows])])
        excess = int(np.nansum(times * values[rows]) - common)
        iteration = int(self._delays.operators.iteration[worst])
        operator = reference(self._delays.operators, worst)
        return Leaf(stand.rank, communicator, members, excess, iteration, operator, (*stand.path, stand.rank))

    def _late_leaf(self, stand: Stand, rows: Ints, late: int, common: float, times: Floats) -> Leaf:
        """The delay of a queued channel, where it is one member's."""
        delays, path = self._delays, (*stand.path, stand.rank)
        worst = int(rows[np.nanargmax(delays.transfer[rows])])
        own = (delays.meeting == delays.meeting[worst]) & (delays.operators.rank == late)
        operator = reference(delays.operators, int(np.flatnonzero(own)[0]) if own.any() else worst)
        excess = int(np.nansum(times * delays.transfer[rows]) - common)
        iteration = int(delays.operators.iteration[worst])
        path = path if path[-1] == late else (*path, late)
        return Leaf(late, None, (late,), excess, iteration, operator, path, goes_on_late=True)

    def _goes_on_late(self, rows: Ints) -> bool:
        """Whether most of what a rank computed longer in some rows follows operators with others whose ends it did not
        log.
        """
        operators = self._delays.operators
        computed = np.maximum(np.nan_to_num(self._delays.compute[rows]), 0)
        before = rows - 1  # a log's first row follows nothing, and computed nothing
        late = ~operators.ended[before] & ~alone(operators, self._view.job)[before]
        return bool(2 * computed[late].sum() > computed.sum())
