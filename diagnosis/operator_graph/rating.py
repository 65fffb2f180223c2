"""How much of the iterations' time a culprit's operator explains: the irregularity rate (Holmes 4.4).

As published it correlates two series of 100 iterations: how long the abnormal operator took, and how long the
iteration did. A straggler's own operator is short, so the abnormal one is its victims': that of the member which
waited longest for it. Where its series does not come, the time that the culprit itself lost in the iterations at hand
takes its place.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.operator_graph.delays import measure
from diagnosis.operator_graph.leaf import OperatorRef
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Need, Needs, Series
from diagnosis.operators import UNKNOWN, Operators
from diagnosis.ranking.irregularity_rate import irregularity_rate

LEAST_SERIES = 3
"""Fewer pairs correlate by chance alone."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A culprit's operator, whether it is slow itself or what was computed before it, and where the search began."""

    operator: OperatorRef
    transferring: bool
    pivot: int


@dataclass(frozen=True, slots=True)
class Rate:
    """The correlation and the two series, in ns."""

    operator_ns: tuple[int, ...]
    iteration_ns: tuple[int, ...]
    irregularity_rate: float


class OperatorKey(NamedTuple):
    """One operator of the iteration's cycle."""

    rank: int
    communicator: str
    position: int


def rated(
    logs: Logs, suspects: Sequence[Suspect], iteration: int, baseline: Sequence[int], window: tuple[int, ...]
) -> Generator[Needs, Answer, list[Rate]]:
    """The rate of each suspect; asks for one series each, of the iterations of ``window``, and for nothing else."""
    keys = [abnormal_operator(logs, suspect) if window else None for suspect in suspects]
    needs = tuple(
        Need((key.rank,), window, key.communicator, positions=(key.position,), what="series")
        for key in dict.fromkeys(keys)
        if key is not None
    )
    came: dict[OperatorKey, Series] = {}
    if needs:
        answer = yield needs
        came = {OperatorKey(s.rank, s.communicator, s.position): s for s in answer.series}
    rates = []
    for suspect, key in zip(suspects, keys, strict=True):
        series = came.get(key) if key is not None else None
        if series is not None and len(series.operator_ns) >= LEAST_SERIES:
            told, of = series.operator_ns, series.iteration_ns
            rates.append(Rate(told, of, irregularity_rate(told, of)))
        else:
            rates.append(_by_lost_time(logs, suspect, iteration, baseline))
    return rates


def abnormal_operator(logs: Logs, suspect: Suspect) -> OperatorKey | None:
    """The operator that lasted long because of the suspect; None where the logs do not tell of one."""
    own = suspect.operator
    operators = logs.part([own.rank], [own.communicator]).operators
    low, high = np.searchsorted(operators.rank, [own.rank, own.rank + 1])
    at = low + np.flatnonzero(operators.call_ns[low:high] == own.call_ns)
    row = next((int(r) for r in at if operators.communicators[operators.communicator[r]] == own.communicator), None)
    if row is None or not operators.ended[row]:
        return None
    if suspect.transferring:
        return OperatorKey(own.rank, own.communicator, own.position) if own.position != UNKNOWN else None
    keys = operators.meeting_keys
    met = np.flatnonzero((keys == keys[row]) & (keys != UNKNOWN))
    waited = met[(operators.rank[met] != own.rank) & (operators.position[met] != UNKNOWN)]
    if len(waited):
        lasted = np.where(operators.ended[waited], operators.end_ns[waited] - operators.call_ns[waited], UNKNOWN)
        worst = int(waited[np.argmax(lasted)])
        return OperatorKey(int(operators.rank[worst]), own.communicator, int(operators.position[worst]))
    if own.position == UNKNOWN or operators.is_point_to_point(row):
        return None
    others = [rank for rank in logs.job.members.get(own.communicator, ()) if rank not in {own.rank, *logs.missing}]
    return OperatorKey(others[0], own.communicator, own.position) if others else None


def _by_lost_time(logs: Logs, suspect: Suspect, iteration: int, baseline: Sequence[int]) -> Rate:
    """The correlation of the time that the suspect lost and the iteration's, over the iterations at hand."""
    iterations = np.array(sorted({*baseline, iteration}), dtype=np.int64)
    part = logs.part([suspect.operator.rank, suspect.pivot], [suspect.operator.communicator])
    delays = measure(part, part.clocks, baseline)
    operators = delays.operators
    own = operators.rank == suspect.operator.rank
    values = delays.compute
    if suspect.transferring:
        own &= operators.communicator == operators.communicators.index(suspect.operator.communicator)
        values = delays.exposed
    durations = _durations(operators, suspect.pivot, iterations)
    lost = delays.series(values, own, iterations.tolist())
    known = ~np.isnan(durations) & ~np.isnan(lost)
    lost = lost[known]
    return Rate(
        tuple(int(v) for v in lost),
        tuple(int(v) for v in durations[known]),
        irregularity_rate(lost, durations[known]),
    )


def _durations(operators: Operators, rank: int, iterations: Ints) -> Floats:
    """From first call to last end of each iteration on one rank (its last call, where ends are not logged), in ns.

    Shape (len(iterations),), NaN: not seen.
    """
    own = operators.of_rank(rank)
    until = np.where(own.ended, own.end_ns, own.call_ns)
    spans = np.full(len(iterations), np.nan)
    for index, iteration in enumerate(iterations):
        inside = own.iteration == iteration
        if inside.any():
            spans[index] = until[inside].max() - own.call_ns[inside].min()
    return spans
