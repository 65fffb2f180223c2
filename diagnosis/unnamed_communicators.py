"""Communicators of logs that do not name them: each rank's streams, matched with those of the other ranks.

A stream of a rank is one of its communicators. What it is for shows in the rank's own log (what runs on it, and when in
an iteration); which ranks share it is told from the order of ranks (Megatron's: tensor fastest, then context, data,
pipeline; layout_of_streams.py) and from the calls: members call the same operators, at a steady distance from each
other, and none goes on before all have called (rank_distance.py). What cannot be told stays a communicator of one rank.
Ranks without a log are members too: of what those that have one show to be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from diagnosis.communicator_use import CommunicatorUse
from diagnosis.job import Layout
from diagnosis.layout import CONTEXT, DATA, EMBEDDING, EXPERT, MODEL_PARALLEL, PIPELINE, TENSOR, WORLD
from diagnosis.layout_of_streams import divisors, layout_of_streams, may_be
from diagnosis.rank_distance import block_size, first_in_step
from diagnosis.rank_grid import Groups, RankGrid
from diagnosis.streams import SCALARS, Streams


@dataclass(frozen=True, slots=True)
class Matched:
    """The communicator that each stream belongs to, where that could be told, all ranks that are in it, ascending,
    and the layout that both follow from. ``contrary``: the one that the calls show, where stages or tensor groups of
    the given one are others.
    """

    communicator: Mapping[str, str]
    members: Mapping[str, tuple[int, ...]]
    layout: Layout | None
    contrary: Layout | None = None


def match_streams(table: pa.Table, layout: Layout | None = None) -> Matched:
    """Find which streams of the ranks are one communicator.

    ``table`` has the columns of telemetry.comm_ops with iterations and positions, sorted by rank and call order; its
    communicators are streams of single ranks. A ``layout`` that is given is taken instead of being told from the calls,
    unless it has other ranks than those that logged and the calls contradict it.
    """
    streams = Streams.of(table)
    shown, contrary = layout_of_streams(streams), None
    if layout is None:
        layout = shown
    else:
        contrary = shown if shown is not None and _contradicts(shown, layout) else None
        layout = layout if may_be(layout, streams) else None
    if layout is None:
        return Matched({}, {}, None, contrary)
    names: dict[str, str] = {}
    members: dict[str, tuple[int, ...]] = {}
    numbers: Counter[str] = Counter()
    for matched in _matched(streams, layout):
        for group in matched.groups:
            name = f"{matched.kind}{numbers[matched.kind]}"
            numbers[matched.kind] += 1
            names |= {streams.names[matched.stream[rank]]: name for rank in group if rank in matched.stream}
            members[name] = tuple(sorted(group))
    return Matched(names, members, layout, contrary)


def _contradicts(shown: Layout, given: Layout) -> bool:
    """Whether stages or tensor groups are others. One group of all ranks may be either kind, which shows nothing."""
    return shown.world not in {shown.tp, shown.dp} and (shown.tp, shown.pp) != (given.tp, given.pp)


@dataclass(frozen=True, slots=True)
class _Class:
    """Streams that look alike, one a rank at most, with what they are for and which ranks share one."""

    kind: str
    stream: Mapping[int, int]
    groups: Groups


def _matched(streams: Streams, layout: Layout) -> Iterator[_Class]:
    """The communicators of each kind."""
    grid = RankGrid.of(layout)
    pipelined = streams.first_of_each_rank(streams.paired)
    if pipelined and grid.stages > 1:
        yield _Class(PIPELINE, pipelined, _shown(streams, grid.pipelines(), pipelined))
    tensor = streams.tensor
    for alike in streams.alike():
        use = streams.use[next(iter(alike.values()))]
        if use.in_step:
            kind, groups = _of_step(streams, alike, grid, use)
        elif all(tensor.get(rank) == stream for rank, stream in alike.items()):
            kind, groups = TENSOR, grid.tensor()
        else:
            kind = EXPERT if "all_to_all" in use.ops else CONTEXT
            groups = _blocks(streams, alike, grid)
        yield _Class(kind, alike, [group for group in _shown(streams, groups, alike) if len(group) > 1])


def _shown(streams: Streams, groups: Groups, alike: Mapping[int, int]) -> Groups:
    """The groups of which all members that logged have one of the streams, and some did."""
    logged = set(streams.ranks)
    return [group for group in groups if set() < logged & set(group) <= set(alike)]


def _blocks(streams: Streams, alike: Mapping[int, int], grid: RankGrid) -> Groups:
    """Groups among the replicas of a stage: neighbours that are near."""
    lines = grid.data()
    order = [rank for line in lines for rank in line]
    logged = set(streams.ranks)
    calls = {
        place: streams.calls(alike[rank]) if rank in alike else None
        for place, rank in enumerate(order)
        if rank in logged
    }
    size = block_size(calls, divisors(grid.replicas))
    return [line[i : i + size] for line in lines for i in range(0, len(line), size)]


def _of_step(streams: Streams, alike: Mapping[int, int], grid: RankGrid, use: CommunicatorUse) -> tuple[str, Groups]:
    """Gradients and parameters go between replicas, those of tied embeddings between the ends of pipelines; of what
    else an optimizer step does, who waits for whom tells. The stream that a rank used first is that of all ranks.
    """
    if "reduce_scatter" in use.ops or (grid.replicas > 1 and streams.heaviest_of_step(alike)):
        return DATA, grid.data()
    covered, logged = set(alike), set(streams.ranks)
    if grid.stages > 1 and use.largest_bytes > SCALARS and covered <= {r for ends in grid.ends() for r in ends}:
        return EMBEDDING, grid.ends()
    likely: list[tuple[str, Groups]] = [
        (MODEL_PARALLEL, grid.models()),
        (WORLD, [grid.ranks()]),
        (DATA, grid.data()),
        (TENSOR, grid.tensor()),
        (EMBEDDING, grid.ends()),
    ]
    if streams.first(alike):
        likely.insert(0, likely[1])
    fitting = [(k, g) for k, g in likely if len(g[0]) > 1 and logged & {r for group in g for r in group} == covered]
    calls = {rank: streams.calls(stream) for rank, stream in alike.items()}
    first = first_in_step([groups for _, groups in fitting], calls) if fitting else None
    return (WORLD, []) if first is None else fitting[first]
