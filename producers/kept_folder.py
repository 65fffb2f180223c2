"""The iterations of a job that agents keep in folders, looked up by rank and iteration.

Where each is stands in memory; rows are read when they are asked for. Nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from producers import kept_iterations
from producers.segments import SUFFIX, Frame, read_frame, read_frames
from schemas.errors import ImpossibleValue

MOST_BYTES = 2 << 30
"""An iteration of a host, decoded."""


@dataclass(frozen=True, slots=True)
class _Iteration:
    """An iteration of a host; ``lost`` are the rows that each of its ranks is known to lack."""

    frame: Frame
    rank: Ints
    lost: Ints


class KeptFolder:
    """What some folders keep of a job; ``faults`` says what of it cannot be read."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.faults: list[str] = []
        self._iterations: dict[int, list[_Iteration]] = defaultdict(list)
        for folder in folders:
            for path in sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file()):
                self._find(path)

    def rows(self, iteration: int, ranks: Collection[int]) -> Iterator[tuple[int, pa.Table, bool]]:
        """Each rank of which rows are kept, its rows of an iteration, and whether these are all."""
        wanted = set(ranks)
        for kept in self._iterations.get(iteration, ()):
            places = np.flatnonzero(np.isin(kept.rank, sorted(wanted)))
            rows = self._read(kept.frame, places)
            for place in places.tolist() if rows is not None else ():
                rank = int(kept.rank[place])
                own = rows.filter(pc.equal(rows.column("rank"), rank))
                if own.num_rows:
                    yield rank, own.combine_chunks(), kept.lost[place] == 0
                    wanted.remove(rank)

    def _find(self, path: Path) -> None:
        try:
            for frame, payload in read_frames(path):
                try:
                    spans, _ = kept_iterations.about(payload)
                except kept_iterations.UNREADABLE as error:
                    self.faults.append(f"{path}: iteration {frame.number} cannot be read: {error}")
                else:
                    self._iterations[frame.number].append(_Iteration(frame, spans.rank, spans.lost))
        except OSError as error:
            self.faults.append(f"{path}: {error.strerror or error}")
        except ValueError as error:
            self.faults.append(str(error))

    def _read(self, frame: Frame, places: Ints) -> Any:
        """A table of the ranks at some places; None where it cannot be had."""
        if not len(places):
            return None
        try:
            payload = read_frame(frame)
            kept_iterations.require_bounded(payload, MOST_BYTES)
            table = kept_iterations.rows_of(payload, places)
            kept_iterations.require_possible(table, frame.number)
        except (*kept_iterations.UNREADABLE, ImpossibleValue) as error:
            self.faults.append(f"{frame.path}: iteration {frame.number} cannot be read: {error}")
            return None
        return table
