"""The reading side of a ring of operator records (``ring``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from producers.live.fence import fence
from producers.live.ring import MAGIC
from producers.live.slots import Records, SlotReader

RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("call_ns", "bytes", "seq", "p2p_seq")),
        ("communicator", np.uint16),
        ("op", np.uint8),
        ("phase", np.uint8),
        *((name, np.int32) for name in ("iteration", "peer", "microbatch")),
        ("number", np.int64),
        *((name, np.int64) for name in ("start_ns", "end_ns", "done")),
    ],
    align=True,
)
Column = NDArray[np.int64]


class RingReader(SlotReader):
    """A ring of operators; of one that is read ``for_reading`` alone only ``snapshot`` is of use."""

    def __init__(self, path: Path, *, for_reading: bool = False) -> None:
        super().__init__(path, MAGIC, RECORD, for_reading=for_reading)

    def column(self, name: str) -> Column:
        """One column of the records from tail to head; not for what comes with the end."""
        return self._kept(self._slots[name]).astype(np.int64)

    def unfinished(self) -> NDArray[np.bool_]:
        """Whether each record from tail to head lacks its end."""
        unfinished: NDArray[np.bool_] = self._kept(self._slots["done"]) != np.arange(self.tail + 1, self._head + 1)
        return unfinished

    def records(self) -> Records:
        """A copy of the records from tail to head; ``start_ns`` and ``end_ns`` are 0 where they are not known."""
        unfinished = self.unfinished()  # before the times that the numbers in it stand for
        fence()
        copied = self.seen()
        copied["start_ns"][unfinished] = 0
        copied["end_ns"][unfinished] = 0
        return copied

    def snapshot(self) -> Records:
        """A copy of what has not been released by now, taken beside the agent whose ring it is.

        Like ``records``; what the writer may have written over meanwhile is left out.
        """
        number, done = self._slots["number"].copy(), self._slots["done"].copy()  # before what they stand for
        fence()
        copied: Records = self._slots.copy()
        fence()
        tail = self.told_tail
        whole = (number > tail) & (number - self.capacity <= tail)
        whole &= (number - 1) % self.capacity == np.arange(self.capacity)
        copied["start_ns"][done != number] = 0
        copied["end_ns"][done != number] = 0
        kept: Records = copied[whole]
        return kept
