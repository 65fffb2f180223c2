"""A recording as the agent of a host with all of its ranks would have kept it."""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from producers import kept_iterations
from producers.log_index import LogIndex
from producers.log_store import Spans
from producers.segments import Segments

PLENTY = 1 << 30


def write(folder: Path, table: pa.Table, ranks: Collection[int] | None = None, *, first: int = 0) -> None:
    """Keep the iterations from ``first`` on, those before are overwritten; of some ranks, or all."""
    index = LogIndex(table)
    blocks, segments = index.blocks, Segments(folder, PLENTY)
    for iteration in index.iterations.tolist():
        own = blocks.iteration == iteration
        if ranks is not None:
            own &= [rank in ranks for rank in blocks.rank.tolist()]
        spans = Spans(blocks.rank[own], blocks.start_ns[own], blocks.end_ns[own], blocks.lost[own])
        parts = [index.table.slice(a, b - a) for a, b in zip(blocks.first[own], blocks.last[own], strict=True)]
        about = {"first": int(index.iterations[0]), "watermark_ns": 0, "calls": [], "holes": [], "last": []}
        if iteration >= first:
            rows = pa.concat_tables(parts).replace_schema_metadata(None)
            segments.append(iteration, kept_iterations.encode(rows, blocks.last[own] - blocks.first[own], spans, about))
