"""The reading side of a ring in shared memory, whatever its records hold: what has been appended, and what is let go.

A ring is a page of header and then slots (``ring`` has the layout). Each record has a field ``number``, its place in
the order of all records plus one, which is stored last.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.live.fence import fence
from producers.live.ring import DROPPED_AT, HEADER, HEADER_BYTES, TAIL_AT
from schemas.errors import InputError
from schemas.topic import MOST

Records = NDArray[np.void]

_LOOK = 4096
"""Records that are looked at in one go."""


class SlotReader:
    """Reads what has been appended from ``tail``, the next number that is needed, to ``head`` (excluded).

    The tail is in the shared memory: whoever reads after this process goes on there. ``for_reading`` leaves it alone.
    Raises ``InputError`` for a file that is no ring of these records, and ``OSError`` for one that cannot be opened.
    """

    def __init__(self, path: Path, magic: bytes, record: np.dtype[np.void], *, for_reading: bool = False) -> None:
        self._path = path
        self._memory = self._mapped(for_reading=for_reading)
        found, record_bytes, self.capacity = HEADER.unpack_from(self._memory, 0)
        whole = HEADER_BYTES + self.capacity * record_bytes == len(self._memory)
        if found != magic or record_bytes != record.itemsize or self.capacity < 1 or not whole:
            raise InputError(f"{path} is no ring of this version: is the training process of another one?")
        self._words = np.frombuffer(self._memory, dtype=np.int64, count=HEADER_BYTES // 8)
        self._tail = self.told_tail
        if not 0 <= self._tail <= MOST:
            raise InputError(f"{path} is damaged: {self._tail} is no record's number")
        self._slots: Records = np.frombuffer(self._memory, dtype=record, offset=HEADER_BYTES)
        self._head = self._tail

    @property
    def tail(self) -> int:
        """The next number that is needed, as this reader knows it: what is in the memory others may write over."""
        return self._tail

    @property
    def told_tail(self) -> int:
        """The same as the memory has it, where somebody else reads the ring."""
        return int(self._words[TAIL_AT // 8])

    @property
    def head(self) -> int:
        """The number after the last record that could be seen at the last ``look``."""
        return self._head

    @property
    def dropped(self) -> int:
        """Records that the writer found no room for."""
        return int(self._words[DROPPED_AT // 8])

    def look(self) -> None:
        """See what has been appended meanwhile."""
        while self._head < self.tail + self.capacity:
            slot = self._head % self.capacity
            count = min(_LOOK, self.capacity - slot, self.tail + self.capacity - self._head)
            expected = np.arange(self._head + 1, self._head + 1 + count)
            there = self._slots["number"][slot : slot + count] == expected
            seen = count if there.all() else int(there.argmin())
            self._head += seen
            if seen < count:
                break
        fence()

    def seen(self) -> Records:
        """A copy of the records from tail to head."""
        return self._kept(self._slots).copy()

    def release(self, number: int) -> None:
        """Let the writer have the slots of all records before a number."""
        self._tail = min(max(number, self._tail), self._head)
        self._words[TAIL_AT // 8] = self._tail

    def _kept(self, slots: NDArray[Any]) -> NDArray[Any]:
        """What slots hold from tail to head."""
        low, high = self.tail % self.capacity, self._head % self.capacity
        if self.tail == self._head or low < high:
            return slots[low:high]
        return np.concatenate([slots[low:], slots[:high]])

    def _mapped(self, *, for_reading: bool) -> mmap.mmap:
        how, access = (os.O_RDONLY, mmap.ACCESS_READ) if for_reading else (os.O_RDWR, mmap.ACCESS_WRITE)
        descriptor = os.open(self._path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            size = os.fstat(descriptor).st_size
            if size < HEADER_BYTES:
                raise InputError(f"{self._path} is no ring: it has {size} bytes")
            return mmap.mmap(descriptor, size, access=access)
        finally:
            os.close(descriptor)
