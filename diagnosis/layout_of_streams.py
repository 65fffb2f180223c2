"""The layout of a job whose log names no communicators, told from what runs on the streams of its ranks.

Ranks are in Megatron's order. The first stage begins its iterations with a send; the last one, like the first, sends
and receives half as often as those between, so that both ends of the pipelines show how wide a stage is and how many
there are. Tensor groups are told by which neighbours are near (rank_distance.py). Ranks without a log are unknown: the
job has as few ranks as fit what the others show, and where several layouts do, or half of the ranks are missing, there
is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagnosis.job import MOST_RANKS, Layout
from diagnosis.rank_distance import Calls, block_size, clear_block_size, shows_strangers, telling_sizes
from diagnosis.streams import Streams

_HALF = 0.75
"""Stages with a smaller share of what those that send and receive most do are at an end of the pipelines."""


def layout_of_streams(streams: Streams) -> Layout | None:
    """The degrees of parallelism; None where they cannot be told."""
    ends = PipelineEnds.of(streams)
    shape = _stage(streams) if ends is None else _stages(streams, ends)
    if shape is None or 2 * len(streams.ranks) <= shape.world:
        return None
    return Layout(tp=shape.tensor, pp=shape.stages, dp=shape.width // shape.tensor, source="inferred")


def may_be(layout: Layout, streams: Streams) -> bool:
    """Whether a layout has all ranks that logged, and those at the ends of its pipelines are where they show to be.

    A layout of just these ranks is not doubted.
    """
    world, ranks = layout.world, streams.ranks
    if not world or not ranks[-1] < world <= MOST_RANKS:
        return False
    if len(ranks) == world:
        return True
    ends, stages = PipelineEnds.of(streams), layout.pp or 1
    if ends is None or stages == 1:
        return ends is None and stages == 1
    width = world // stages
    first = {rank for rank in ranks if rank < width}
    last = {rank for rank in ranks if rank >= world - width}
    return ends.first == first and (ends.last is None or ends.last == last)


@dataclass(frozen=True, slots=True)
class PipelineEnds:
    """Which of the ranks that logged are of the first stage, and which of the last: None where they do not differ."""

    first: frozenset[int]
    last: frozenset[int] | None

    @classmethod
    def of(cls, streams: Streams) -> PipelineEnds | None:
        """None where nobody sends to the next stage."""
        pipelined = streams.first_of_each_rank(streams.paired)
        if not pipelined:
            return None
        first = frozenset(rank for rank, stream in pipelined.items() if streams.begins_with_send(stream))
        calls = {rank: streams.usual_calls[stream] for rank, stream in pipelined.items()}
        ends = frozenset(rank for rank in calls if calls[rank] < _HALF * max(calls.values()))
        return cls(first, ends - first if ends and first <= ends else None)


@dataclass(frozen=True, slots=True)
class _Shape:
    """So many stages of so many ranks each, in tensor groups of a size."""

    stages: int
    width: int
    tensor: int

    @property
    def world(self) -> int:
        return self.stages * self.width


def _stages(streams: Streams, ends: PipelineEnds) -> _Shape | None:
    """The shape of a job with pipelines; None where these are not as expected, or do not tell it.

    Where ranks are missing at the bounds of stages, several may be: groups that wait must lie within stages then.
    """
    if len(streams.first_of_each_rank(streams.paired)) < len(streams.ranks):
        return None
    calls = streams.tensor_calls
    shapes = [
        _Shape(stages, width, size)
        for stages, width in _fitting(streams.ranks, ends)
        if stages > 1 and (size := _tensor_size(streams, calls, width)) is not None
    ]
    if len(shapes) > 1:
        widths = [shape.width for shape in shapes]
        telling = telling_sizes(streams.heaviest_calls, widths) if len(calls) < len(streams.ranks) else []
        shapes = [shape for shape in shapes if shape.tensor > 1 or shape.width in telling]
    least = min((shape.world for shape in shapes), default=0)
    smallest = [shape for shape in shapes if shape.world == least]
    return smallest[0] if len(smallest) == 1 else None


def _fitting(ranks: Sequence[int], ends: PipelineEnds) -> Iterator[tuple[int, int]]:
    """How many stages of how many ranks there may be."""
    for width in _boundaries(ends.first, ranks):
        if ends.last is None and ends.first:
            yield ranks[-1] // width + 1, width
        elif ends.last:
            for start in _boundaries({*ranks} - ends.last, ranks):
                if start % width == 0 and start + width > ranks[-1]:
                    yield start // width + 1, width


def _boundaries(before: Collection[int], ranks: Sequence[int]) -> range:
    """Which rank may be the first after those ``before``: none where others are among these."""
    after = sorted({*ranks} - {*before})
    return range(max(max(before, default=0) + 1, 1), (after[0] if after else 0) + 1)


def _stage(streams: Streams) -> _Shape | None:
    """The shape of a job without pipelines; None where it cannot be told.

    That it has ranks after the last one that logged shows where that one's tensor group is not whole.
    """
    width, calls = streams.ranks[-1] + 1, streams.tensor_calls
    tensor = _tensor_size(streams, calls, width)
    if tensor in {None, width} and len(calls) > 1 and (clear := clear_block_size(calls)) is not None:
        return _Shape(1, -(-width // clear) * clear, clear)
    return None if tensor is None else _Shape(1, width, tensor)


def _tensor_size(streams: Streams, calls: Mapping[int, Calls], width: int) -> int | None:
    """The size of tensor groups; None where ranks are missing, and those of a stage are not one group for sure."""
    if len(calls) < len(streams.ranks):
        return 1
    size = block_size(calls, divisors(width))
    whole = len(streams.ranks) == streams.ranks[-1] + 1
    return None if size == width and not whole and shows_strangers(calls, width) else size


def divisors(number: int) -> list[int]:
    """All that a number can be divided by, ascending."""
    return [size for size in range(1, number + 1) if number % size == 0]
