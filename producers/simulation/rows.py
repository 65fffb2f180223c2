"""Expands barrier and block times into the logs that the ranks write: comm_ops rows on their hosts' clocks.

What a logger does to them happens here, to healthy and faulty ranks alike: clocks that are off and drift,
lost lines, a ring that was written over, fields that are not carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.durations import Durations
from producers.simulation.engine import IterationTimes, Moment, flattened
from producers.simulation.noise import Draws, Floats, Purpose
from producers.simulation.schedule import Program, Scope
from schemas import comm_ops

_ITEM_BYTES = {"bfloat16": 2, "float32": 4, "int64": 8}
_DTYPES = tuple(_ITEM_BYTES)
_SCOPES = tuple(Scope)


def expand(durations: Durations, times: Sequence[IterationTimes]) -> tuple[pa.Table, Ints]:
    """The rows of all ranks in world 0, and which of all operators they are.

    The table has the columns of telemetry.comm_ops and is sorted by rank and call order. The second result
    counts the operators of all ranks in that order, lost ones included; shape (rows,).
    """
    tables, kept = [], []
    before = 0
    for stage, program in enumerate(durations.programs):
        rows = _StageRows.of(durations, stage)
        tables.append(pa.Table.from_batches([_batch(durations, program, rows, times)]))
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
    gap_rank, first, last = _ring_gap(draws, durations.scenario.world, profile.ring_gap_probability)
    for gone in (lost[i] for i in np.flatnonzero(ranks == gap_rank)):
        gone[int(first * a_rank) : int(last * a_rank)] = True
    return np.flatnonzero(~np.concatenate(lost))


def _ring_gap(draws: Draws, ranks: int, probability: float) -> tuple[int, float, float]:
    """Rank (-1: none) whose ring was written over, and the part of its log that is gone."""
    stream = draws.stream(Purpose.RING_GAP)
    happens, begin, length = stream.random(3)
    rank = int(stream.integers(ranks))
    return (rank if happens < probability else -1), begin, min(begin + 0.01 + 0.02 * length, 1.0)


def _batch(durations: Durations, program: Program, rows: _StageRows, times: Sequence[IterationTimes]) -> pa.RecordBatch:
    scenario, facts = durations.scenario, _OperatorFacts.of(program)
    clocks = _Clocks.of(durations)
    rank, iteration, operator = rows.rank, rows.iteration, rows.operator

    def shown(moment: Moment) -> Ints:
        return clocks.read(rank, flattened(times, rows.stage, moment, world=0)[rows.kept])

    paired = facts.peer_stage[operator] >= 0
    a_stage = durations.cluster.stage_ranks
    filled: dict[str, object] = {
        "rank": rank,
        "communicator": _communicators(durations.cluster, rank, facts.scope[operator]),
        "seq": iteration * facts.calls[operator] + facts.seq[operator],
        "call_order": _ordinals(rank),
        "op": _dictionary(facts.op[operator], comm_ops.OPS),
        "dtype": _dictionary(facts.dtype[operator], _DTYPES),
        "count": facts.count[operator],
        "bytes": facts.size[operator],
        "peer": pa.array(facts.peer_stage[operator] * a_stage + rank % a_stage, mask=~paired),
        "p2p_seq": pa.array(iteration * scenario.microbatches + facts.ordinal[operator], mask=~paired),
        "call_ns": shown("call"),
        "start_ns": shown("start"),
    }
    if not scenario.omissions.ends:
        filled["end_ns"] = shown("end")
    if not scenario.omissions.labels:
        microbatch = facts.microbatch[operator]
        place = (rank * scenario.iterations + iteration) * len(_SCOPES) + facts.scope[operator]
        filled["position"] = _ordinals(place)
        filled["iteration"] = iteration
        filled["microbatch"] = pa.array(microbatch, mask=microbatch < 0)
        filled["phase"] = _dictionary(facts.phase[operator], comm_ops.PHASES)
    return comm_ops.TOPIC.batch(filled)


def _communicators(cluster: Cluster, rank: Ints, scope: Ints) -> pa.DictionaryArray:
    """The communicator that each row's rank uses for its scope."""
    group = np.empty(len(rank), dtype=np.int64)
    names: list[str] = []
    for code in np.unique(scope):
        hit = scope == code
        group[hit] = len(names) + cluster.group_of_rank[_SCOPES[code]][rank[hit]]
        names += cluster.communicator_names[_SCOPES[code]]
    return _dictionary(group, names)


@dataclass(frozen=True, slots=True)
class _OperatorFacts:
    """A program's operators as columns; -1 stands for none."""

    op: Ints
    scope: Ints
    phase: Ints
    dtype: Ints
    size: Ints
    count: Ints
    microbatch: Ints
    peer_stage: Ints
    ordinal: Ints
    seq: Ints
    calls: Ints

    @classmethod
    def of(cls, program: Program) -> _OperatorFacts:
        operators = program.operators
        scope = np.array([_SCOPES.index(o.scope) for o in operators])
        dtype = np.array([_DTYPES.index(o.dtype) for o in operators])
        size = np.array([o.size for o in operators])
        return cls(
            op=np.array([comm_ops.OPS.index(o.op) for o in operators]),
            scope=scope,
            phase=np.array([comm_ops.PHASES.index(o.phase) for o in operators]),
            dtype=dtype,
            size=size,
            count=size // np.array([_ITEM_BYTES[name] for name in _DTYPES])[dtype],
            microbatch=np.array([-1 if o.microbatch is None else o.microbatch for o in operators]),
            peer_stage=np.array([-1 if o.peer_stage is None else o.peer_stage for o in operators]),
            ordinal=np.array([o.ordinal for o in operators]),
            seq=_ordinals(scope),
            calls=np.bincount(scope, minlength=len(_SCOPES))[scope],
        )


@dataclass(frozen=True, slots=True)
class _Clocks:
    """The hosts' clocks: each is off by an offset and drifts."""

    started_ns: int
    gpus_per_host: int
    offset_ns: Floats
    drift: Floats

    @classmethod
    def of(cls, durations: Durations) -> _Clocks:
        cluster, profile = durations.cluster, durations.scenario.noise
        draws = np.array([durations.draws.stream(Purpose.CLOCK, h).uniform(-1, 1, 2) for h in range(cluster.hosts)])
        return cls(
            cluster.started_ns,
            durations.scenario.gpus_per_host,
            draws[:, 0] * profile.clock_offset_s * 1e9,
            draws[:, 1] * profile.clock_drift_ppm * 1e-6,
        )

    def read(self, rank: Ints, seconds: Floats) -> Ints:
        """What the clocks of the ranks' hosts show at points in time, in ns since the epoch."""
        host = rank // self.gpus_per_host
        shown = seconds * 1e9 * (1 + self.drift[host]) + self.offset_ns[host]
        return self.started_ns + np.rint(shown).astype(np.int64)


def _ordinals(keys: Ints) -> Ints:
    """For each element how many equal ones precede it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else np.zeros(0, dtype=np.int64)
    lengths = np.diff(np.r_[starts, len(keys)])
    result = np.empty(len(keys), dtype=np.int64)
    result[order] = np.arange(len(keys)) - np.repeat(starts, lengths)
    return result


def _dictionary(codes: Ints, values: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), pa.array(values, pa.string()))
