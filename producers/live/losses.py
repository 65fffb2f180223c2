"""What is missing of a log that is told iteration by iteration: holes in the numbers of each rank and communicator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers
from producers.row_query import RowQuery

Hole = tuple[int, str, int, int, int, int]
"""Rank, communicator, first and last missing number, iterations of the rows before and after."""


class Losses:
    """The holes known so far, and the last number seen of every rank and communicator."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], tuple[int, int]] = {}
        self._holes: list[Hole] = []

    def note(self, rows: pa.Table, iteration: int) -> Mapping[str, Any]:
        """Take the rows of the next iteration; returns what ``recall`` needs to know it again (values of JSON)."""
        rank, seq = integers(rows, "rank"), integers(rows, "seq")
        communicator, names = codes(rows, "communicator")
        numbered = seq >= 0
        rank, seq, communicator = rank[numbered], seq[numbered], communicator[numbered]
        order = np.lexsort((seq, communicator, rank))
        rank, seq, communicator = rank[order], seq[order], communicator[order]
        same = (np.diff(rank) == 0) & (np.diff(communicator) == 0)
        gap = np.flatnonzero(same & (np.diff(seq) > 1))
        holes: list[Hole] = [
            (int(rank[i]), names[communicator[i]], int(seq[i]) + 1, int(seq[i + 1]) - 1, iteration, iteration)
            for i in gap
        ]
        heads = np.flatnonzero(np.append(True, ~same)) if len(seq) else np.zeros(0, dtype=np.int64)
        tails = np.append(heads[1:], len(seq)) - 1
        last = []
        for head, tail in zip(heads.tolist(), tails.tolist(), strict=True):
            who = int(rank[head]), names[communicator[head]]
            before, of_iteration = self._last.get(who, (int(seq[head]) - 1, iteration))
            if seq[head] > before + 1:
                holes.append((*who, before + 1, int(seq[head]) - 1, of_iteration, iteration))
            last.append([*who, int(seq[tail])])
        said = {"holes": holes, "last": last}
        self.recall(said, iteration)
        return said

    def recall(self, said: Mapping[str, Any], iteration: int) -> None:
        """Take what ``note`` returned of the next iteration."""
        self._holes += [tuple(hole) for hole in said["holes"]]
        self._last |= {(rank, communicator): (seq, iteration) for rank, communicator, seq in said["last"]}

    def forget(self, before: int) -> None:
        """Drop what lies in iterations that are no longer kept."""
        self._holes = [hole for hole in self._holes if hole[5] >= before]

    def lacking(self, ranks: Iterable[int], query: RowQuery) -> Set[int]:
        """Those of the ranks of which rows are missing among those asked for."""
        if not self._holes:
            return frozenset()
        rank, names, seq_from, seq_to, iteration_from, iteration_to = zip(*self._holes, strict=True)
        columns: list[Ints] = [np.array(c, dtype=np.int64) for c in (seq_from, seq_to, iteration_from, iteration_to)]
        lowest, highest = query.seqs
        found = (columns[1] >= lowest) & (columns[0] <= highest)
        found &= (columns[3] >= query.iteration_from) & (columns[2] <= query.iteration_to)
        if query.communicator is not None:
            found &= np.array(names) == query.communicator
        return set(np.array(rank)[found].tolist()) & set(ranks)
