"""Expands an execution's times into the logs that all ranks write, from the job's beginning to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from producers.simulation.cluster import Ints
from producers.simulation.durations import Durations
from producers.simulation.engine import IterationTimes, Moment, flattened
from producers.simulation.logged import SCOPES, Clocks, Lines, OperatorFacts, batch, ordinals, ring_gap
from producers.simulation.noise import Purpose


def expand(durations: Durations, times: Sequence[IterationTimes]) -> tuple[pa.Table, Ints]:
    """The rows of all ranks in world 0, and which of all operators they are.

    The table has the columns of telemetry.comm_ops and is sorted by rank and call order. The second result
    counts the operators of all ranks in that order, lost ones included; shape (rows,).
    """
    tables, kept = [], []
    clocks = Clocks.of(durations.cluster)
    before = 0
    for stage, program in enumerate(durations.programs):
        rows = _StageRows.of(durations, stage)
        facts = OperatorFacts.of(program)
        lines = _lines(durations, facts, rows, times, clocks)
        tables.append(pa.Table.from_batches([batch(durations.cluster, facts, lines)]))
        kept.append(before + rows.kept)
        before += rows.total
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks(), np.concatenate(kept)


@dataclass(frozen=True, slots=True)
class _StageRows:
    """Which rows one stage's logs hold: rank by rank, iteration by iteration, in call order.

    ``kept`` are their indices among the stage's ``total`` operators, lost ones included.
    """

    stage: int
    total: int
    kept: Ints
    rank: Ints
    iteration: Ints
    operator: Ints

    @classmethod
    def of(cls, durations: Durations, stage: int) -> _StageRows:
        ranks = durations.cluster.grid[stage]
        operators = len(durations.programs[stage].operators)
        a_rank = durations.scenario.iterations * operators
        kept = _kept(durations, ranks, a_rank)
        return cls(
            stage, len(ranks) * a_rank, kept, ranks[kept // a_rank], kept % a_rank // operators, kept % operators
        )


def _kept(durations: Durations, ranks: Ints, a_rank: int) -> Ints:
    """Indices of the rows that the logs of some ranks, of ``a_rank`` operators each, still hold."""
    profile, draws = durations.scenario.noise, durations.draws
    lost = [draws.stream(Purpose.LOSS, int(rank)).random(a_rank) < profile.lost_share for rank in ranks]
    gap_rank, first, last = ring_gap(draws, durations.scenario.world, profile.ring_gap_probability)
    for gone in (lost[i] for i in np.flatnonzero(ranks == gap_rank)):
        gone[int(first * a_rank) : int(last * a_rank)] = True
    return np.flatnonzero(~np.concatenate(lost))


def _lines(
    durations: Durations, facts: OperatorFacts, rows: _StageRows, times: Sequence[IterationTimes], clocks: Clocks
) -> Lines:
    def shown(moment: Moment) -> Ints:
        return clocks.read(rows.rank, flattened(times, rows.stage, moment, world=0)[rows.kept] * 1e9)

    iterations = durations.scenario.iterations
    place = (rows.rank * iterations + rows.iteration) * len(SCOPES) + facts.scope[rows.operator]
    return Lines(
        rank=rows.rank,
        iteration=rows.iteration,
        operator=rows.operator,
        call_order=ordinals(rows.rank),
        position=None if durations.scenario.omissions.labels else ordinals(place),
        call_ns=shown("call"),
        start_ns=shown("start"),
        end_ns=shown("end"),
    )
