"""Which rows of the ranks' logs are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import codes, integers

_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Rows of some iterations: of one communicator and with numbers between bounds, where these are given.

    Bounds are included.
    """

    iteration_from: int
    iteration_to: int
    communicator: str | None = None
    seq_from: int | None = None
    seq_to: int | None = None

    @property
    def whole(self) -> bool:
        """Whether no row of the iterations is left out."""
        return self.communicator is None and self.seq_from is None and self.seq_to is None

    @property
    def seqs(self) -> tuple[int, int]:
        """The lowest and the highest number."""
        return self.seq_from or 0, _MOST if self.seq_to is None else self.seq_to

    def code(self, names: Sequence[str]) -> int:
        """The communicator's place among names; of one that is not among them, one that no row has."""
        return names.index(self.communicator) if self.communicator in names else len(names)

    def matches(self, communicator: Ints, names: Sequence[str], seq: Ints) -> Bools:
        """Which rows of the iterations are asked for, shape (rows,); ``communicator`` are places among the names.

        A row without a number (-1) lies between no bounds.
        """
        wanted = np.ones(len(seq), dtype=np.bool_)
        if self.communicator is not None:
            wanted &= communicator == self.code(names)
        if self.seq_from is not None or self.seq_to is not None:
            lowest, highest = self.seqs
            wanted &= (seq >= lowest) & (seq <= highest)
        return wanted

    def filter(self, table: pa.Table) -> pa.Table:
        """What is asked for of rows of telemetry.comm_ops of the iterations."""
        wanted = self.matches(*codes(table, "communicator"), integers(table, "seq"))
        return table if wanted.all() else table.filter(pa.array(wanted))
