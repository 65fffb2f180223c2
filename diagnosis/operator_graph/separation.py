"""Which member makes a channel's transfers slow (a step beyond Holmes 4.3.2).

A collective's members all see the same slow transfer, so its log alone cannot name one. But a slow NIC slows
everything that crosses it: the culprit is the member whose other channels are slow as well.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.job import Job
from diagnosis.operator_graph.delays import Delays, measure
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs


@dataclass(frozen=True, slots=True)
class SeparationSettings:
    """A transfer is slow beyond ``sigmas`` and ``least_slowdown`` of the usual.

    At least ``slow_share`` of a culprit's channels are slow. A member with less than ``comparable`` of the strongest
    suspect's excess is no suspect beside it.
    """

    sigmas: float = 3.0
    least_slowdown: float = 0.1
    slow_share: float = 0.5
    comparable: float = 0.5


@dataclass(frozen=True, slots=True)
class Separation:
    """``ranks`` are the members told apart; empty: the evidence reaches no further than ``members``."""

    members: tuple[int, ...]
    ranks: tuple[int, ...]


def separate(
    logs: Logs,
    leaf: Leaf,
    baseline: Sequence[int],
    settings: SeparationSettings,
) -> Generator[Needs, Answer, Separation]:
    """Tell the members of a slow channel apart by their other channels over the same medium."""
    local = logs.job.on_one_host(leaf.members)
    names = {name for member in leaf.members for name in logs.job.communicators_of.get(member, ())}
    groups = {name: logs.job.members[name] for name in names}
    wanted: dict[str | None, Iterable[int]] = {
        name: ranks for name, ranks in sorted(groups.items()) if logs.job.on_one_host(ranks) == local
    }
    if logs.operators.ended.mean() < 0.5:
        # only the members' next calls tell when an operator ended
        wanted = {None: {rank for ranks in groups.values() for rank in ranks}}
    yield from logs.fetch(wanted)
    delays = measure(logs, logs.clocks(), baseline)
    excess: dict[int, float] = {}
    for member in leaf.members:
        judged = list(_slowness(delays, logs.job, member, leaf, baseline, settings))
        slow = [amount for amount in judged if amount > 0]
        if slow and len(slow) >= settings.slow_share * len(judged):
            excess[member] = sum(slow)
    strongest = max(excess.values(), default=0.0)
    ranks = tuple(member for member, amount in excess.items() if amount >= settings.comparable * strongest)
    return Separation(leaf.members, ranks)


def _slowness(
    delays: Delays,
    job: Job,
    member: int,
    leaf: Leaf,
    baseline: Sequence[int],
    settings: SeparationSettings,
) -> Iterator[float]:
    """By how much (ns) the member's transfers on each other channel of the leaf's medium are slow; 0: they are not."""
    operators = delays.operators
    local = job.on_one_host(leaf.members)
    own = operators.rank == member
    known = own & (operators.iteration == leaf.iteration) & ~np.isnan(delays.transfer)
    for channel in np.unique(delays.channel[known]):
        now = known & (delays.channel == channel)
        members = delays.members(int(np.flatnonzero(now)[0]), job)
        # what all of them share tells nobody apart
        if set(leaf.members) <= set(members) or len(members) < 2 or job.on_one_host(members) != local:
            continue
        on = own & (delays.channel == channel)
        amount = float(delays.transfer[now].sum())
        usual = float(delays.transfer_usual[now].sum())
        chance = settings.sigmas * delays.spread(delays.transfer, on, baseline)
        yield amount if amount > max(chance, settings.least_slowdown * usual) else 0.0
