"""Network namespaces joined by a bridge, every line shaped.

Namespaces have no names and leave nothing behind: the kernel keeps each as long as a thread or a process is inside,
and all that is in it goes with it, however this process ends. A namespace here is a thread that has left for one of
its own; programs that are started from it, and sockets that are opened in it, are inside as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from benchmarks.real_traffic.plan import MTU, Plan, address
from schemas.errors import OffbeatError

T = TypeVar("T")

LINE = "eth0"
"""A rank's end of its line."""

_CLONE_NEWNET = 0x40000000
_BURST_BYTES = 64 << 10
_QUEUE_BYTES = 8 << 20
"""Far more than connections have under way at once: nothing is lost, as on a fabric without loss."""

_COMMAND_S = 20.0


class KernelRefused(OffbeatError):
    """The kernel, or the machine, does not let a fabric be built; the message says what it refused."""


class Namespace:
    """A network namespace, held by a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="namespace")
        try:
            self.path = self._thread.submit(_leave).result()
        except OSError as error:
            self._thread.shutdown()
            raise KernelRefused(
                f"a network namespace: {error.strerror}; run as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN"
            ) from error

    def call(self, work: Callable[[], T]) -> T:
        """Do something inside."""
        return self._thread.submit(work).result()

    def configure(self, *command: str) -> None:
        """Run ``ip`` or ``tc`` inside. Raises ``KernelRefused`` where it fails."""
        self.call(partial(_configured, command))

    def close(self) -> None:
        """Let go of it."""
        self._thread.shutdown()


@dataclass(frozen=True, slots=True)
class Fabric:
    """A bridge, and a namespace for each rank; ``ports``: number of the bridge's port that each rank is behind."""

    bridge: Namespace
    ranks: Sequence[Namespace]
    ports: Sequence[int]


@contextmanager
def fabric(plan: Plan) -> Iterator[Fabric]:
    """Lines of all ranks, shaped in both directions.

    Raises ``KernelRefused`` where the machine lacks ``ip`` or ``tc``, or the kernel a privilege or a module.
    """
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise KernelRefused(f"{program} is not installed; Debian has it in the package iproute2")
    with ExitStack() as held:
        bridge, *ranks = (held.enter_context(closing(Namespace())) for _ in range(plan.ranks + 1))
        bridge.configure("ip", "link", "add", "bridge", "type", "bridge")
        bridge.configure("ip", "link", "set", "bridge", "up")
        for rank, own in enumerate(ranks):
            _connect(plan, bridge, own, rank)
        ports = [bridge.call(partial(socket.if_nametoindex, _port(rank))) for rank in range(plan.ranks)]
        yield Fabric(bridge, ranks, ports)


def _connect(plan: Plan, bridge: Namespace, own: Namespace, rank: int) -> None:
    """One rank's line. Packets are never joined to larger ones, so that each is seen when it is sent."""
    port, sizes = _port(rank), ("mtu", str(MTU), "gso_max_segs", "1")
    bridge.configure("ip", "link", "add", port, "type", "veth", "peer", "name", LINE, "netns", own.path)
    bridge.configure("ip", "link", "set", port, *sizes, "master", "bridge", "up")
    own.configure("ip", "address", "add", f"{address(rank)}/24", "dev", LINE)
    own.configure("ip", "link", "set", LINE, *sizes, "up")
    own.configure(*_shaped(LINE, plan.sending_mbps(rank)))
    bridge.configure(*_shaped(port, plan.line_mbps))


def _shaped(device: str, mbps: float) -> tuple[str, ...]:
    rate, burst, limit = f"{round(mbps * 1000)}kbit", str(_BURST_BYTES), str(_QUEUE_BYTES)
    return "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "limit", limit


def _port(rank: int) -> str:
    return f"port{rank}"


def _leave() -> str:
    """Leave with this thread for a new network namespace; where that can be named."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"


def _configured(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise KernelRefused(f"`{' '.join(command)}`: {said}")
