"""The rows of a log by rank and iteration, what is known to be missing among them, and how long iterations took."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers
from diagnosis.positions import Positions, operator_positions
from producers.late_waits import without_late_waits
from producers.numbering import numbering

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Holes:
    """Runs of sequence numbers that no row has; an entry a run.

    The missing numbers lie from ``seq_from`` to ``seq_to`` (included), between rows of the iterations
    ``iteration_from`` and ``iteration_to``.
    """

    rank: Ints
    communicator: Ints
    seq_from: Ints
    seq_to: Ints
    iteration_from: Ints
    iteration_to: Ints


@dataclass(frozen=True)
class Blocks:
    """One entry a rank and iteration that has rows, sorted so: the rows ``first`` to ``last`` (excluded).

    ``start_ns`` is the first call. ``end_ns`` is the rank's first call of the next iteration, for a rank's last
    iteration, and where the one after each was not recorded, the last end; -1 where that is not known: a gap hides the
    first call of either iteration, the last iteration is not whole, or ends were not logged. ``latest_ns`` is the
    latest time that its rows tell of, ``lost`` the number of rows that are known to be missing.
    """

    rank: Ints
    iteration: Ints
    first: Ints
    last: Ints
    start_ns: Ints
    end_ns: Ints
    latest_ns: Ints
    lost: Ints


class LogIndex:
    """Rows of telemetry.comm_ops sorted by rank, iteration and call order; those outside of iterations are left out.

    ``table`` is in call order within each rank. Its positions are worked out anew from the sequence numbers,
    so that a lost line does not shift them. Ends of sends that were waited for late are left out of it.
    """

    def __init__(self, table: pa.Table) -> None:
        iteration = integers(table, "iteration")
        rank = integers(table, "rank")
        if (iteration < 0).any() or (np.diff(rank * (iteration.max(initial=0) + 1) + iteration) < 0).any():
            order = np.lexsort((iteration, rank))
            table = table.take(pa.array(order[iteration[order] >= 0]))
        self.table = table.combine_chunks()
        self._rank, self._iteration = integers(table, "rank"), integers(table, "iteration")
        self.communicator, self.communicators = codes(table, "communicator")
        self.seq = integers(table, "seq")
        self._pair: Ints = self._rank * max(len(self.communicators), 1) + self.communicator
        self._numbering = numbering(self._pair, self.seq, self._iteration)
        self._ordinal = self._numbering.ordinals(self._iteration)
        positions = operator_positions(self._rank, self.communicator, self.seq, self._ordinal)
        at = table.schema.get_field_index("position")
        self.table = self.table.set_column(at, table.schema.field(at), pa.array(positions.position))
        self.blocks = self._blocks(positions)
        self.table = without_late_waits(self.table)
        self.iterations: Ints = np.unique(self.blocks.iteration)

    def of(self, rank: int, iteration_from: int, iteration_to: int) -> tuple[int, int]:
        """First and last (excluded) block of a rank's iterations; none where these end before they begin."""
        low, high = np.searchsorted(self.blocks.rank, [rank, rank + 1])
        first, last = np.searchsorted(self.blocks.iteration[low:high], [iteration_from, iteration_to + 1])
        return int(low + first), int(low + max(first, last))

    @cached_property
    def holes(self) -> Holes:
        """What is missing between rows of one rank and communicator."""
        order = np.lexsort((self.seq, self._pair))
        order = order[self.seq[order] >= 0]
        gap = (np.diff(self._pair[order]) == 0) & (np.diff(self.seq[order]) > 1)
        if self._numbering.sampled:
            gap &= np.diff(self._iteration[order]) == 0
        before, after = order[:-1][gap], order[1:][gap]
        return Holes(
            rank=self._rank[before],
            communicator=self.communicator[before],
            seq_from=self.seq[before] + 1,
            seq_to=self.seq[after] - 1,
            iteration_from=self._iteration[before],
            iteration_to=self._iteration[after],
        )

    def _blocks(self, positions: Positions) -> Blocks:
        rows = len(self._rank)
        new = np.ones(rows, dtype=np.bool_)
        new[1:] = (np.diff(self._rank) != 0) | (np.diff(self._iteration) != 0)
        first = np.flatnonzero(new)
        last = np.append(first[1:], rows)
        rank, iteration, ordinal = self._rank[first], self._iteration[first], self._ordinal[first]
        block = np.cumsum(new) - 1
        lost = np.zeros(len(first), dtype=np.int64)
        of_group = _block_of(rank, ordinal, positions.rank, positions.iteration)
        np.add.at(lost, of_group, positions.lost)
        start = integers(self.table, "call_ns")[first]
        known = self._first_call_known(first, block, positions.position)
        follows = np.append((np.diff(rank) == 0) & (np.diff(ordinal) == 1), False)
        final = np.append(np.diff(rank) != 0, True) if rows else np.zeros(0, dtype=np.bool_)
        final |= self._numbering.sampled
        end = np.where(follows & np.roll(known, -1), np.roll(start, -1), -1)
        end = np.where(final, self._last_end(block, final, last - first + lost, rank), end)
        end = np.where(known & (end >= start), end, -1)
        latest = np.full(len(first), -1)
        for name in ("call_ns", "start_ns", "end_ns"):
            np.maximum.at(latest, block, integers(self.table, name))
        return Blocks(rank, iteration, first, last, start, end, latest, lost)

    def _first_call_known(self, first: Ints, block: Ints, position: NDArray[np.int32]) -> Bools:
        """Whether each block holds the operator that its rank's iterations usually begin with."""
        if not len(first):
            return np.zeros(0, dtype=np.bool_)
        opener = self.communicator[first]
        usual = _mode_by(self._rank[first], opener)
        begins = (position == 0) & (self.communicator == usual[block])
        known = np.zeros(len(first), dtype=np.bool_)
        known[block[begins]] = True
        return known

    def _last_end(self, block: Ints, final: Bools, operators: Ints, rank: Ints) -> Ints:
        """The last end in each final block; -1 where the block is not whole."""
        end = integers(self.table, "end_ns")
        latest = np.full(len(final), -1)
        np.maximum.at(latest, block, end)
        pending = np.zeros(len(final), dtype=np.bool_)
        pending[block[end < 0]] = True
        whole = operators >= _mode_by(rank, operators)
        return np.where(final & whole & ~pending, latest, -1)


def _block_of(rank: Ints, iteration: Ints, of_rank: Ints, of_iteration: Ints) -> Ints:
    span = int(iteration.max(initial=0)) + 1
    return np.searchsorted(rank * span + iteration, of_rank * span + of_iteration)


def _mode_by(rank: Ints, values: Ints) -> Ints:
    """For each entry the most frequent value of its rank; ``rank`` is sorted."""
    if not len(rank):
        return values
    heads = np.flatnonzero(np.diff(rank, prepend=-1))
    sizes = np.diff(np.append(heads, len(rank)))
    modes = [np.bincount(part - part.min()).argmax() + part.min() for part in np.split(values, heads[1:])]
    return np.repeat(np.array(modes, dtype=np.int64), sizes)
