"""Whom each send and recv of a pipeline meets, where the log does not say.

The order of microbatches is Megatron-LM's 1F1B without interleaving: every stage fills the pipeline with as many
forward passes as stages follow it, then alternates a forward and a backward pass, then drains. So the n-th send of
a stage's iteration goes to a stage that is known, whatever else is called between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnosis.columns import Ints, codes, integers

SEND, RECV = "send", "recv"
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Peers:
    """``peer`` and ``p2p_seq`` of each row, shape (n,); -1 where they are not known."""

    peer: Ints
    p2p_seq: Ints


def program(stage: int, stages: int, microbatches: int) -> Iterator[tuple[str, int, int]]:
    """The sends and recvs of an iteration: (op, stage at the other end, microbatch), in the order of the passes."""
    behind, ahead = stage - 1, stage + 1
    warm_up = min(stages - ahead, microbatches)
    steady = microbatches - warm_up
    calls = [call for i in range(warm_up) for call in ((RECV, behind, i), (SEND, ahead, i))]
    if steady:
        calls.append((RECV, behind, warm_up))
    for i in range(steady):
        calls += [(SEND, ahead, warm_up + i), (RECV, ahead, i), (SEND, behind, i)]
        if i + 1 < steady:
            calls.append((RECV, behind, warm_up + i + 1))
    calls += [call for i in range(steady, microbatches) for call in ((RECV, ahead, i), (SEND, behind, i))]
    return (call for call in calls if 0 <= call[1] < stages)


def infer_peers(table: pa.Table, chains: Mapping[str, Sequence[int]]) -> Peers:
    """The peers of sends and recvs on pipelines that name none.

    ``table`` has the columns of telemetry.comm_ops with iterations, sorted by rank and call order; ``chains`` are the
    ranks of each pipeline's communicator in the order of the stages. Where the stages of a pipeline do not call what
    their program says, or an iteration lacks lines, peers stay unknown.
    """
    peer, p2p_seq = integers(table, "peer").copy(), integers(table, "p2p_seq").copy()
    op, ops = codes(table, "op")
    communicator, names = codes(table, "communicator")
    rank, iteration = integers(table, "rank"), integers(table, "iteration")
    heads = {r: slice(*np.searchsorted(rank, [r, r + 1])) for chain in chains.values() for r in chain}
    code_of = {name: code for code, name in enumerate(names)}
    for name, chain in chains.items():
        calls = {}
        for r in chain:
            own = heads[r].start + np.flatnonzero(communicator[heads[r]] == code_of.get(name, _UNKNOWN))
            own = own[(iteration[own] >= 0) & (peer[own] == _UNKNOWN)]
            calls[r] = {kind: own[op[own] == ops.index(kind)] if kind in ops else own[:0] for kind in (SEND, RECV)}
        first = calls[chain[0]][SEND]
        microbatches = _usual_count(iteration[first])
        for stage, r in enumerate(chain):
            planned = list(program(stage, len(chain), microbatches))
            for kind in (SEND, RECV):
                rows = calls[r][kind]
                plan = np.array([(chain[to], m) for what, to, m in planned if what == kind], dtype=np.int64)
                if not len(plan) or _usual_count(iteration[rows]) != len(plan):
                    continue
                whole, ordinal = _ordinals(iteration[rows], len(plan))
                peer[rows[whole]] = plan[ordinal[whole], 0]
                p2p_seq[rows[whole]] = iteration[rows[whole]] * microbatches + plan[ordinal[whole], 1]
    return Peers(peer, p2p_seq)


def _usual_count(iteration: Ints) -> int:
    """How many rows an iteration usually has; 0 where there are none."""
    if not len(iteration):
        return 0
    _, counts = np.unique(iteration, return_counts=True)
    return int(np.bincount(counts).argmax())


def _ordinals(iteration: Ints, usual: int) -> tuple[NDArray[np.bool_], Ints]:
    """Which rows belong to iterations with the usual count, and the ordinal of each within its iteration."""
    heads = np.flatnonzero(np.diff(iteration, prepend=-1))
    sizes = np.diff(np.append(heads, len(iteration)))
    return np.repeat(sizes == usual, sizes), np.arange(len(iteration)) - np.repeat(heads, sizes)
