"""What an agent always publishes of an iteration: a row a rank, worked out from the rank's operators."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers, nullable
from producers.log_store import Spans
from schemas.catalogue import ITERATION_SUMMARIES
from schemas.iteration_summaries import OPERATOR_SUMMARY

LEAST_ENDED = 0.95
"""Where more ends are unknown nobody knows how long the operators took together."""


def summarise(rows: pa.Table, spans: Spans, iteration: int, *, last: bool) -> pa.RecordBatch:
    """Records of telemetry.iteration_summaries.

    ``rows`` are the operators of one iteration, sorted by rank; ``spans`` tells of the same ranks. An operator's
    duration runs from its start (its call where no start was logged) to its end. The few that have no end are taken to
    have lasted as long as the others; where they are not few, nothing is said.
    """
    who = np.searchsorted(spans.rank, integers(rows, "rank"))
    ranks = len(spans.rank)
    size = integers(rows, "bytes")
    known_bytes = np.bincount(who[size >= 0], minlength=ranks) > 0
    total_bytes = np.zeros(ranks, dtype=np.int64)
    np.add.at(total_bytes, who, np.maximum(size, 0))
    return ITERATION_SUMMARIES.batch(
        {
            "rank": spans.rank,
            "iteration": np.full(ranks, iteration),
            "start_ns": spans.start_ns,
            "end_ns": nullable(spans.end_ns, spans.end_ns >= 0, pa.int64()),
            "pause_ns": _pauses(rows, who, spans),
            "operators": np.bincount(who, minlength=ranks),
            "bytes": nullable(total_bytes, known_bytes, pa.int64()),
            "lost_lines": spans.lost,
            "by_operator": _by_operator(rows, who, ranks),
            "last": pa.array([True if last else None] * ranks, pa.bool_()),
        }
    )


def _pauses(rows: pa.Table, who: Ints, spans: Spans) -> pa.Array:
    """How long each rank had no operator before its next iteration, as far as the end of the last one it called and the
    next call are known.
    """
    call_ns, end_ns = integers(rows, "call_ns"), integers(rows, "end_ns")
    order = np.lexsort((call_ns, who))
    latest = order[np.diff(who[order], append=-1) != 0]
    last_end = np.full(len(spans.rank), -1, dtype=np.int64)
    np.maximum.at(last_end, who, end_ns)
    known = np.zeros(len(spans.rank), dtype=np.bool_)
    known[who[latest]] = end_ns[latest] >= 0
    return nullable(np.maximum(spans.end_ns - last_end, 0), known & (spans.end_ns >= 0), pa.int64())


def _by_operator(rows: pa.Table, who: Ints, ranks: int) -> pa.ListArray:
    communicator, communicators = codes(rows, "communicator")
    op, ops = codes(rows, "op")
    kinds = max(len(ops), 1)
    per_rank = max(len(communicators), 1) * kinds
    keys, group = np.unique(who * per_rank + communicator * kinds + op, return_inverse=True)
    start, end = integers(rows, "start_ns"), integers(rows, "end_ns")
    start = np.where(start < 0, integers(rows, "call_ns"), start)
    ended = end >= 0
    total = np.zeros(len(keys), dtype=np.int64)
    longest = np.zeros(len(keys), dtype=np.int64)
    np.add.at(total, group[ended], (end - start)[ended])
    np.maximum.at(longest, group[ended], (end - start)[ended])
    count = np.bincount(group, minlength=len(keys))
    with_end = np.bincount(group[ended], minlength=len(keys))
    seen = with_end >= LEAST_ENDED * count
    total = np.rint(total * (count / np.maximum(with_end, 1))).astype(np.int64)
    columns = {
        "communicator": pa.array(communicators, pa.string()).take(pa.array(keys % per_rank // kinds)),
        "op": pa.array(ops, pa.string()).take(pa.array(keys % kinds)),
        "count": pa.array(count, pa.int32()),
        "duration_sum_ns": nullable(total, seen, pa.int64()),
        "duration_max_ns": nullable(longest, seen, pa.int64()),
    }
    structs = pa.StructArray.from_arrays(
        [columns[field.name] for field in OPERATOR_SUMMARY], fields=list(OPERATOR_SUMMARY)
    )
    offsets = np.searchsorted(keys // per_rank, np.arange(ranks + 1))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)
