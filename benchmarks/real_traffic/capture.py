"""Packets with the time stamps of the kernel, from the rings that it shares with those who watch a device.

A rank's packets are seen where they come out of its shaped line, so when its NIC would have sent them. Only headers
are kept, and of packets with data alone.
"""

from __future__ import annotations

import mmap
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
import numpy.typing as npt

from benchmarks.network import KernelRefused, Namespace

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_ALL_PROTOCOLS = 3
_SOL_PACKET, _RX_RING, _STATISTICS, _VERSION, _IGNORE_OUTGOING = 263, 5, 6, 10, 23
_VERSION_2 = 1
_FRAME, _FRAMES, _BLOCK = 128, 1 << 17, 1 << 16
_LOOK_EVERY_S = 0.02
_IPV4, _TCP = 0x0800, 6
_IPV4_PLAIN = 0x45
"""Version 4, and no options."""

_LINK_AT = 66
"""Where a packet begins in its frame: after the kernel's header and its address."""

_FIELDS: dict[str, tuple[str, int]] = {
    "status": ("<u4", 0),
    "begins": ("<u2", 12),
    "seconds": ("<u4", 16),
    "nanoseconds": ("<u4", 20),
    "device": ("<i4", 36),
    "protocol": (">u2", _LINK_AT + 12),
    "version": ("u1", _LINK_AT + 14),
    "length": (">u2", _LINK_AT + 16),
    "transport": ("u1", _LINK_AT + 23),
    "destination": (">u4", _LINK_AT + 30),
    "source_port": (">u2", _LINK_AT + 34),
    "destination_port": (">u2", _LINK_AT + 36),
    "words": ("u1", _LINK_AT + 46),
}
FRAME = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [kind for kind, _ in _FIELDS.values()],
        "offsets": [at for _, at in _FIELDS.values()],
        "itemsize": _FRAME,
    }
)
"""A frame of version 2 of the ring (linux/if_packet.h), Ethernet, IPv4 and TCP in it."""


@dataclass(frozen=True, slots=True, eq=False)
class Packets:
    """Packets with data; arrays of shape (n,), in no order.

    ``nic``: which line sent it; ``flow``: where to, as ``flow_key``; ``size``: bytes, from the IP header on;
    ``time_ns``: the host's clock. ``dropped``: packets that the ring had no room for.
    """

    time_ns: Ints
    nic: Ints
    flow: Keys
    size: Ints
    dropped: int = 0

    @classmethod
    def of(cls, frames: npt.NDArray[np.void], ports: Sequence[int], dropped: int = 0) -> Packets:
        """Read frames; ``ports``: number of the device that each line ends at."""
        plain = (frames["protocol"] == _IPV4) & (frames["version"] == _IPV4_PLAIN) & (frames["transport"] == _TCP)
        data = frames["length"].astype(np.int64) > 20 + 4 * (frames["words"] >> 4).astype(np.int64)
        chosen = frames[plain & data & np.isin(frames["device"], ports)]
        order = np.argsort(ports)
        return cls(
            time_ns=chosen["seconds"].astype(np.int64) * 1_000_000_000 + chosen["nanoseconds"],
            nic=order[np.searchsorted(ports, chosen["device"], sorter=order)],
            flow=flow_keys(chosen["destination"], chosen["source_port"], chosen["destination_port"]),
            size=chosen["length"].astype(np.int64),
            dropped=dropped,
        )


def flow_keys(destination: npt.ArrayLike, source_port: npt.ArrayLike, destination_port: npt.ArrayLike) -> Keys:
    """What tells the flows of one NIC apart; shapes as given."""
    parts = (np.asarray(part).astype(np.uint64) for part in (destination, source_port, destination_port))
    to, own, other = parts
    return np.asarray(to << np.uint64(32) | own << np.uint64(16) | other, dtype=np.uint64)


def flow_key(peer_host: str, port: int, peer_port: int) -> int:
    """The key of the flow from one of this side's ports to a peer's."""
    return int(flow_keys(int(IPv4Address(peer_host)), port, peer_port))


class Capture:
    """Follows a ring, in a thread of its own, until it is stopped."""

    def __init__(self, ring: socket.socket, ports: Sequence[int]) -> None:
        self._socket, self._ports = ring, ports
        self._memory = mmap.mmap(ring.fileno(), _FRAME * _FRAMES)
        self._frames = np.frombuffer(self._memory, dtype=FRAME)
        self._next = 0
        self._taken: list[npt.NDArray[np.void]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="capture", daemon=True)
        self._thread.start()

    def stop(self) -> Packets:
        """All that was seen."""
        self._halt()
        _, dropped = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        frames = np.concatenate([np.zeros(0, dtype=FRAME), *self._taken])
        if (frames["begins"] != _LINK_AT).any():
            raise KernelRefused(f"capture: packets do not begin at byte {_LINK_AT} of their frames on this kernel")
        return Packets.of(frames, self._ports, dropped)

    def close(self) -> None:
        """Let go of the ring."""
        self._halt()
        del self._frames
        self._memory.close()
        self._socket.close()

    def _halt(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY_S):
            self._take()
        self._take()

    def _take(self) -> None:
        """Copy the frames that are the user's, and give them back; the kernel fills them in turn."""
        while True:
            ready = (self._frames["status"][self._next :] & 1) != 0
            count = len(ready) if ready.all() else int(np.argmin(ready))
            if not count:
                return
            taken = slice(self._next, self._next + count)
            self._taken.append(self._frames[taken].copy())
            self._frames["status"][taken] = 0
            self._next = (self._next + count) % len(self._frames)


@contextmanager
def capture(bridge: Namespace, ports: Sequence[int]) -> Iterator[Capture]:
    """Watch the ports of a bridge. Raises ``KernelRefused`` where packets cannot be watched."""
    try:
        ring = bridge.call(_ring)
    except OSError as error:
        raise KernelRefused(f"capture: a packet socket: {error.strerror}; run as root, with CAP_NET_RAW") from error
    with closing(Capture(ring, ports)) as watching:
        yield watching


def _ring() -> socket.socket:
    """A ring over all devices of the namespace that this thread is in, for what comes in."""
    watched = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    watched.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    watched.setsockopt(_SOL_PACKET, _VERSION, _VERSION_2)
    blocks = _FRAME * _FRAMES // _BLOCK
    watched.setsockopt(_SOL_PACKET, _RX_RING, struct.pack("=IIII", _BLOCK, blocks, _FRAME, _FRAMES))
    return watched
