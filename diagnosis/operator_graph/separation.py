"""Which member makes a communicator's transfers slow (a step beyond Holmes 4.3.2).

A collective's members all see the same slow transfer, so its log alone cannot name one. But a slow NIC slows
everything that crosses it: the culprit is the member whose other communicators are slow as well.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.operator_graph.delays import Delays, measure
from diagnosis.operator_graph.logs import Answer, Logs, Needs


@dataclass(frozen=True, slots=True)
class SeparationSettings:
    """A transfer is slow beyond ``sigmas`` and ``least_slowdown`` of the usual; a culprit's are in the majority.

    A member with less than ``comparable`` of the strongest suspect's excess is no suspect beside it.
    """

    sigmas: float = 3.0
    least_slowdown: float = 0.2
    majority: float = 0.5
    comparable: float = 0.5


@dataclass(frozen=True, slots=True)
class Separation:
    """``ranks`` are the members told apart; empty: the evidence reaches no further than ``members``."""

    members: tuple[int, ...]
    ranks: tuple[int, ...]


def separate(
    logs: Logs,
    communicator: str,
    iteration: int,
    baseline: Sequence[int],
    pivot: int,
    settings: SeparationSettings,
) -> Generator[Needs, Answer, Separation]:
    """Tell a slow communicator's members apart by their other communicators over the same medium."""
    job = logs.job
    members = tuple(sorted(job.members[communicator]))
    local = job.on_one_host(members)
    others = {
        member: [
            name
            for name in job.communicators_of[member]
            if name != communicator and len(job.members[name]) > 1 and job.on_one_host(job.members[name]) == local
        ]
        for member in members
    }
    neighbours = {rank for names in others.values() for name in names for rank in job.members[name]}
    yield from logs.fetch({None: neighbours | set(members)})
    delays = measure(logs, logs.clocks(pivot), baseline)
    excess: dict[int, float] = {}
    for member in members:
        judged = [_slow(delays, member, name, iteration, baseline, settings) for name in others[member]]
        known = [amount for amount in judged if amount is not None]
        slow = [amount for amount in known if amount > 0]
        if slow and len(slow) >= settings.majority * len(known):
            excess[member] = sum(slow)
    strongest = max(excess.values(), default=0.0)
    return Separation(members, tuple(m for m, amount in excess.items() if amount >= settings.comparable * strongest))


def _slow(
    delays: Delays,
    rank: int,
    communicator: str,
    iteration: int,
    baseline: Sequence[int],
    settings: SeparationSettings,
) -> float | None:
    """By how much (ns) a rank's transfers on a communicator are slow; 0: they are not; None: not known."""
    operators = delays.operators
    if communicator not in operators.communicators:
        return None
    on = (operators.rank == rank) & (operators.communicator == operators.communicators.index(communicator))
    now = on & (operators.iteration == iteration) & ~np.isnan(delays.transfer)
    if not now.any():
        return None
    amount = float(delays.transfer[now].sum())
    usual = float(delays.transfer_usual[now].sum())
    chance = settings.sigmas * delays.spread(delays.transfer, on, baseline)
    return amount if amount > max(chance, settings.least_slowdown * usual) else 0.0
