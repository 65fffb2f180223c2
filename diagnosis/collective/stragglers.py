"""Who holds up a communication: fail-slow and fail-stop of collectives (Pulse 6.2).

Of a built-in collective the straggler has the longest actual time, of a custom one the lowest actual rate over the
last k; one that stops has sent least, or is in all of the sends that do not end. What telemetry does not cover is
compared with nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.collective.grid import ComparisonRules, Grid, Usual, kind_of, over_others, rates
from diagnosis.collective.participation import (
    COMPLETE,
    INCOMPLETE,
    MISSING_START,
    UNKNOWN,
    UNKNOWN_STATE,
    Participation,
)
from diagnosis.collective.resends import RESENT_NS
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job

Metric = Literal["actual_time", "busy_epochs"]
"""The paper's, and one that sees slowness which leaves no epoch empty."""

_LEAST_RANKS = 2

_FEWEST = 3
"""Custom collectives whose rates are averaged at least: after lost calls one may hold a send too many or too few."""


def slow_in_collective(
    grid: Grid, rules: ComparisonRules, usual: Usual | None = None, metric: Metric = "actual_time"
) -> Verdict | None:
    """The straggler of a communicator's built-in collectives, if there is one.

    Of what took longer than usual, where that is known. By ``actual_time`` the rank that really sends for longest, by
    ``busy_epochs`` the one whose full epochs hold least.
    """
    chosen = grid.choose(grid.complete & ~grid.custom & extended(grid, rules, usual))
    if len(chosen.rank) < _LEAST_RANKS or not len(chosen.instance):
        return None
    if metric == "actual_time":
        slowness, margin = _actual_times(chosen), rules.margin
    else:
        slowness, margin = 1.0 / np.maximum(np.nanmean(chosen.busy, axis=1), 1.0), rules.busy_margin
    ratio, deviation = over_others(slowness)
    # a straggler sends nearly all the time: where all are silent for long, none of them is what is waited for
    busy = np.nanmean(chosen.actual, axis=1) >= rules.busy_share * np.nanmean(chosen.duration, axis=1)
    culprits = np.flatnonzero(busy & (ratio >= 1.0 + np.maximum(margin, rules.spread * deviation)))
    if not len(culprits):
        return None
    worst = culprits[np.argmax(ratio[culprits])]
    return Verdict(
        cause="communication_slow",
        level="device",
        ranks=(int(chosen.rank[worst]),),
        method=metric,
        communicator=grid.communicator,
        instance=int(chosen.instance[0]),
        evidence={
            "ratio": float(ratio[worst]),
            "deviation": float(deviation[worst]),
            "actual_time_ns": float(np.nanmean(chosen.actual[worst])),
            "duration_ns": float(np.nanmean(chosen.duration[worst])),
            "collectives": float(len(chosen.instance)),
        },
        coverage=grid.coverage,
    )


def extended(grid: Grid, rules: ComparisonRules, usual: Usual | None) -> Bools:
    """Instances that took longer than usual; all where nothing usual is known. Shape (instances,)."""
    if usual is None:
        return np.ones(len(grid.instance), dtype=np.bool_)
    duration = np.full(len(grid.instance), np.nan)
    seen = ~np.isnan(grid.duration).all(axis=0)
    duration[seen] = np.nanmedian(grid.duration[:, seen], axis=0)
    known = np.array([usual.duration.get(kind_of(grid, i), np.nan) for i in range(len(grid.instance))])
    return np.asarray(duration >= rules.slower * known)


def _actual_times(grid: Grid) -> Floats:
    """Actual time of each rank in all instances; per byte where ranks have to send unlike volumes, as in a tree."""
    sent = np.nanmean(grid.sent, axis=1)
    time = np.nanmean(grid.actual, axis=1)
    alike = np.nanmax(sent) <= 1.25 * max(float(np.nanmin(sent)), 1.0)
    return np.asarray(time if alike else time / np.maximum(sent, 1.0))


def slow_in_custom(
    grid: Grid,
    table: Participation,
    rules: ComparisonRules,
    usual: Usual | None = None,
    members: Sequence[int] = (),
) -> Verdict | None:
    """The straggler of a communicator's last ``recent`` custom collectives, if there is one.

    First by the rank-level actual rate, each against what is usual for the rank; where that is not known it has to
    differ by twice as much, since ranks send unlike volumes. Who is silent for most of the time is not held up by what
    it can send; where one of ``members`` was not seen, nor is who is silent for more than built-in collectives allow,
    as that one may be waited for. Where all who send to one rank are slow to it alone, that rank's own way in is slow:
    rates of senders cannot show it.
    """
    chosen = grid.choose(np.flatnonzero(grid.complete & grid.custom)[-rules.recent :])
    if len(chosen.instance) < min(_FEWEST, rules.recent):
        return None
    rate = np.nanmean(rates(chosen), axis=1)
    known = np.array([usual.rate.get((grid.communicator, int(r)), np.nan) if usual else np.nan for r in chosen.rank])
    least = 2 * rules.custom_margin
    if not np.isnan(known).all():
        rate, least = rate / known, rules.custom_margin
    busy_share = rules.custom_busy_share if {*members} <= {*chosen.rank.tolist()} else rules.busy_share
    sending = np.nanmedian(chosen.actual / np.maximum(chosen.duration, 1.0), axis=1) >= busy_share
    towards, to_peer = _towards(chosen, table)
    for method, who, speed, margin, eligible in (
        ("actual_rate", chosen.rank, rate, least, sending),
        ("rate_to_peer", towards, to_peer, 2 * rules.custom_margin, True),  # single sends jitter more
    ):
        ratio, deviation = over_others(speed)
        slow = np.flatnonzero(eligible & (ratio <= 1.0 - np.maximum(margin, rules.spread * deviation)))
        if len(slow):
            worst = slow[np.argmin(ratio[slow])]
            return Verdict(
                cause="communication_slow",
                level="device",
                ranks=(int(who[worst]),),
                method=method,
                communicator=grid.communicator,
                instance=int(chosen.instance[-1]),
                evidence={
                    "ratio": float(ratio[worst]),
                    "deviation": float(deviation[worst]),
                    "collectives": float(len(chosen.instance)),
                },
                coverage=grid.coverage,
            )
    return None


def _towards(grid: Grid, table: Participation) -> tuple[Ints, Floats]:
    """Ranks that receive, and how fast what is sent to them is, over what its senders send to others.

    Who gets more than others gets it more slowly from each: what all send to it together counts. That is not known
    where one that receives was not seen to send, and others get from unlike many.
    """
    rows = grid.row[grid.row != UNKNOWN]
    part = table.take(np.sort(rows))
    lengths = np.diff(part.peer_offset)
    source, target = np.repeat(part.rank, lengths), part.peer
    receivers, of = np.unique(target, return_inverse=True)
    senders = [len(np.unique(source[target == receiver])) for receiver in receivers.tolist()]
    if len(set(senders)) > 1 and not np.isin(receivers, grid.rank).all():
        return receivers, np.full(len(receivers), np.nan)
    received = np.bincount(of, part.peer_sent)
    more = np.maximum(received / max(float(np.median(received)), 1.0), 1.0) if len(receivers) else received
    rate = part.peer_sent / np.maximum(part.peer_time_ns, 1) * more[of]
    speed = np.full(len(receivers), np.nan)
    for i, receiver in enumerate(receivers.tolist()):
        each = []
        for sender in np.unique(source[target == receiver]).tolist():
            own, others = (source == sender) & (target == receiver), (source == sender) & (target != receiver)
            if others.any() and float(np.median(rate[others])) > 0:
                each.append(float(np.median(rate[own])) / float(np.median(rate[others])))
        speed[i] = float(np.median(each)) if each else np.nan
    return receivers, speed


def stopped_in_collective(
    grid: Grid, table: Participation, rules: ComparisonRules, members: Sequence[int] = ()
) -> Verdict | None:
    """Who stopped first in a built-in collective that does not end: the rank that has sent the least part of its own.

    Two that have sent equally little are candidates; so is one of ``members`` that was not seen beside whom nobody else
    was seen to send to, as who gets nothing passes nothing on. A rank that never began is not this rule's
    (``chronological.not_entered``).
    """
    stuck = np.flatnonzero((grid.state == INCOMPLETE).any(axis=0) & ~grid.custom)
    if not len(stuck):
        return None
    at = int(stuck[0])
    share = np.where(np.isin(grid.state[:, at], (COMPLETE, INCOMPLETE)), grid.share[:, at], np.nan)
    if (grid.state[:, at] == MISSING_START).any() or np.count_nonzero(~np.isnan(share)) < _LEAST_RANKS:
        return None
    least = float(np.nanmin(share))
    ranks = tuple(grid.rank[share <= least + rules.tie_share].tolist())
    seen = ~np.isnan(share)
    every = {*members, *grid.rank.tolist()}
    sent_to = {peer for row in grid.row[seen, at].tolist() for peer in table.peer[table.peers(row)].tolist()}
    if len(ranks) == 1 and ranks[0] not in sent_to:
        ranks = tuple(sorted({*ranks, *every.difference(grid.rank[seen].tolist())}))
    return Verdict(
        cause="hang_hardware",
        level="device" if len(ranks) <= 2 else "group",
        ranks=ranks,
        method="volume",
        communicator=grid.communicator,
        instance=int(grid.instance[at]),
        candidates=tuple((rank,) for rank in ranks) if len(ranks) == 2 else (),
        evidence={"share": least, "others": float(np.nanmedian(share))},
        coverage=float(np.count_nonzero(seen)) / len(every),
    )


def stopped_in_custom(grid: Grid, table: Participation) -> Verdict | None:
    """Who is in all sends of a custom collective that do not end; of a single one both ends are candidates."""
    stuck = np.flatnonzero((grid.state == INCOMPLETE).any(axis=0) & grid.custom)
    if not len(stuck):
        return None
    at = int(stuck[0])
    pairs = _unfinished(table, [int(row) for row in grid.row[:, at] if row != UNKNOWN])
    if not pairs:
        return None
    # whoever gets no answers sends again, so of two ends that is the living one; and who began was there
    again = _sending_again(grid, at)
    silent = set(grid.rank[np.isnan(grid.duration[:, at]) & (grid.state[:, at] != UNKNOWN_STATE)].tolist())
    both = set.intersection(*(set(pair) for pair in pairs))
    both = both - again or both
    everywhere = sorted(both & silent or both)
    ranks = tuple(everywhere) or tuple(sorted({rank for pair in pairs for rank in pair}))
    return Verdict(
        cause="hang_hardware",
        level="device" if everywhere else "group",
        ranks=ranks,
        method="completion",
        communicator=grid.communicator,
        instance=int(grid.instance[at]),
        candidates=tuple((rank,) for rank in ranks) if len(everywhere) > 1 else (),
        evidence={"incomplete_sends": float(len(pairs)), "sending_again": float(len(again))},
        coverage=float(np.mean(grid.state[:, at] != UNKNOWN_STATE)),
    )


def untaken(grid: Grid, table: Participation, job: Job) -> Verdict | None:
    """The machine that takes nothing of custom collectives: the only sender that is not through with them has sent it
    nothing at all of the last one, and the others, which it sends to at once, all of theirs. A sender that stops does
    so for each of them. Where it sends again it is for ``stopped_in_custom`` to tell.
    """
    stuck = np.flatnonzero((grid.state == INCOMPLETE).any(axis=0) & grid.custom)
    pairs = _unfinished(table, [int(row) for row in grid.row[:, stuck].ravel() if row != UNKNOWN])
    if len(pairs) != 1 or any(_sending_again(grid, int(at)) for at in stuck):
        return None
    ((sender, receiver),) = pairs
    at = int(stuck[-1])
    row = int(grid.row[np.searchsorted(grid.rank, sender), at])
    if row == UNKNOWN:
        return None
    peers = table.peers(row)
    to_it = table.peer[peers] == receiver
    began = receiver in grid.rank[~np.isnan(grid.duration[:, at]) | (grid.state[:, at] == UNKNOWN_STATE)]
    if began or to_it.all() or table.peer_sent[peers][to_it].any():
        return None
    return Verdict(
        cause="hang_not_entered",
        level="machine",
        ranks=job.ranks_beside(receiver),
        method="untaken",
        communicator=grid.communicator,
        instance=int(grid.instance[at]),
        evidence={"taken_by_others": float(np.count_nonzero(~to_it))},
        coverage=float(np.mean((grid.state[:, at] != UNKNOWN_STATE) | (grid.row[:, at] == UNKNOWN))),
    )


def unanswered(grid: Grid, table: Participation) -> Verdict | None:
    """The only rank that others send the same to again and again, and that has not begun what they have: its NIC takes
    nothing any more. Whoever only computes no more is not sent anything, since it is not ready to receive. Who was not
    seen may have begun.
    """
    sent = (grid.row != UNKNOWN) & grid.custom & ~np.isnan(grid.duration)
    if not sent.any():
        return None
    at = int(np.flatnonzero(sent.any(axis=0))[-1])
    again = _sending_again(grid, at)
    rows = grid.row[np.isin(grid.rank, list(again)), at].tolist()
    to = [set(table.peer[table.peers(row)].tolist()) for row in rows]
    unknown = (grid.row[:, at] != UNKNOWN) & (grid.state[:, at] == UNKNOWN_STATE)
    silent = set.intersection(*to) - set(grid.rank[sent[:, at] | unknown].tolist()) if to else set()
    if len(silent) != 1:
        return None
    return Verdict(
        cause="hang_hardware",
        level="device",
        ranks=tuple(silent),
        method="unanswered",
        communicator=grid.communicator,
        instance=int(grid.instance[at]),
        evidence={"sending_again": float(len(again))},
        coverage=float(np.mean((grid.state[:, at] != UNKNOWN_STATE) | (grid.row[:, at] == UNKNOWN))),
    )


def _sending_again(grid: Grid, at: int) -> set[int]:
    """The ranks that went on sending for long after others had ended, or than was usual before."""
    duration, before = grid.duration[:, at], grid.duration[:, :at][:, grid.custom[:at]]
    seen = before[~np.isnan(before)]
    least = min(float(np.nanmin(duration)), float(np.median(seen)) if len(seen) else np.inf)
    return set(grid.rank[duration >= least + RESENT_NS].tolist())


def _unfinished(table: Participation, rows: Sequence[int]) -> set[tuple[int, int]]:
    return {
        (int(table.rank[row]), int(peer))
        for row in rows
        if table.state[row] in {INCOMPLETE, MISSING_START}
        for peer, done in zip(table.peer[table.peers(row)], table.peer_done[table.peers(row)], strict=True)
        if not done
    }
