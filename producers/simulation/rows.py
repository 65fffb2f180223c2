"""Expands barrier and block times into the logs that the ranks write: comm_ops rows on their hosts' clocks.

What a logger does to them happens here, to healthy and faulty ranks alike: clocks that are off and drift,
lost lines, a ring that was written over, fields that are not carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.durations import Durations
from producers.simulation.engine import IterationTimes, StageTimes
from producers.simulation.noise import Draws, Floats, Purpose
from producers.simulation.schedule import Program, Scope
from producers.simulation.truth import ACTUAL, HEALTHY, OPERATOR_SHARE
from schemas import comm_ops

Bools = npt.NDArray[np.bool_]

_ITEM_BYTES = {"bfloat16": 2, "float32": 4, "int64": 8}
_DTYPES = tuple(_ITEM_BYTES)
_SCOPES = tuple(Scope)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of one stage's rows: rank by rank, iteration by iteration, in call order."""

    rank: Ints
    iteration: Ints
    operator: Ints
    call_s: Floats
    start_s: Floats
    end_s: Floats
    abnormal: Bools


def expand(durations: Durations, times: Sequence[IterationTimes], lengths: Floats) -> tuple[pa.Table, Bools]:
    """The rows of all ranks, sorted by rank and call order, and which of them are truly abnormal operators.

    The table has the columns of telemetry.comm_ops. ``lengths`` as ``truth.iteration_lengths``.
    """
    tables, marks = [], []
    for stage, program in enumerate(durations.programs):
        columns = _stage_columns(durations.cluster, stage, [t.stages[stage] for t in times], lengths)
        kept = _kept(durations, columns, len(program.operators))
        tables.append(pa.Table.from_batches([_batch(durations, program, columns, kept)]))
        marks.append(columns.abnormal[kept])
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return table, np.concatenate(marks)


def _stage_columns(cluster: Cluster, stage: int, times: Sequence[StageTimes], lengths: Floats) -> _Columns:
    ranks = cluster.grid[stage].ravel()
    operators = len(times[0].call)

    def flat(pick: str, world: int) -> Floats:
        stacked = np.stack([getattr(t, pick)[:, world] for t in times])  # (iterations, operators, dp, tp)
        return stacked.transpose(2, 3, 0, 1).ravel()

    call, end = flat("call", ACTUAL), flat("end", ACTUAL)
    excess = np.repeat(lengths[:, ACTUAL] - lengths[:, HEALTHY], operators)
    longer = (end - call) - (flat("end", HEALTHY) - flat("call", HEALTHY))
    excess = np.tile(excess, len(ranks))
    return _Columns(
        rank=np.repeat(ranks, len(times) * operators),
        iteration=np.tile(np.repeat(np.arange(len(times)), operators), len(ranks)),
        operator=np.tile(np.arange(operators), len(ranks) * len(times)),
        call_s=call,
        start_s=flat("start", ACTUAL),
        end_s=end,
        abnormal=(longer >= OPERATOR_SHARE * excess) & (longer > 0) & (excess > 0),
    )


def _kept(durations: Durations, columns: _Columns, operators: int) -> Ints:
    """Indices of the rows that the logs still hold."""
    scenario, draws = durations.scenario, durations.draws
    a_rank = scenario.iterations * operators
    ranks = columns.rank[::a_rank]
    lost = np.concatenate(
        [draws.stream(Purpose.LOSS, int(rank)).random(a_rank) < scenario.noise.lost_share for rank in ranks]
    )
    gap_rank, first, last = _ring_gap(draws, scenario.world, scenario.noise.ring_gap_probability)
    at = np.flatnonzero(ranks == gap_rank)
    if len(at):
        base = int(at[0]) * a_rank
        lost[base + int(first * a_rank) : base + int(last * a_rank)] = True
    return np.flatnonzero(~lost)


def _ring_gap(draws: Draws, ranks: int, probability: float) -> tuple[int, float, float]:
    """Rank (-1: none) whose ring was written over, and the part of its log that is gone."""
    stream = draws.stream(Purpose.RING_GAP)
    happens, begin, length = stream.random(3)
    rank = int(stream.integers(ranks))
    return (rank if happens < probability else -1), begin, min(begin + 0.01 + 0.02 * length, 1.0)


def _batch(durations: Durations, program: Program, columns: _Columns, kept: Ints) -> pa.RecordBatch:
    cluster, scenario = durations.cluster, durations.scenario
    rank, iteration, operator = columns.rank[kept], columns.iteration[kept], columns.operator[kept]
    facts = _OperatorFacts.of(program)
    group = np.empty(len(kept), dtype=np.int64)
    names: list[str] = []
    for code in np.unique(facts.scope):
        hit = facts.scope[operator] == code
        scope = _SCOPES[code]
        group[hit] = len(names) + cluster.group_of_rank[scope][rank[hit]]
        names += cluster.communicator_names[scope]
    seq = iteration * facts.calls[operator] + facts.seq[operator]
    p2p = facts.peer_stage[operator] >= 0
    stride = scenario.tp * scenario.dp
    peer = facts.peer_stage[operator] * stride + rank % stride
    p2p_seq = iteration * scenario.microbatches + facts.ordinal[operator]
    clock = _Clocks.of(durations)
    filled: dict[str, object] = {
        "rank": rank,
        "communicator": _dictionary(group, names),
        "seq": seq,
        "call_order": _ordinals(rank),
        "op": _dictionary(facts.op[operator], list(comm_ops.OPS)),
        "dtype": _dictionary(facts.dtype[operator], list(_DTYPES)),
        "count": facts.count[operator],
        "bytes": facts.size[operator],
        "peer": pa.array(peer, mask=~p2p),
        "p2p_seq": pa.array(p2p_seq, mask=~p2p),
        "call_ns": clock.read(rank, columns.call_s[kept]),
        "start_ns": clock.read(rank, columns.start_s[kept]),
    }
    if not scenario.omissions.ends:
        filled["end_ns"] = clock.read(rank, columns.end_s[kept])
    if not scenario.omissions.labels:
        filled["position"] = _ordinals((rank * scenario.iterations + iteration) * len(_SCOPES) + facts.scope[operator])
        filled["iteration"] = iteration
        filled["microbatch"] = pa.array(facts.microbatch[operator], mask=facts.microbatch[operator] < 0)
        filled["phase"] = _dictionary(facts.phase[operator], list(comm_ops.PHASES))
    return comm_ops.TOPIC.batch(filled)


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


def _dictionary(codes: Ints, values: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), pa.array(values))
