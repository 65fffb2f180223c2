"""A ring of operator records in shared memory: one thread appends, one agent reads, and neither waits for the other.

A record is what is known when an operator is called, closed by its number, and what is known when it is done, closed
by its number again. A slot is free once the agent has released it; while there is none, records are dropped and
counted. Nothing here needs more than the standard library: a training process imports it.

Layout (native byte order, one host): a page of header, then ``capacity`` records of ``RECORD_BYTES``. Numbers are
stored plus one, so that fresh memory is no record. Each struct stores its fields one after the other, the number last.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

MAGIC = b"OFFBEAT1"
HEADER_BYTES = 4096
HEADER = struct.Struct("@8sqq")
"""Magic, bytes of a record, records."""
DROPPED_AT, TAIL_AT = 64, 128
"""Where the header's words are, each in a cache line of its own: records dropped, which the writer counts, and the next
number that the agent needs, which the reader says."""

CALLED = struct.Struct("@qqqqHBBiiiq")
"""call_ns, bytes, seq, p2p_seq, communicator, op, phase, iteration, peer, microbatch, number; -1: not known."""
DONE = struct.Struct("@qqq")
"""start_ns, end_ns (0: not known), number."""
RECORD_BYTES = CALLED.size + DONE.size

DEFAULT_CAPACITY = 1 << 15
"""Three iterations of 10,000 operators, in 2.5 MiB."""

_DROPPED, _TAIL = DROPPED_AT // 8, TAIL_AT // 8
_pack_called, _pack_done = CALLED.pack_into, DONE.pack_into


class RingWriter:
    """The writing side: one thread at a time appends; any thread may say that an operator is done.

    ``appended`` counts the records in the ring so far, ``dropped`` those that found no room.
    Raises ``OSError`` where the shared memory cannot be had: all of it is taken now, because memory that turns out to
    be missing later would end the process.
    """

    __slots__ = ("_buffer", "_capacity", "_limit", "_memory", "_words", "appended", "dropped")

    def __init__(self, path: Path, capacity: int = DEFAULT_CAPACITY) -> None:
        self._memory = _created(path, HEADER_BYTES + capacity * RECORD_BYTES)
        HEADER.pack_into(self._memory, 0, MAGIC, RECORD_BYTES, capacity)
        _hidden(path).rename(path)
        self._buffer = memoryview(self._memory)
        self._words = self._buffer[:HEADER_BYTES].cast("q")
        self._capacity = self._limit = capacity
        self.appended = self.dropped = 0

    def append(
        self,
        call_ns: int,
        size: int,
        seq: int,
        p2p_seq: int,
        communicator: int,
        op: int,
        phase: int,
        iteration: int,
        peer: int,
        microbatch: int,
    ) -> int:
        """Append an operator; returns its number, or -1 where it was dropped."""
        number = self.appended
        if number >= self._limit and not self._has_room():
            return -1
        at = HEADER_BYTES + number % self._capacity * RECORD_BYTES
        _pack_called(
            self._buffer,
            at,
            call_ns,
            size,
            seq,
            p2p_seq,
            communicator,
            op,
            phase,
            iteration,
            peer,
            microbatch,
            number + 1,
        )
        self.appended = number + 1  # not before: values that do not fit leave no hole, at which a reader would wait
        return number

    def done(self, number: int, start_ns: int, end_ns: int) -> None:
        """Tell when an operator began and ended; passed over where its slot has been taken by another since."""
        if self.appended - number <= self._capacity:
            at = HEADER_BYTES + CALLED.size + number % self._capacity * RECORD_BYTES
            _pack_done(self._buffer, at, start_ns, end_ns, number + 1)

    def _has_room(self) -> bool:
        """Look at what has been released meanwhile; a record that still finds no room is counted."""
        self._limit = min(self._words[_TAIL], self.appended) + self._capacity
        if self.appended < self._limit:
            return True
        self.dropped += 1
        self._words[_DROPPED] = self.dropped
        return False


def _created(path: Path, size: int) -> mmap.mmap:
    """New memory, beside its path: nobody may see it before its header is there."""
    descriptor = os.open(_hidden(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except OSError:
        _hidden(path).unlink()
        raise
    finally:
        os.close(descriptor)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}")
