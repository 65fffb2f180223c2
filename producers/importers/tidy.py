"""Brings the rows of a recording into order: by rank and call, each once; counts what is missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers
from producers.importers.restarts import numbered_on
from producers.numbering import Numbering, numbering

_DAY_NS = 86_400 * 10**9
_LEAST_CALLS, _LEAST_ITERATIONS = 100, 3
"""What a rank called, or how far its iterations went, before that was a run."""
_NO_ITERATION = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Tidied:
    """Rows sorted by rank and call order; ``duplicates`` were dropped, ``lost_lines`` are holes in the sequence
    numbers, but for those of iterations that were not recorded. ``numbering`` is that of iterations, of which
    ``numbered_on`` says where their numbers start again (``restarts``); None: nowhere.
    """

    table: pa.Table
    duplicates: int
    lost_lines: int
    numbering: Numbering
    numbered_on: str | None


def tidy(table: pa.Table) -> Tidied:
    """Sort rows by rank and call order, and drop the second copy of a row.

    The call order is the one recorded where every row carries it, else that of the call times, and of the lines
    where those are equal. Rows of one rank, communicator and sequence number are copies of each other where they
    tell of the same call (logs that were collected twice); the copy that knows an end is kept. Otherwise they
    come from two runs or communicators: raises ``ValueError``, as where a rank begins anew with other communicators.
    """
    recorded = not table.column("call_order").null_count
    table = _sorted(table, integers(table, "rank"), integers(table, "call_order" if recorded else "call_ns"))
    pair = _pairs(table)
    seq = integers(table, "seq")
    order = np.argsort(pair, kind="stable")
    _refuse_later_run(table, pair, order)
    table, restarted = numbered_on(table)
    iteration = integers(table, "iteration")
    numbered = numbering(pair, seq, iteration)
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
    hole = same_pair & (step > 1)
    if numbered.sampled:
        hole &= np.diff(iteration[order]) == 0
    return Tidied(table.combine_chunks(), duplicates, int((step[hole] - 1).sum()), numbered, restarted)


def _pairs(table: pa.Table) -> Ints:
    """A number a row that is the same for rows of one rank and communicator."""
    communicator, names = codes(table, "communicator")
    return integers(table, "rank") * max(len(names), 1) + communicator


def _sorted(table: pa.Table, rank: Ints, call: Ints) -> pa.Table:
    step, later = np.diff(rank), np.diff(call)
    if ((step > 0) | ((step == 0) & (later >= 0))).all():
        return table
    return table.take(pa.array(np.lexsort((call, rank)))).combine_chunks()


def _refuse_later_run(table: pa.Table, pair: Ints, order: Ints) -> None:
    """Raise ``ValueError`` where a rank from a time on uses none of its communicators but others alone, and this is a
    day later, or counts iterations from the first one again. (Resumed from a checkpoint it goes on from a later one;
    setting up and warming up may have communicators of their own, and are over soon.)

    ``order`` sorts the rows by ``pair``.
    """
    heads = np.flatnonzero(np.diff(pair[order], prepend=-1))
    rank, call_ns, iteration = (integers(table, name)[order] for name in ("rank", "call_ns", "iteration"))
    began, ended = np.minimum.reduceat(call_ns, heads), np.maximum.reduceat(call_ns, heads)
    lowest = np.minimum.reduceat(np.where(iteration < 0, _NO_ITERATION, iteration), heads)
    highest = np.maximum.reduceat(iteration, heads)
    calls = np.diff(np.append(heads, len(order)))
    uses = np.stack([rank[heads], calls, began, ended, lowest, highest])[:, np.lexsort((began, rank[heads]))]
    so_far = (-1, 0, 0, _NO_ITERATION, -1)
    for of, count, began_ns, ended_ns, low, high in uses.T.tolist():
        before, called, until_ns, least, most = so_far
        if before != of:
            so_far = (of, count, ended_ns, low, high)
            continue
        day_later = began_ns - until_ns >= _DAY_NS and called >= _LEAST_CALLS
        if began_ns > until_ns and (day_later or low <= least <= most - _LEAST_ITERATIONS):
            raise ValueError(
                f"rank {of} uses none of its communicators after call_ns {until_ns}, and others from call_ns "
                f"{began_ns} on: are these the files of two runs? Diagnose each run by itself"
            )
        so_far = (of, called + count, max(until_ns, ended_ns), min(least, low), max(most, high))


def _refuse_other_runs(table: pa.Table, kept: Ints, dropped: Ints) -> None:
    differ = np.zeros(len(kept), dtype=np.bool_)
    for name in ("op", "call_ns"):
        column = table.column(name)
        differ |= pc.not_equal(column.take(pa.array(kept)), column.take(pa.array(dropped))).to_numpy()
    if differ.any():
        at = int(kept[differ][0])
        rank, communicator, seq = (table.column(name)[at].as_py() for name in ("rank", "communicator", "seq"))
        raise ValueError(
            f"rank {rank} has two different operators with number {seq} on communicator {communicator}: if these are "
            "the files of two runs, diagnose each by itself; if that is two communicators, name each"
        )
