"""Whom each send and recv of a pipeline meets, and in which order, where the log does not say.

The order of microbatches is Megatron-LM's 1F1B without interleaving: every stage fills the pipeline with as many
forward passes as stages follow it, then alternates a forward and a backward pass, then drains. So the n-th send of
a stage's iteration goes to a stage that is known, whatever else is called between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers

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
    ranks of each pipeline's communicator in the order of the stages, those without a log included. Where the stages of
    a pipeline do not call what their program says, or which lines an iteration lacks cannot be told, peers stay
    unknown.
    """
    log = _Log.of(table)
    logged = set(np.unique(log.rank).tolist())
    peer, p2p_seq = log.peer.copy(), integers(table, "p2p_seq").copy()
    for name, chain in chains.items():
        calls = {rank: log.calls(rank, name) for rank in chain if rank in logged}
        shown = next(iter(calls))
        inner = shown not in {chain[0], chain[-1]}
        microbatches = _usual_count(log.iteration[calls[shown][SEND]]) // (2 if inner else 1)
        plans = {
            (rank, kind): np.array([(chain[to], m) for what, to, m in planned if what == kind], dtype=np.int64)
            for stage, rank in enumerate(chain)
            if rank in logged
            for planned in [list(program(stage, len(chain), microbatches))]
            for kind in (SEND, RECV)
        }
        usual = {(rank, kind): _usual_count(log.iteration[calls[rank][kind]]) for rank, kind in plans}
        if not microbatches or any(usual[call] != len(plan) for call, plan in plans.items()):
            continue
        for (rank, kind), plan in plans.items():
            rows = calls[rank][kind]
            ordinal = _ordinals(log.iteration[rows], log.group_call[rows], len(plan))
            rows, ordinal = rows[ordinal != _UNKNOWN], ordinal[ordinal != _UNKNOWN]
            peer[rows] = plan[ordinal, 0]
            p2p_seq[rows] = log.iteration[rows] * microbatches + plan[ordinal, 1]
    return Peers(peer, p2p_seq)


def number_pairs(table: pa.Table) -> Ints:
    """``p2p_seq`` of each row, shape (n,), -1: not known, of sends and recvs that name their peers.

    ``table`` as in ``infer_peers``. The n-th send of an iteration to a rank is the n-th recv there, in iterations of
    which no line lacks: of as many as most have, and as many at the other end. Pairs of which anything is numbered
    stay as they are, as do those that exchange on several communicators, whose order is not one.
    """
    log, p2p_seq = _Log.of(table), integers(table, "p2p_seq").copy()
    of_kind = [log.ops.index(kind) if kind in log.ops else _UNKNOWN for kind in (SEND, RECV)]
    rows = np.flatnonzero(np.isin(log.op, of_kind) & (log.iteration >= 0) & (log.peer != _UNKNOWN))
    ends = np.stack([log.rank[rows], log.peer[rows], log.op[rows] == of_kind[0]], axis=1)
    pairs, of_row = np.unique(ends, axis=0, return_inverse=True)
    order = np.argsort(of_row.ravel(), kind="stable")
    calls = np.split(rows[order], np.flatnonzero(np.diff(of_row.ravel()[order])) + 1) if len(rows) else []
    own = {(a, b, bool(sends)): of for (a, b, sends), of in zip(pairs.tolist(), calls, strict=True)}
    bare = {
        end: of
        for end, of in own.items()
        if (p2p_seq[of] == _UNKNOWN).all() and (log.communicator[of] == log.communicator[of[0]]).all()
    }
    usual = {end: _usual_count(log.iteration[of]) for end, of in bare.items()}
    for (rank, peer, sends), of in bare.items():
        count = usual[rank, peer, sends]
        if count != usual.get((peer, rank, not sends)):
            continue
        _, first, sizes = np.unique(log.iteration[of], return_index=True, return_counts=True)
        ordinal = np.arange(len(of)) - np.repeat(first, sizes)
        numbers = log.iteration[of] * count + ordinal
        p2p_seq[of] = np.where(np.repeat(sizes == count, sizes), numbers, _UNKNOWN)
    return p2p_seq


@dataclass(frozen=True)
class _Log:
    """The columns that peers are told from; sorted by rank and call order."""

    rank: Ints
    iteration: Ints
    communicator: Ints
    op: Ints
    peer: Ints
    group_call: Ints
    names: list[str]
    ops: list[str]

    @classmethod
    def of(cls, table: pa.Table) -> _Log:
        (communicator, names), (op, ops) = codes(table, "communicator"), codes(table, "op")
        rank, iteration, peer, group_call = (
            integers(table, name) for name in ("rank", "iteration", "peer", "group_call")
        )
        return cls(rank, iteration, communicator, op, peer, group_call, names, ops)

    def calls(self, rank: int, communicator: str) -> dict[str, Ints]:
        """The rows of a rank's sends and of its recvs on a communicator that name no peer."""
        low, high = np.searchsorted(self.rank, [rank, rank + 1])
        own = np.arange(low, high)
        own = own[self.communicator[own] == self.names.index(communicator)]
        own = own[(self.iteration[own] >= 0) & (self.peer[own] == _UNKNOWN)]
        return {
            kind: own[self.op[own] == self.ops.index(kind)] if kind in self.ops else own[:0] for kind in (SEND, RECV)
        }


def _usual_count(iteration: Ints) -> int:
    """How many rows an iteration usually has; 0 where there are none."""
    if not len(iteration):
        return 0
    _, counts = np.unique(iteration, return_counts=True)
    return int(np.bincount(counts).argmax())


def _ordinals(iteration: Ints, group_call: Ints, usual: int) -> Ints:
    """The ordinal of each row within its iteration's sends, or recvs; -1 where it cannot be told.

    ``group_call`` counts group calls (-1: not known). An iteration has as many as any other, so that the numbers tell
    the place of those that an iteration with lost lines still has.
    """
    found, first, sizes = np.unique(iteration, return_index=True, return_counts=True)
    ordinal = np.arange(len(iteration)) - np.repeat(first, sizes)
    whole = sizes == usual
    ordinal[~np.repeat(whole, sizes)] = _UNKNOWN
    if whole.all() or (group_call < 0).any():
        return ordinal
    at = np.flatnonzero(whole)
    neighbours = at[:-1][np.diff(found[at]) == 1]
    if not len(neighbours):
        return ordinal
    step = int(np.median(group_call[first[neighbours + 1]] - group_call[first[neighbours]]))
    pattern = group_call[first[at[-1]] : first[at[-1]] + usual] - group_call[first[at[-1]]]
    nearest = at[np.argmin(np.abs(found[:, None] - found[at][None, :]), axis=1)]
    base = group_call[first[nearest]] + step * (found - found[nearest])
    place = group_call - np.repeat(base, sizes)
    nth = np.minimum(np.searchsorted(pattern, place), usual - 1)
    placed = np.where((pattern[nth] == place) & (np.diff(pattern, prepend=-1) > 0).all(), nth, _UNKNOWN)
    return np.where(ordinal == _UNKNOWN, placed, ordinal)
