"""Brings the rows of a recording into order: by rank and call, each once; counts what is missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers


@dataclass(frozen=True, slots=True)
class Tidied:
    """Rows sorted by rank and call order; ``duplicates`` were dropped, ``lost_lines`` are holes in the numbering."""

    table: pa.Table
    duplicates: int
    lost_lines: int


def tidy(table: pa.Table) -> Tidied:
    """Sort rows by rank and call order, and drop the second copy of a row.

    The call order is the one recorded where every row carries it, else that of the call times, and of the lines
    where those are equal. Rows of one rank, communicator and sequence number are copies of each other where they
    tell of the same call (logs that were collected twice); the copy that knows an end is kept. Otherwise they
    come from two runs: raises ``ValueError``.
    """
    recorded = not table.column("call_order").null_count
    table = _sorted(table, integers(table, "rank"), integers(table, "call_order" if recorded else "call_ns"))
    pair = _pairs(table)
    seq = integers(table, "seq")
    order = np.argsort(pair, kind="stable")
    order = order[seq[order] >= 0]
    same_pair = np.diff(pair[order]) == 0
    step = np.diff(seq[order])
    duplicates = 0
    if (same_pair & (step <= 0)).any():
        order = order[np.lexsort((integers(table, "end_ns")[order] < 0, seq[order], pair[order]))]
        same_pair = np.diff(pair[order]) == 0
        step = np.diff(seq[order])
        again = same_pair & (step == 0)
        _refuse_other_runs(table, order[:-1][again], order[1:][again])
        keep = np.ones(table.num_rows, dtype=np.bool_)
        keep[order[1:][again]] = False
        table = table.filter(pa.array(keep))
        duplicates = int(again.sum())
    lost = int((step[same_pair & (step > 1)] - 1).sum())
    return Tidied(table.combine_chunks(), duplicates, lost)


def _pairs(table: pa.Table) -> Ints:
    """A number a row that is the same for rows of one rank and communicator."""
    communicator, names = codes(table, "communicator")
    return integers(table, "rank") * max(len(names), 1) + communicator


def _sorted(table: pa.Table, rank: Ints, call: Ints) -> pa.Table:
    step, later = np.diff(rank), np.diff(call)
    if ((step > 0) | ((step == 0) & (later >= 0))).all():
        return table
    return table.take(pa.array(np.lexsort((call, rank)))).combine_chunks()


def _refuse_other_runs(table: pa.Table, kept: Ints, dropped: Ints) -> None:
    differ = np.zeros(len(kept), dtype=np.bool_)
    for name in ("op", "call_ns"):
        column = table.column(name)
        differ |= pc.not_equal(column.take(pa.array(kept)), column.take(pa.array(dropped))).to_numpy()
    if differ.any():
        at = int(kept[differ][0])
        rank, communicator, seq = (table.column(name)[at].as_py() for name in ("rank", "communicator", "seq"))
        raise ValueError(
            f"rank {rank} has two different operators with number {seq} on communicator {communicator}: "
            "are these the files of two runs? Diagnose each run by itself"
        )
