"""Logs the communication operators of a training process: what Offbeat's agent on the same host diagnoses from.

    log = OperatorLog()                                  # rank and job as torchrun says
    log.communicator("tensor-0", ranks=[0, 1, 2, 3])
    for i, batch in enumerate(batches):
        log.iteration(i)
        with log.operator("tensor-0", "all_reduce", nbytes=1 << 20, phase="forward"):
            dist.all_reduce(...)

Appending takes less than two microseconds and never waits: not for the agent, not for the disk, not for another
thread. (The first operator of a thread opens its ring; that of a communicator not told of before makes it known, which
threads do one after the other.) A log that cannot be opened says so once, as a warning, and drops everything: being
watched must not end a job.
Importing this needs the standard library alone.
"""

from __future__ import annotations

import logging
import operator
import os
import secrets
import struct
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from offbeat.log_arguments import degrees, members, no_number, own_job, own_rank, whole
from producers.live.registration import (
    DEFAULT_FOLDER,
    FOLDER_VARIABLE,
    OPS,
    PHASES,
    RING,
    Group,
    Presence,
    Registration,
)
from producers.live.ring import DEFAULT_CAPACITY, RingWriter

log = logging.getLogger(__name__)

Ticket = tuple[RingWriter, int] | None
"""What ``begin`` gives and ``end`` takes; None: the operator was dropped."""

MAX_COMMUNICATORS = 4096
"""Communicators of one process; operators of further ones are not logged, which is said once."""

_OPS = {name: code for code, name in enumerate(OPS)}
_PHASES: Mapping[str | None, int] = {None: 0, **{name: code for code, name in enumerate(PHASES, 1)}}

_open_logs: weakref.WeakSet[OperatorLog] = weakref.WeakSet()


class OperatorLog:
    """The log of one rank. Any thread may use it; each appends to a ring of its own.

    Without arguments ``rank`` is RANK, ``job`` TORCHELASTIC_RUN_ID (followed by the number of the restart, because a
    restart is another run), ``world`` WORLD_SIZE and ``gpu`` LOCAL_RANK, as torchrun sets them; ``host`` is the
    machine's name, ``folder`` where the agent looks for logs. ``layout`` are degrees of parallelism such as
    ``{"tp": 8, "pp": 4, "dp": 2}``; left out, they are inferred. ``capacity`` is the records of a ring, 80 bytes each.

    Raises ``ValueError`` where rank or job are neither given nor in the environment, or they or the layout cannot be.
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        job: str | None = None,
        world: int | None = None,
        host: str | None = None,
        gpu: int | None = None,
        layout: Mapping[str, int] | None = None,
        folder: Path | None = None,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self._registration = Registration(
            job=own_job() if job is None else job,
            rank=own_rank() if rank is None else rank,
            start_id=secrets.token_hex(8),
            world=whole("WORLD_SIZE") if world is None else world,
            host=os.uname().nodename if host is None else host,
            gpu=whole("LOCAL_RANK") if gpu is None else gpu,
            started_ns=time.time_ns(),
            layout=degrees(layout),
        )
        self._registration.check()
        self._capacity = capacity
        self._thread = threading.local()
        self._rings: list[RingWriter] = []
        self._free: list[RingWriter] = []
        self._ring_numbers = count()
        self._growing, self._writing = threading.Lock(), threading.Lock()
        self._unwritten = False
        self._known: dict[str, tuple[int, Iterator[int]]] = {}
        self._point_to_point: dict[tuple[str, int], Iterator[int]] = {}
        self._iteration = -1
        self._behind = False
        self._warned: set[str] = set()
        self._silent = False
        self._presence: Presence | None = None
        rings = folder or Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER))
        try:
            self._presence = Presence(rings, self._registration)
        except OSError as error:
            self._cannot(error)
        _open_logs.add(self)

    @property
    def dropped(self) -> int:
        """Operators that found no room, because the agent is away or too slow."""
        return sum(ring.dropped for ring in self._rings)

    def communicator(self, name: str, ranks: Sequence[int] | None = None, kind: str | None = None) -> None:
        """Tell of a communicator: its members in its own order, and what it is for (``tensor``, ``data`` ...).

        The name must be the same on all members and no other communicator's: where it had other members before, these
        count from now on, and a warning says so, once. One that was not told of becomes known with its first operator;
        who its members are is then inferred. Raises ``ValueError`` for an empty name, for a rank that is none, for one
        that is listed twice, and for ranks without this one.
        """
        group = Group(name, () if ranks is None else members(name, ranks), kind or None)
        self._check(group)
        with self._growing:  # in memory alone: files are written outside
            groups = list(self._registration.groups)
            if name not in self._known:
                groups.append(group)
            elif group.ranks and not self._silent:
                code = self._known[name][0]
                if groups[code].ranks not in {(), group.ranks}:
                    told = "the ranks of communicator %s are now %s, and were %s: give each group a name of its own"
                    self._warn(told, name, group.ranks, groups[code].ranks)
                groups[code] = group
            self._registration = replace(self._registration, groups=tuple(groups))
            self._known.setdefault(name, (-1 if self._silent else len(groups) - 1, count()))
        self._write()

    def iteration(self, number: int) -> None:
        """Begin a training iteration: the operators that follow, of all threads, are its. One thread says so.

        Numbers rise by one; the same one again changes nothing. Where they fall, as in a job that goes back to a
        checkpoint, nothing is logged until they are beyond the last: all ranks must mean the same by a number. Where
        they leave numbers out, agents cannot know that nothing is to come of these. Both are told once, as warnings,
        and so is what is no whole number, which changes nothing.
        """
        try:
            number = operator.index(number)
        except TypeError:
            self._warn("iteration %r is passed over: give a whole number", number)
            return
        if number <= self._iteration:
            if number < self._iteration:
                self._behind = True
                self._warn(
                    "iteration %d follows %d: nothing is logged until numbers are beyond", number, self._iteration
                )
            return
        self._behind = False
        if number > self._iteration + 1 and self._iteration >= 0:
            self._warn(
                "iteration %d follows %d: number them one by one, or slow ones are missed", number, self._iteration
            )
        self._iteration = number

    def begin(
        self,
        communicator: str,
        op: str,
        nbytes: int = -1,
        *,
        peer: int = -1,
        phase: str | None = None,
        microbatch: int = -1,
    ) -> Ticket:
        """Log that an operator is called now; ``end`` tells when it is done.

        ``op`` is one of all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, barrier, send, recv;
        ``nbytes`` the size of the full buffer; ``peer`` the global rank at the other end of a send or recv; ``phase``
        one of forward, backward, gradient, other. What is left out is not known. An operator with another op or phase,
        or with what is no number, is not logged; the first time a warning says so.
        """
        try:
            ring = self._thread.ring
        except AttributeError:
            ring = self._own_ring()
        try:
            code, seqs = self._known[communicator]
            kind, part = _OPS[op], _PHASES[phase]
        except (KeyError, TypeError):
            code, seqs = self._first_use(communicator, op, phase)
            if code < 0:
                return None
            kind, part = _OPS[op], _PHASES[phase]
        if ring is None or code < 0:
            return None
        try:
            seq, p2p_seq = next(seqs), -1 if peer < 0 else self._next_between(op, peer)
            if self._behind:  # numbered all the same: other ranks may be beyond already
                return None
            number = ring.append(
                time.time_ns(), nbytes, seq, p2p_seq, code, kind, part, self._iteration, peer, microbatch
            )
        except (TypeError, ValueError, struct.error) as error:
            told = no_number(nbytes=nbytes, peer=peer, microbatch=microbatch) or error
            self._warn("an operator of %s is not logged: %s", communicator, told)
            return None
        return None if number < 0 else (ring, number)

    def end(self, ticket: Ticket, *, start_ns: int = 0, end_ns: int | None = None) -> None:
        """Log that an operator is done: now, or when ``end_ns`` says (0: it is not known, and never will be).

        Any thread may say it, in any order. ``start_ns`` is when the library began with it. Times are nanoseconds
        since the epoch on this host's clock. What is no time, or no ticket, is not logged; the first time a warning
        says so.
        """
        if ticket is None:
            return
        try:
            ticket[0].done(ticket[1], start_ns, time.time_ns() if end_ns is None else end_ns)
        except (AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
            self._warn("the end of an operator is not logged: %s; give what begin gave, and whole numbers", error)

    def operator(
        self,
        communicator: str,
        op: str,
        nbytes: int = -1,
        *,
        peer: int = -1,
        phase: str | None = None,
        microbatch: int = -1,
    ) -> _Operator:
        """``begin`` now, and ``end`` after the block that this is given to by ``with``; not where the block raises."""
        return _Operator(self, self.begin(communicator, op, nbytes, peer=peer, phase=phase, microbatch=microbatch))

    def close(self) -> None:
        """Say that no more will come: the agent then tells the last iteration without waiting for a next one."""
        self._silence()
        if self._presence is not None:
            self._presence.leave()
            self._presence = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_between(self, op: str, peer: int) -> int:
        try:
            return next(self._point_to_point[op, peer])
        except KeyError:
            return next(self._point_to_point.setdefault((op, peer), count()))

    def _first_use(self, communicator: object, op: object, phase: object) -> tuple[int, Iterator[int]]:
        """The number of a communicator, below 0 where the operator cannot be logged, and the next numbers on it."""
        if not isinstance(op, str) or op not in _OPS:
            self._warn("operators are not logged whose op is %r; known are %s", op, ", ".join(OPS))
            return -1, count()
        if not isinstance(phase, str | None) or phase not in _PHASES:
            self._warn("operators are not logged whose phase is %r; known are %s", phase, ", ".join(PHASES))
            return -1, count()
        if not isinstance(communicator, str):
            self._warn("operators of %r are not logged: give the name of a communicator", communicator)
            return -1, count()
        if communicator not in self._known:
            if len(self._known) >= MAX_COMMUNICATORS:
                self._warn("%s and what follows is not logged: names of communicators must be stable", communicator)
                return -1, count()
            try:
                self.communicator(communicator)
            except ValueError as error:
                self._warn("operators of %r are not logged: %s", communicator, error)
                return -1, count()
        return self._known.get(communicator, (-1, count()))  # gone where the log was closed meanwhile

    def _warn(self, message: str, *values: object) -> None:
        """Warn, once of each kind: an operator comes thousands of times an iteration."""
        if message not in self._warned:
            self._warned.add(message)
            log.warning(message, *values)

    def _check(self, group: Group) -> None:
        """Raise ``ValueError`` for a communicator that cannot be, or is of others."""
        said = replace(self._registration, groups=(group,))
        said.check()
        if group.ranks and said.rank not in group.ranks:
            raise ValueError(
                f"the ranks of communicator {group.communicator!r} are {group.ranks}, without this rank, "
                f"{said.rank}; tell of the communicators that it is in"
            )

    def _write(self) -> None:
        """Write what is registered. Where another thread writes at the moment, that one does it again, and this one
        does not wait for it: its records may come before the name, for which the agent asks once an iteration is over.
        """
        self._unwritten = True
        while self._unwritten and self._writing.acquire(blocking=False):
            try:
                self._unwritten = False
                presence = self._presence  # another thread may close the log
                if presence is not None and not self._silent:
                    self._registration.write(presence.folder)
            except OSError as error:
                self._cannot(error)
            finally:
                self._writing.release()

    def _own_ring(self) -> RingWriter | None:
        """The calling thread's ring from now on: one that a thread has left, or a new one. No other thread waits."""
        ring: RingWriter | None
        try:
            ring = self._free.pop()
        except IndexError:
            ring = self._new_ring()
        self._thread.ring = ring
        if ring is not None:
            self._thread.lease = _Lease(ring, self._free)
        return ring

    def _new_ring(self) -> RingWriter | None:
        presence = self._presence
        if presence is None or self._silent:
            return None
        try:
            ring = RingWriter(presence.folder / f"{RING}{next(self._ring_numbers)}", self._capacity)
        except OSError as error:
            self._cannot(error)
            return None
        self._rings.append(ring)
        return ring

    def _cannot(self, error: OSError) -> None:
        log.warning("the operators of rank %d are not logged: %s", self._registration.rank, error)
        self._silence()

    def _silence(self) -> None:
        """Log nothing from now on, in no thread."""
        self._silent = True
        self._known = {name: (-1, count()) for name in list(self._known)}  # a thread may add to them meanwhile

    def _forked(self) -> None:
        """In a child of fork: the rings are its parent's."""
        self._growing, self._writing = threading.Lock(), threading.Lock()
        self._presence = None
        self._silence()


class _Operator:
    """One operator that has begun."""

    __slots__ = ("_log", "_ticket")

    def __init__(self, of: OperatorLog, ticket: Ticket) -> None:
        self._log, self._ticket = of, ticket

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._log.end(self._ticket)


class _Lease:
    """Gives a ring back when its thread has ended."""

    def __init__(self, ring: RingWriter, free: list[RingWriter]) -> None:
        weakref.finalize(self, free.append, ring).atexit = False


def _after_fork() -> None:
    for each in list(_open_logs):
        each._forked()


os.register_at_fork(after_in_child=_after_fork)
