"""Whether a rank is slow by itself, or its whole host is (a step beyond Holmes 4.3.2).

A busy CPU slows all ranks of its host alike, so the walk ends at whichever of them entered last, or, where a tensor
parallel group fills the host, at their NVLinks if ends are not logged: all members go on late together. Other ranks of
the host, and what the members do after operators that other hosts take part in, tell.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.job import Job
from diagnosis.operator_graph.delays import measure
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs

NORMAL_MAD = 1.4826
"""Standard deviations to one median absolute deviation of normal values: a lost line makes one sum useless, not all."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Up to ``most_mates`` other ranks of a host are looked at; where fewer than ``least_mates`` tell, nothing is said.

    Each must have computed longer than usual by ``alike`` of what the leaf's rank did. Where ends are not logged, each
    must have gone on late after operators with other hosts: beyond ``sigmas``, ``least_slowdown`` of the usual and
    ``least_share`` of what the leaf lost.
    """

    most_mates: int = 3
    least_mates: int = 2
    alike: float = 0.5
    sigmas: float = 3.0
    least_slowdown: float = 0.03
    least_share: float = 0.01


def slow_hosts(
    logs: Logs, leaves: Sequence[Leaf], baseline: Sequence[int], settings: HostSettings
) -> Generator[Needs, Answer, list[bool]]:
    """Of each leaf, whether its host is slow rather than its GPU or NVLinks."""
    told = []
    for leaf in leaves:
        mates = _mates(logs.job, leaf.rank, settings.most_mates)
        ended = logs.ended(leaf.rank)
        if len(mates) < settings.least_mates or (leaf.communicator is not None and ended):
            told.append(False)
        elif ended:
            yield from logs.fetch({None: mates})
            told.append(_compute_alike(logs, leaf, mates, baseline, settings))
        else:
            ranks = (leaf.rank, *mates)
            names = _abroad(logs.job, ranks)
            yield from logs.fetch({name: set(ranks) & {*logs.job.members[name]} for name in names})
            shared = _collectives(logs.part((), names), names)
            yield from logs.fetch({name: logs.job.members[name] for name in shared})
            told.append(_go_on_late(logs.part((), shared), leaf, ranks, baseline, settings))
    return told


def _mates(job: Job, rank: int, most: int) -> tuple[int, ...]:
    """Other ranks of a rank's host, spread over it."""
    host = job.place[rank].host if rank in job.place else None
    others = [other for other in job.ranks_of_host.get(host, ()) if other != rank] if host is not None else []
    return tuple(others[i] for i in np.unique(np.linspace(0, len(others) - 1, most).astype(int))) if others else ()


def _abroad(job: Job, ranks: Sequence[int]) -> list[str]:
    """Communicators of ranks that other hosts take part in."""
    names = {name for rank in ranks for name in job.communicators_of.get(rank, ())}
    return [name for name in sorted(names) if not job.on_one_host(job.members[name])]


def _collectives(logs: Logs, names: Sequence[str]) -> list[str]:
    operators = logs.operators
    codes = np.unique(operators.communicator[~operators.point_to_point]).tolist()
    return sorted({operators.communicators[code] for code in codes} & set(names))


def _compute_alike(
    logs: Logs, leaf: Leaf, mates: Sequence[int], baseline: Sequence[int], settings: HostSettings
) -> bool:
    """Whether the mates whose logs are at hand computed about as much longer than usual."""
    part = logs.part((leaf.rank, *mates), ())
    delays = measure(part, part.clocks(), baseline)

    def lost(rank: int) -> float:
        return float(np.nansum(delays.compute[delays.rows(rank, [leaf.iteration])]))

    told = [lost(rank) for rank in mates if rank not in logs.missing]
    return len(told) >= settings.least_mates and min(told) >= settings.alike * max(lost(leaf.rank), 1.0)


def _go_on_late(logs: Logs, leaf: Leaf, ranks: Sequence[int], baseline: Sequence[int], settings: HostSettings) -> bool:
    """Whether all ranks at hand went on later than usual after operators that other hosts took part in."""
    if not len(logs.operators):
        return False
    delays = measure(logs, logs.clocks(), baseline)
    late = []
    for rank in ranks:
        rows = delays.rows(rank, [leaf.iteration])
        rows = rows[~np.isnan(delays.onward[rows])]
        if not len(rows):
            continue
        usual = float((delays.spent.onward - delays.onward)[rows].sum())
        series = delays.series(delays.onward, delays.operators.rank == rank, baseline)
        amount = float(delays.onward[rows].sum() - np.median(series))
        chance = settings.sigmas * NORMAL_MAD * float(np.median(np.abs(series - np.median(series))))
        late.append(amount > max(chance, settings.least_slowdown * usual, settings.least_share * leaf.excess_ns))
    return len(late) > settings.least_mates and all(late)
