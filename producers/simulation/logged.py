"""What a log holds of an operator: the columns of telemetry.comm_ops, and what a logger does to them.

It happens to healthy and faulty ranks alike: clocks that are off and drift, lost lines, a ring that was written over,
fields that are not carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.noise import Draws, Floats, Purpose
from producers.simulation.schedule import Program, Scope
from schemas import comm_ops

_ITEM_BYTES = {"bfloat16": 2, "float32": 4, "int64": 8}
_DTYPES = tuple(_ITEM_BYTES)
SCOPES = tuple(Scope)


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of one stage's ranks; ``operator`` is the place in the stage's program, times are what clocks show.

    Without ``position`` the rows carry no iteration either. ``next_ns``, if given, is when ranks went on, -1: not
    known.
    """

    rank: Ints
    iteration: Ints
    operator: Ints
    call_order: Ints
    position: Ints | None
    call_ns: Ints
    start_ns: Ints
    end_ns: Ints
    next_ns: Ints | None = None


def batch(cluster: Cluster, facts: OperatorFacts, lines: Lines) -> pa.RecordBatch:
    """The rows as a batch of telemetry.comm_ops, without what the scenario's logs omit."""
    scenario = cluster.scenario
    rank, iteration, operator = lines.rank, lines.iteration, lines.operator
    paired = facts.peer_stage[operator] >= 0
    a_stage = cluster.stage_ranks
    filled: dict[str, object] = {
        "rank": rank,
        "communicator": _communicators(cluster, rank, facts.scope[operator]),
        "seq": iteration * facts.calls[operator] + facts.seq[operator],
        "call_order": lines.call_order,
        "op": _dictionary(facts.op[operator], comm_ops.OPS),
        "dtype": _dictionary(facts.dtype[operator], _DTYPES),
        "count": facts.count[operator],
        "bytes": facts.size[operator],
        "peer": pa.array(facts.peer_stage[operator] * a_stage + rank % a_stage, mask=~paired),
        "p2p_seq": pa.array(iteration * scenario.microbatches + facts.ordinal[operator], mask=~paired),
        "call_ns": lines.call_ns,
        "start_ns": lines.start_ns,
    }
    if not scenario.omissions.ends:
        filled["end_ns"] = lines.end_ns
    if lines.next_ns is not None:
        filled["next_call_ns"] = pa.array(lines.next_ns, mask=lines.next_ns < 0)
    if lines.position is not None:
        filled["position"] = lines.position
        filled["iteration"] = iteration
    if not scenario.omissions.labels:
        microbatch = facts.microbatch[operator]
        filled["microbatch"] = pa.array(microbatch, mask=microbatch < 0)
        filled["phase"] = _dictionary(facts.phase[operator], comm_ops.PHASES)
    return comm_ops.TOPIC.batch(filled)


def _communicators(cluster: Cluster, rank: Ints, scope: Ints) -> pa.DictionaryArray:
    """The communicator that each row's rank uses for its scope."""
    group = np.empty(len(rank), dtype=np.int64)
    names: list[str] = []
    for code in np.unique(scope):
        hit = scope == code
        used, place = np.unique(cluster.group_of_rank[SCOPES[code]][rank[hit]], return_inverse=True)
        group[hit] = len(names) + place
        names += [cluster.communicator_names[SCOPES[code]][i] for i in used]
    return _dictionary(group, names)


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """A program's operators as columns; -1 stands for none.

    ``seq`` counts the operators of a scope within an iteration, ``calls`` is how many there are.
    """

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
    def of(cls, program: Program) -> OperatorFacts:
        """Of a stage's program."""
        operators = program.operators
        scope = np.array([SCOPES.index(o.scope) for o in operators])
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
            seq=ordinals(scope),
            calls=np.bincount(scope, minlength=len(SCOPES))[scope],
        )


@dataclass(frozen=True, slots=True)
class Clocks:
    """The hosts' clocks: each is off by an offset and drifts."""

    started_ns: int
    gpus_per_host: int
    offset_ns: Floats
    drift: Floats

    @classmethod
    def of(cls, cluster: Cluster) -> Clocks:
        """Of a cluster's hosts."""
        profile, draws = cluster.scenario.noise, Draws(cluster.scenario.seed)
        drawn = np.array([draws.stream(Purpose.CLOCK, host).uniform(-1, 1, 2) for host in range(cluster.hosts)])
        return cls(
            cluster.started_ns,
            cluster.scenario.gpus_per_host,
            drawn[:, 0] * profile.clock_offset_s * 1e9,
            drawn[:, 1] * profile.clock_drift_ppm * 1e-6,
        )

    def read(self, rank: Ints, elapsed_ns: npt.NDArray[np.float64] | Ints) -> Ints:
        """What the clocks of the ranks' hosts show, in ns since the epoch, some time after the job's start."""
        host = rank // self.gpus_per_host
        shown = elapsed_ns * (1 + self.drift[host]) + self.offset_ns[host]
        return np.asarray(self.started_ns + np.rint(shown).astype(np.int64))


def ring_gap(draws: Draws, ranks: int, probability: float) -> tuple[int, float, float]:
    """Rank (-1: none) whose ring was written over, and the part of its log that is gone."""
    stream = draws.stream(Purpose.RING_GAP)
    happens, begin, length = stream.random(3)
    rank = int(stream.integers(ranks))
    return (rank if happens < probability else -1), begin, min(begin + 0.01 + 0.02 * length, 1.0)


def ordinals(keys: Ints) -> Ints:
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
