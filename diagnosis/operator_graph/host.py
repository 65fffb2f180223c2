"""Whether a rank is slow by itself, or its whole host is (a step beyond Holmes 4.3.2).

A busy CPU slows all ranks of its host alike, so the walk ends at whichever of them entered last, or, where a tensor
parallel group fills the host, at their NVLinks if ends are not logged: all members go on late together. Other ranks of
the host, and what the members do after operators that other hosts take part in, tell. So does how far apart the
members call: a busy CPU delays each process by itself, slow NVLinks delay all that met last by the same.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.job import Job
from diagnosis.numbering import numbered
from diagnosis.operator_graph.delays import Delays, measure, usual_by_number
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.log_view import LogView
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.meetings import queued
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operators import ONE_SIDED, UNKNOWN, Operators
from diagnosis.robust import NORMAL_MAD


@dataclass(frozen=True, slots=True)
class HostSettings:
    """When a whole host is slow, and not one of its GPUs or its NVLinks (a step beyond Holmes 4.3.2).

    Its other ranks tell, by what they computed or, where ends are not logged, by when they call what stays on the host
    and how late they go on after operators with other hosts. So does how far apart the members of its NVLinks call,
    which no clock of another host disturbs.
    """

    most_mates: int = 3
    """Number of other ranks of a suspected host whose logs are read, spread over it."""
    least_mates: int = field(default=2, metadata={"least": 1})
    """Number of other ranks that a host must have, and that must be heard of, for it to be named."""
    alike: float = 0.5
    """Part of what the suspected rank lost by computing, or of what the latest rank is late by where ends are not
    logged, that each of the others must show as well, and can have lost, by when both call what stays on the host."""
    sigmas: float = 3.0
    """Number of standard deviations (estimated from the median distance to the median) by which ranks must go on, or
    call, later than they did in the baseline."""
    least_slowdown: float = 0.03
    """Where ends are not logged, part of the usual time until a rank goes on by which it must be late."""
    least_share: float = 0.1
    """Part of what the suspected rank lost in each of its operators, on average, by which ranks must go on, or members
    of its NVLinks call, later than usual; members that call later by more than all of it came late from elsewhere."""
    outlying: float = 0.1
    """Where ends are not logged, part of the least and of the greatest values that are left out of each average."""
    most_members: int = 256
    """Where ends are not logged, communicators with other hosts are not asked if they have more members than this,
    which would cost too much."""
    least_operators: int = field(default=3, metadata={"least": 1})
    """Where ends are not logged, number of a rank's operators with other hosts in an iteration by which it is told how
    late it goes on: fewer leave no outlier out, and what clocks drift apart shifts all ranks of a host alike."""
    least_each: float = 0.2
    """Part of their mean delay by which each member of the NVLinks must call later; else one of them is slow, and not
    the host."""


Whose = Literal["device", "host", "either"]
"""Whose fault it is that a leaf lost time: that of its GPU or its NVLinks, of its host, or of one of these."""


def slow_hosts(
    logs: Logs, leaves: Sequence[Leaf], baseline: Sequence[int], settings: HostSettings
) -> Generator[Needs, Answer, list[Whose]]:
    """Whose fault each leaf is; hosts of too few ranks are not told from their GPUs and NVLinks.

    Of the channels on a host the one that lost most tells: who comes from slow NVLinks calls further apart elsewhere.
    """
    blamed: list[Whose] = []
    for leaf in leaves:
        mates = _mates(logs.job, leaf.rank, settings.most_mates)
        ended = logs.ended(leaf.rank)
        if len(mates) < settings.least_mates:
            blamed.append("device")
        elif ended and leaf.communicator is not None:  # to split its transfers the walk has seen its members' calls
            apart = _members_call_apart(logs, leaf, leaf.communicator, baseline, settings)
            blamed.append("host" if apart else "device")
        elif ended:
            yield from logs.fetch({None: mates})
            blamed.append("host" if _compute_alike(logs, leaf, mates, baseline, settings) else "device")
        else:
            blamed.append((yield from _without_ends(logs, leaf, mates, baseline, settings)))
    of_links = _hosts_of_slow_nvlinks(logs.job, leaves, blamed)
    return [
        "device" if leaf.communicator is not None and logs.job.clock(leaf.rank) in of_links else whose
        for leaf, whose in zip(leaves, blamed, strict=True)
    ]


def _hosts_of_slow_nvlinks(job: Job, leaves: Sequence[Leaf], blamed: Sequence[Whose]) -> set[str]:
    """The clocks of hosts of whose channels the one that lost most is slow by itself."""
    ascending = sorted(zip(leaves, blamed, strict=True), key=lambda told: told[0].excess_ns)
    of_largest = {job.clock(leaf.rank): whose for leaf, whose in ascending if leaf.communicator is not None}
    return {clock for clock, whose in of_largest.items() if whose == "device"}


def _without_ends(
    logs: Logs, leaf: Leaf, mates: Sequence[int], baseline: Sequence[int], settings: HostSettings
) -> Generator[Needs, Answer, Whose]:
    """Whose fault a leaf is, by calls alone."""
    if leaf.communicator is not None:
        yield from logs.fetch({leaf.communicator: leaf.members})
        if _members_call_apart(logs, leaf, leaf.communicator, baseline, settings):
            return "host"
    elif _calls_after_a_mate(logs, leaf, mates, baseline, settings):
        return "device"
    a_call_ns = _lost_a_call(logs, leaf)
    ranks = (leaf.rank, *mates)
    names = [name for name in _abroad(logs.job, ranks) if len(logs.job.members[name]) <= settings.most_members]
    yield from logs.fetch({name: set(ranks) & {*logs.job.members[name]} for name in names})
    shared = _collectives(logs.part((), names), names)
    yield from logs.fetch({name: logs.job.members[name] for name in shared})
    return _go_on_late(logs.part((), shared), shared, leaf, ranks, baseline, a_call_ns, settings)


def _mates(job: Job, rank: int, most: int) -> tuple[int, ...]:
    """Other ranks of a rank's host, spread over it."""
    others = [other for other in job.ranks_beside(rank) if other != rank]
    return tuple(others[i] for i in np.unique(np.linspace(0, len(others) - 1, most).astype(int))) if others else ()


def _abroad(job: Job, ranks: Sequence[int]) -> list[str]:
    """Communicators of ranks that other hosts take part in."""
    names = {name for rank in ranks for name in job.communicators_of.get(rank, ())}
    return [name for name in sorted(names) if not job.on_one_host(job.members[name])]


def _collectives(view: LogView, names: Sequence[str]) -> list[str]:
    return sorted(view.operators.groups & set(names))


def _compute_alike(
    logs: Logs, leaf: Leaf, mates: Sequence[int], baseline: Sequence[int], settings: HostSettings
) -> bool:
    """Whether the mates whose logs are at hand computed about as much longer than usual, beyond what the leaf leaves
    out: what all ranks compute longer is no host's fault.
    """
    part = logs.part((leaf.rank, *mates), ())
    delays = measure(part, part.clocks, baseline)

    rows = {rank: delays.rows(rank, [leaf.iteration]) for rank in (leaf.rank, *mates)}
    lost_ns = {rank: float(np.nansum(delays.compute[own])) for rank, own in rows.items()}
    common_ns = max(0.0, lost_ns[leaf.rank] - leaf.excess_ns)
    excesses_ns = [lost_ns[rank] - common_ns for rank in mates if delays.knows("compute", rows[rank])]
    return len(excesses_ns) >= settings.least_mates and min(excesses_ns) >= settings.alike * leaf.excess_ns


def _lost_a_call(logs: Logs, leaf: Leaf) -> float:
    """What the leaf's rank lost in each of its operators of the iteration, in ns."""
    own = logs.part([leaf.rank], ()).operators.of_rank(leaf.rank)
    return leaf.excess_ns / max(int((own.iteration == leaf.iteration).sum()), 1)


def _calls_after_a_mate(
    logs: Logs, leaf: Leaf, mates: Sequence[int], baseline: Sequence[int], settings: HostSettings
) -> bool:
    """Whether the leaf's rank lost more than one of its mates can have: so much later than that mate, beyond what is
    usual, it called the collectives that both are in, and no other host is. Their own clock tells.

    Where calls are queued, and wait for nobody, one delay shows in all that follow, and nothing is told. Looked at is
    what is at hand.
    """
    job = logs.job
    within = [name for name in job.communicators_of.get(leaf.rank, ()) if job.on_one_host(job.members[name])]
    operators = logs.part((leaf.rank, *mates), within).operators
    codes = [code for code, name in enumerate(operators.communicators) if name in within]
    together = np.isin(operators.communicator, codes) & ~operators.point_to_point & ~operators.is_op(*ONE_SIDED)
    for mate in mates:
        rows = _met_by_all(operators, together & np.isin(operators.rank, (leaf.rank, mate)), 2)
        if not len(rows) or _are_queued(operators, rows):
            continue
        first, after = rows[:, 0], (1, -1) if leaf.rank < mate else (-1, 1)
        iteration = operators.iteration[first]
        lag = (operators.call_ns[rows] @ after).astype(np.float64)
        place = numbered(operators.communicator[first], operators.position[first])
        late = lag - usual_by_number(lag, place, np.isin(iteration, baseline))
        before = np.array([np.nansum(late[iteration == each]) for each in baseline if each in iteration])
        if len(before) < 2:
            continue
        now, chance = _beyond_usual(float(np.nansum(late[iteration == leaf.iteration])), before, settings)
        if now > max((1 - settings.alike) * leaf.excess_ns, chance):
            return True
    return False


def _are_queued(operators: Operators, rows: Ints) -> bool:
    """Whether calls return before operators have run; rows of those that members met in, of shape (operators, members),
    all on one clock.
    """
    following = operators.next_calls[rows]
    known = (following != UNKNOWN).all(axis=1)
    entered = operators.call_ns[rows[known]].max(axis=1)
    return bool(known.any()) and queued(following[known].min(axis=1), entered)


def _members_call_apart(
    logs: Logs, leaf: Leaf, communicator: str, baseline: Sequence[int], settings: HostSettings
) -> bool:
    """Whether the leaf's members, which share a host's clock, called further apart than usual, each of them.

    Of members that come in parts that tells nothing. Looked at is what is at hand of their communicator.
    """
    job = logs.job
    if len({job.clock(rank) for rank in leaf.members}) > 1 or _come_in_parts(job, leaf.members):
        return False
    operators = logs.part((), [communicator]).operators
    shared = operators.communicator == operators.communicators.index(communicator)
    shared &= np.isin(operators.rank, leaf.members)
    behind, iteration = _behind_the_first(operators.take(shared), len(leaf.members))
    now, *before = (behind[iteration == each] for each in (leaf.iteration, *baseline))
    before = [seen for seen in before if len(seen)]
    if not len(now) or len(before) < 2:
        return False
    usual = np.array([np.median(seen.mean(axis=1)) for seen in before])
    apart, chance = _beyond_usual(float(np.median(now.mean(axis=1))), usual, settings)
    lost = _lost_a_call(logs, leaf)
    if not max(chance, settings.least_share * lost) < apart <= lost:
        return False
    each = now.mean(axis=0) - np.median([seen.mean(axis=0) for seen in before], axis=0)
    return bool(each.min() >= settings.least_each * each.mean())


def _come_in_parts(job: Job, members: Sequence[int]) -> bool:
    """Whether some members are a group of their own, so that slow NVLinks let them go at other times than the rest."""
    whole = set(members)
    parts = (set(job.members[name]) for rank in members for name in job.communicators_of.get(rank, ()))
    return any(len(part) > 1 and part < whole for part in parts)


def _behind_the_first(operators: Operators, members: int) -> tuple[Floats, Ints]:
    """How long after the first member each called an operator, in ns, of shape (operators, members), and the iterations
    of those that all were seen to call.
    """
    rows = _met_by_all(operators, np.ones(len(operators), dtype=np.bool_), members)
    calls = operators.call_ns[rows]
    return (calls - calls.min(axis=1, keepdims=True)).astype(np.float64), operators.iteration[rows[:, 0]]


def _met_by_all(operators: Operators, chosen: Bools, members: int) -> Ints:
    """The rows of those chosen that as many ranks as there are ``members`` called, of shape (operators, members), in
    order of the ranks.
    """
    keys = np.where(chosen, operators.meeting_keys, UNKNOWN) + 1  # 0: unknown whom it meets
    whole = np.flatnonzero((keys > 0) & (np.bincount(keys)[keys] == members) if len(keys) else keys)
    return whole[np.lexsort((operators.rank[whole], keys[whole]))].reshape(-1, members)


class _Onward(NamedTuple):
    """How much later than usual a rank goes on after an operator, how long it usually takes to, and how much later
    chance makes it; in ns.
    """

    late: float
    usual: float
    chance: float


def _go_on_late(
    view: LogView,
    names: Sequence[str],
    leaf: Leaf,
    ranks: Sequence[int],
    baseline: Sequence[int],
    a_call_ns: float,
    settings: HostSettings,
) -> Whose:
    """Whose fault a leaf is that lost ``a_call_ns`` in each of its operators: the host's, where all ranks at hand went
    on later than usual after operators on communicators with other hosts.

    Either's, where they did, but no more than they do by chance, or by as much as clocks may be off that slow NVLinks
    disturb.
    """
    if not len(view.operators):
        return "either"
    error_ns = 0  # of a rank that computes its own log tells, and clocks that are off shift it with its mates
    if leaf.communicator is not None:
        error_ns = view.clock_error_ns(_members(view.job, names))
    delays = measure(view, view.clocks, baseline)
    codes = [code for code, name in enumerate(delays.operators.communicators) if name in names]
    on = np.isin(delays.operators.communicator, codes)
    onwards = [_onward(delays, on, rank, leaf.iteration, baseline, settings) for rank in ranks]
    known = [onward for onward in onwards if onward is not None]
    if len(known) <= settings.least_mates:
        return "either"
    late = [onward.late for onward in known]
    are_late = all(
        onward.late > max(settings.least_slowdown * onward.usual, settings.least_share * a_call_ns) for onward in known
    )
    if not are_late or min(late) < settings.alike * max(late):
        return "device"
    return "host" if all(onward.late > max(onward.chance, error_ns) for onward in known) else "either"


def _onward(
    delays: Delays, on: Bools, rank: int, iteration: int, baseline: Sequence[int], settings: HostSettings
) -> _Onward | None:
    """How a rank goes on after its operators in some rows (a mask); None where too little is known of that."""
    onward = np.where(on, delays.onward, np.nan)
    rows = delays.rows(rank, [iteration])
    rows = rows[~np.isnan(onward[rows])]
    if len(rows) < settings.least_operators:
        return None
    now, usual = (_typical(of, rows, settings.outlying) for of in (onward, delays.spent.onward - onward))
    means = [_typical(onward, delays.rows(rank, [one]), settings.outlying) for one in baseline]
    before = np.array([mean for mean in means if mean is not None])
    if now is None or usual is None or len(before) < 2:
        return None
    late, chance = _beyond_usual(now, before, settings)
    return _Onward(late, usual, chance)


def _beyond_usual(now: float, before: Floats, settings: HostSettings) -> tuple[float, float]:
    """By how much a value is greater than those of the baseline are in the middle, and how much chance would do.

    By the median distance: a lost line makes one sum useless, not all.
    """
    usual = float(np.median(before))
    return now - usual, settings.sigmas * NORMAL_MAD * float(np.median(np.abs(before - usual)))


def _members(job: Job, names: Sequence[str]) -> set[int]:
    return {rank for name in names for rank in job.members[name]}


def _typical(values: Floats, rows: Ints, outlying: float) -> float | None:
    """Mean of the rows' known values without a share of the least and the greatest; None where there are none.

    A few operators wait for others as long as all the rest; of a slow GPU's half may be as usual.
    """
    known = np.sort(values[rows][~np.isnan(values[rows])])
    cut = max(1, int(outlying * len(known))) if len(known) > 2 else 0
    return float(known[cut : len(known) - cut].mean()) if len(known) else None
