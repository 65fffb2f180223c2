"""The layout of a job, told from its communicators: degrees of parallelism, and what each communicator is for.

Ranks are in Megatron's order: tensor fastest, then context, data, pipeline. Tensor groups are therefore runs of
neighbouring ranks that communicate in every layer, pipelines are what sends and receives connect, and data
parallelism is what remains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from diagnosis.communicator_use import CommunicatorUse
from diagnosis.job import MOST_RANKS, Layout

TENSOR, CONTEXT, EXPERT, DATA, PIPELINE = "tp", "cp", "ep", "dp", "pp"
EMBEDDING, MODEL_PARALLEL, WORLD = "embedding", "model_parallel", "world"

_SCALAR_BYTES = 4096
"""Larger buffers are gradients; smaller ones norms, flags and counters."""

Pairs = Collection[tuple[int, int]]


def infer_layout(uses: Sequence[CommunicatorUse], pairs: Pairs, ranks: Sequence[int]) -> Layout | None:
    """The degrees that communicators show; None where they fit no layout in Megatron's order.

    ``pairs`` are the ranks that send to each other, ``ranks`` all ranks of the job. A single group that gathers and
    scatters in the passes is taken for sharded data parallelism, not for a tensor group with sequence parallelism.
    """
    world = len(ranks)
    if world > 1 and not any(len(use.ranks) > 1 for use in uses):
        return None
    chains = {len(chain) for chain in _connected(pairs)} or {1}
    if len(chains) > 1:
        return None
    pp = chains.pop()
    passes = [use for use in uses if not use.in_step and not use.point_to_point and len(use.ranks) > 1]
    dense = [use for use in passes if "all_to_all" not in use.ops]
    if pp == 1 and all(len(use.ranks) == world for use in uses) and any("reduce_scatter" in use.ops for use in dense):
        dense = []
    tp = _busiest_size([use for use in dense if _stride(use.ranks) == 1])
    cp = _busiest_size([use for use in dense if _stride(use.ranks) == tp]) if tp > 1 else 1
    ep = _busiest_size([use for use in passes if "all_to_all" in use.ops])
    layout = Layout(tp=tp, pp=pp, dp=world // (tp * cp * pp), cp=cp, ep=ep, source="inferred")
    try:
        check_layout(layout, pairs, ranks)
    except ValueError:
        return None
    return layout


def check_layout(layout: Layout, pairs: Pairs, ranks: Sequence[int], uses: Collection[CommunicatorUse] = ()) -> None:
    """Raise ``ValueError`` that names the contradiction between a layout and what a log shows.

    ``uses`` are communicators of which all members are known.
    """
    world, highest = layout.world, max(ranks)
    shown = f"layout {degrees(layout)}"
    if not world:
        raise ValueError(f"{shown}: give tp, pp and dp")
    remedy = "give degrees whose product is the number of the job's ranks, logged or not, or none to have them inferred"
    if world > MOST_RANKS:
        raise ValueError(f"{shown} has {world} ranks, and no job has more than {MOST_RANKS}; {remedy}")
    if highest >= world:
        raise ValueError(f"{shown} has {world} ranks, but there is a rank {highest}; {remedy}")
    if len(ranks) != world:
        missing = next(rank for rank in range(world) if rank not in set(ranks))
        raise ValueError(f"{shown} has {world} ranks, but rank {missing} is not in the log; {remedy}")
    for one, other in pairs:
        a, b = _Place.of(one, layout), _Place.of(other, layout)
        if a.stage == b.stage or (a.tensor, a.replica) != (b.tensor, b.replica):
            raise ValueError(
                f"{shown} puts ranks {one} and {other} into no common pipeline, but they send to each other, "
                f"and has {world} ranks; {remedy}"
            )
    for use in uses:
        if not use.point_to_point and not _fits(use, layout):
            raise ValueError(f"{shown}: ranks {list(use.ranks)} of communicator {use.communicator} fit no group of it")


def degrees(layout: Layout) -> str:
    """A layout's degrees, as they are given: ``tp=2,pp=4,dp=1``."""
    named = ("tp", "pp", "dp", "cp") if layout.cp not in {None, 1} else ("tp", "pp", "dp")
    return ",".join(f"{name}={getattr(layout, name)}" for name in named)


def communicator_kinds(uses: Sequence[CommunicatorUse], layout: Layout) -> dict[str, str | None]:
    """What each communicator is for: tp, cp, ep, dp, pp, embedding, model_parallel or world; None: not known."""
    return {use.communicator: _kind(use, layout) for use in uses}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a rank stands: its stage, its index in its tensor group, and its replica of the model."""

    stage: int
    tensor: int
    replica: int

    @classmethod
    def of(cls, rank: int, layout: Layout) -> _Place:
        return cls(layout.pipeline_stage(rank) or 0, rank % (layout.tp or 1), layout.replica(rank) or 0)


def _fits(use: CommunicatorUse, layout: Layout) -> bool:
    """Whether ranks of one replica and stage are a whole tensor group, and those of several replicas divide these."""
    places = [_Place.of(rank, layout) for rank in use.ranks]
    stages, tensors = {p.stage for p in places}, {p.tensor for p in places}
    if len(stages) > 1:
        return True
    replicas = {p.replica for p in places}
    if len(replicas) == 1:
        return len(tensors) in {1, layout.tp}
    return (layout.dp or 1) * (layout.cp or 1) % len(replicas) == 0


def _kind(use: CommunicatorUse, layout: Layout) -> str | None:
    places = [_Place.of(rank, layout) for rank in use.ranks]
    stages, tensors = {p.stage for p in places}, {p.tensor for p in places}
    replicas = {p.replica for p in places}
    if use.point_to_point:
        return PIPELINE
    if "all_to_all" in use.ops:
        return EXPERT
    if len(use.ranks) == 1:
        return None
    if len(stages) == len(tensors) == 1:
        return CONTEXT if (layout.cp or 1) > 1 and len(use.ranks) == layout.cp else DATA
    if len(replicas) == 1:
        if len(stages) == 1:
            return MODEL_PARALLEL if use.in_step else TENSOR
        ends = len(use.ranks) == 2 and len(tensors) == 1 and stages == {0, (layout.pp or 1) - 1}
        whole_model = len(use.ranks) == (layout.tp or 1) * (layout.pp or 1)
        if ends and (not whole_model or use.largest_bytes > _SCALAR_BYTES):
            return EMBEDDING
        return MODEL_PARALLEL
    return WORLD if len(use.ranks) == layout.world else None


def _busiest_size(uses: Sequence[CommunicatorUse]) -> int:
    """Size of the groups that are called most; 1 where there are none."""
    calls: Counter[int] = Counter()
    for use in uses:
        calls[len(use.ranks)] = max(calls[len(use.ranks)], round(use.calls))
    return calls.most_common(1)[0][0] if calls else 1


def _stride(ranks: Sequence[int]) -> int | None:
    """The distance between neighbours where it is always the same."""
    steps = {b - a for a, b in pairwise(ranks)}
    return steps.pop() if len(steps) == 1 else None


def _connected(pairs: Pairs) -> list[set[int]]:
    """Ranks that pairs connect."""
    chain_of: dict[int, set[int]] = {}
    for one, other in pairs:
        merged = chain_of.get(one, {one}) | chain_of.get(other, {other})
        for rank in merged:
            chain_of[rank] = merged
    return list({id(chain): chain for chain in chain_of.values()}.values())
