"""Slices over TCP as proxies send them: a bounded number of slots at each end, and a credit for each free one.

A connection carries data one way and credits the other way, so that a sender waits where its receiver does not go on,
and silences come about as they do between NICs.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.network import address
from benchmarks.real_traffic.plan import PORT, Plan

Values = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_BUFFER_BYTES = 64 << 10
"""What the kernel takes of a slice before it is sent, so that a slice is sent when its time is told."""

_CREDIT = bytes(64)
_HEADER = struct.Struct("!II")
_HELLO = struct.Struct("!II")


class Lane(NamedTuple):
    """One of the connections from a rank to another."""

    source: int
    destination: int
    channel: int


class Ends(NamedTuple):
    """Addresses and ports of a connection, this side's first."""

    host: str
    port: int
    peer_host: str
    peer_port: int


@dataclass
class Outgoing:
    """The sending end: ``send`` waits for a free slot, a thread of its own for credits. ``began_ns``: when the first
    slice of each operator was handed to the kernel."""

    connection: socket.socket
    slots: int
    began_ns: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting: queue.Queue[tuple[int, Bytes] | None] = queue.Queue(self.slots)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, operator: int, part: Values) -> None:
        """Send a copy of a slice."""
        self._waiting.put((operator, part.view(np.uint8).copy()))

    def flush(self) -> None:
        """Await that nothing waits to be sent."""
        self._waiting.join()

    def finish(self) -> None:
        """Send what waits, and no more."""
        self._waiting.put(None)
        self._thread.join()
        self.connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Await that the other end has closed."""
        with self.connection, self.connection.makefile("rb") as credits_left:
            credits_left.read()

    def _run(self) -> None:
        credit = bytearray(len(_CREDIT))
        while (waiting := self._waiting.get()) is not None:
            operator, part = waiting
            _receive(self.connection, memoryview(credit))
            self.began_ns.setdefault(operator, time.time_ns())
            self.connection.sendall(_HEADER.pack(operator, len(part)))
            self.connection.sendall(part.data)
            self._waiting.task_done()


@dataclass
class Incoming:
    """The receiving end: a thread of its own reads slices into slots. ``ended_ns``: when the last slice of each
    operator had come."""

    connection: socket.socket
    slots: int
    ended_ns: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read: queue.Queue[Values] = queue.Queue(self.slots)
        self.connection.sendall(_CREDIT * self.slots)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def receive(self) -> Values:
        """The next slice; its slot is free from then on."""
        part = self._read.get()
        self.connection.sendall(_CREDIT)
        return part

    def close(self) -> None:
        """Await that the other end has sent everything, and close."""
        self._thread.join()
        self.connection.close()

    def _run(self) -> None:
        header = bytearray(_HEADER.size)
        while _receive(self.connection, memoryview(header)):
            operator, size = _HEADER.unpack(header)
            part = np.empty(size, dtype=np.uint8)
            if not _receive(self.connection, part.data):
                raise ConnectionError(f"operator {operator}: the sender is gone in the middle of a slice")
            self.ended_ns[operator] = time.time_ns()
            self._read.put(part.view(np.float32))


@dataclass(frozen=True, slots=True)
class Connections:
    """All connections of one rank, by peer and channel, and the ``ends`` of each."""

    outgoing: Mapping[tuple[int, int], Outgoing]
    incoming: Mapping[tuple[int, int], Incoming]
    ends: Mapping[Lane, Ends]

    def close(self) -> None:
        """Close all, once everything has come."""
        for sending in self.outgoing.values():
            sending.finish()
        for receiving in self.incoming.values():
            receiving.close()
        for sending in self.outgoing.values():
            sending.close()


def listen(rank: int) -> socket.socket:
    """Be met by others."""
    return socket.create_server((address(rank), PORT), backlog=1024)


def connect(plan: Plan, rank: int, listener: socket.socket) -> Connections:
    """Connect with all others, each way, on each channel. All have to listen before."""
    ends: dict[Lane, Ends] = {}
    opened = {}
    for peer in plan.peers(rank):
        for channel in range(plan.channels):
            connection = socket.create_connection((address(peer), PORT))
            connection.sendall(_HELLO.pack(rank, channel))
            ends[Lane(rank, peer, channel)] = _prepared(connection)
            opened[peer, channel] = connection
    incoming = {}
    hello = bytearray(_HELLO.size)
    for _ in opened:
        connection, _from = listener.accept()
        _receive(connection, memoryview(hello))
        peer, channel = _HELLO.unpack(hello)
        ends[Lane(peer, rank, channel)] = _prepared(connection)
        incoming[peer, channel] = Incoming(connection, plan.slots)
    outgoing = {lane: Outgoing(connection, plan.slots) for lane, connection in opened.items()}
    return Connections(outgoing, incoming, ends)


def _prepared(connection: socket.socket) -> Ends:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # of what every kernel has, it holds back least: nothing is lost here, and lines are shaped already
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return Ends(*connection.getsockname()[:2], *connection.getpeername()[:2])


def _receive(connection: socket.socket, whole: memoryview) -> bool:
    """Fill a buffer; False where the other end had nothing more to send."""
    filled = 0
    while filled < len(whole):
        count = connection.recv_into(whole[filled:])
        if not count:
            return False
        filled += count
    return True
