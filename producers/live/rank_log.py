"""The operators of one training process, as the agent of its host sees them: its rings, read side by side."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnosis.arrays import Ints
from diagnosis.columns import nullable
from producers.live.registration import OPS, PHASES, RING, Registration, is_alive
from producers.live.ring_reader import RECORD, RingReader
from producers.live.slots import Records
from schemas.catalogue import COMM_OPS
from schemas.errors import InputError
from schemas.topic import LATEST_NS, MOST

log = logging.getLogger(__name__)

MAX_TAKEN = 1 << 21
"""Records of iterations that are not closed yet, outside of the rings; of more the oldest are forgotten."""

_MOST = {column.name: MOST if column.maximum is None else column.maximum for column in COMM_OPS.columns}


class RankLog:
    """What a process has logged of iterations that are not closed yet.

    It stays in the rings until its iteration is closed, so that nothing is lost with the agent. Only where a ring is
    half full and nothing can be closed, because an iteration is longer than that, its operators are taken out before
    (``relieve``).
    Raises ``ValueError`` or ``OSError`` for a folder that is no process's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.registration = Registration.read(folder)
        is_alive(folder)  # where that may not be known, nothing is begun
        self.alive = True
        self.another_run = False
        """It is of another run under the job's name, and passed over."""
        self.forgotten = 0
        """Operators that were taken out and never belonged to an iteration that was closed."""
        self._removed = 0, 0
        self._rings: dict[Path, RingReader] = {}
        self._unreadable: set[Path] = set()
        self._closed = -1
        self._reached = -1
        self._take(np.zeros(0, dtype=RECORD))
        self._iteration: Ints = np.zeros(0, dtype=np.int64)
        self._unfinished: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    @property
    def rank(self) -> int:
        return self.registration.rank

    @property
    def started_ns(self) -> int:
        """When the process started; 0: it does not say."""
        return self.registration.started_ns or 0

    @property
    def appended(self) -> int:
        """Operators that were logged so far."""
        return self._removed[0] + sum(ring.head for ring in self._rings.values())

    @property
    def dropped(self) -> int:
        """Operators that found a ring full."""
        return self._removed[1] + sum(ring.dropped for ring in self._rings.values())

    @property
    def newest(self) -> int:
        """The newest iteration that an operator was seen of; -1: none."""
        return int(self._iteration.max(initial=-1))

    @property
    def oldest_here(self) -> int | None:
        """The oldest iteration, closed or not, that an operator is still here of."""
        seen = self._iteration[self._iteration >= 0]
        return int(seen.min()) if len(seen) else None

    @property
    def oldest_open(self) -> int | None:
        """The oldest iteration that is not closed and has an operator here."""
        waiting = self._iteration[self._iteration > self._closed]
        return int(waiting.min()) if len(waiting) else None

    def look(self) -> None:
        """See what was logged meanwhile; a ring that cannot be read is told of once and passed over."""
        self.alive = self.alive and self._runs()  # first: all that a dead process logged is seen below
        for path in sorted(self._folder.glob(f"{RING}*")):
            if path not in self._rings and path not in self._unreadable:
                self._open(path)
        for ring in self._rings.values():
            ring.look()
        self._reached = self._newest_here()
        for ring in self._rings.values():  # what another thread logged before that is seen by now
            ring.look()
        self._count()

    def relieve(self) -> None:
        """Take what rings that fill hold into memory: what comes needs room. It is lost if this process ends."""
        for ring in self._rings.values():
            self._relieve(ring)
        self._count()

    def _count(self) -> None:
        """Note what is not closed."""
        rings = self._rings.values()
        self._iteration = np.concatenate([self._taken_of, *(ring.column("iteration") for ring in rings)])
        self._unfinished = np.concatenate([self._taken_open, *(ring.unfinished() for ring in rings)])

    def _newest_here(self) -> int:
        of_rings = (int(ring.column("iteration").max(initial=-1)) for ring in self._rings.values())
        return max(int(self._taken_of.max(initial=-1)), *of_rings, -1)

    def _take(self, records: Records) -> None:
        """Hold these records outside of the rings, and no others."""
        self._taken = records
        self._taken_of: Ints = records["iteration"].astype(np.int64)
        self._taken_open: NDArray[np.bool_] = records["done"] == 0

    def is_done_with(self, iteration: int) -> bool:
        """Whether nothing more of an iteration is to be awaited here.

        The process is beyond it and all of its operators have ended, or it is two beyond it, or it is no more.
        """
        if not self.alive or self._reached > iteration + 1:
            return True
        return self._reached > iteration and not self._unfinished[self._iteration == iteration].any()

    def rows(self, iteration: int) -> pa.Table:
        """Rows of telemetry.comm_ops in call order: the iteration's, and after them the first of the next one.

        There are none of what is let go of. Their ``position`` and ``call_order`` are null.
        """
        records = np.concatenate([self._taken, *(ring.records() for ring in self._rings.values())])
        records = records[records["iteration"] > self._closed]
        records = records[np.argsort(records["call_ns"], kind="stable")]
        following = np.flatnonzero(records["iteration"] == iteration + 1)[:1]
        return self._table(records[np.append(np.flatnonzero(records["iteration"] == iteration), following)])

    def release(self, iteration: int) -> None:
        """Let go of an iteration, and of all before it."""
        self._closed = max(self._closed, iteration)
        if len(self._taken):
            self._take(self._taken[self._taken_of > self._closed])
        for ring in self._rings.values():
            beyond = ring.column("iteration") > self._closed
            ring.release(ring.tail + int(beyond.argmax()) if beyond.any() else ring.head)

    def ask_again(self) -> None:
        """Read anew what the process tells about itself; what cannot be read changes nothing, and is told."""
        try:
            self.registration = Registration.read(self._folder)
        except (OSError, ValueError) as error:
            log.warning("rank %d of %s: %s", self.rank, self.registration.job, error)

    def remove(self) -> None:
        """Clear away what a process has left that is no more: its folder, and the memory of its rings."""
        self._removed = self.appended, self.dropped
        self._rings.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _runs(self) -> bool:
        try:
            return is_alive(self._folder)
        except PermissionError as error:  # it has shut its folder meanwhile: nothing more is to be had from it
            log.warning("rank %d of %s: %s", self.rank, self.registration.job, error)
            return False

    def _open(self, path: Path) -> None:
        try:
            self._rings[path] = RingReader(path)
        except (InputError, OSError) as error:
            log.warning("rank %d of %s: %s", self.rank, self.registration.job, error)
            self._unreadable.add(path)

    def _relieve(self, ring: RingReader) -> None:
        waiting = ring.head - ring.tail
        if 2 * waiting <= ring.capacity:
            return
        unfinished = ring.unfinished()
        take = waiting if 4 * waiting > 3 * ring.capacity or not unfinished.any() else int(unfinished.argmax())
        records = ring.records()[:take]
        records["done"] = np.where(unfinished[:take], 0, 1)
        taken = np.concatenate([self._taken, records[records["iteration"] > self._closed]])
        ring.release(ring.tail + take)
        if len(taken) > MAX_TAKEN:
            self.forgotten += len(taken) - MAX_TAKEN
            taken = taken[-MAX_TAKEN:]
        self._take(taken)

    def _table(self, records: Records) -> pa.Table:
        if len(records) and records["communicator"].max() >= len(self.registration.groups):
            self.ask_again()
        return table_of(records, self.registration)


def table_of(records: Records, who: Registration) -> pa.Table:
    """Records as rows of telemetry.comm_ops; those that cannot be are left out."""
    names = [group.communicator for group in who.groups]
    readable = (records["communicator"] < len(names)) & (records["op"] < len(OPS))
    records = records[readable & (records["phase"] <= len(PHASES)) & (records["call_ns"] <= LATEST_NS)]
    records = records[records["call_ns"] >= 0]
    call, start, end = (records[name].astype(np.int64) for name in ("call_ns", "start_ns", "end_ns"))
    # Times may be given by hand, and clocks be set back: what lies before the call was not seen.
    ended = (end >= call) & (end <= LATEST_NS)
    started = (start >= call) & (start <= np.where(ended, end, LATEST_NS))
    columns = {
        "rank": np.full(len(records), who.rank, dtype=np.int32),
        "communicator": _named(records["communicator"], names),
        "op": _named(records["op"], OPS),
        "phase": _named(records["phase"].astype(np.int32) - 1, PHASES),
        "call_ns": call,
        "start_ns": pa.array(start, mask=~started),
        "end_ns": pa.array(end, mask=~ended),
    }
    for name in ("seq", "bytes", "p2p_seq", "iteration", "peer", "microbatch"):
        values = records[name].astype(np.int64)
        columns[name] = nullable(values, (values >= 0) & (values <= _MOST[name]), COMM_OPS.schema.field(name).type)
    return pa.Table.from_batches([COMM_OPS.batch(columns)])


def _named(codes: NDArray[np.generic], names: list[str] | tuple[str, ...]) -> pa.DictionaryArray:
    indices = codes.astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), pa.array(list(names), pa.string()))
