"""Network namespaces, one for each rank, joined by a bridge.

Namespaces have no names and leave nothing behind: the kernel keeps each as long as a thread or a process is inside,
and all that is in it goes with it, however this process ends. A namespace here is a thread that has left for one of
its own; programs that are started from it, and sockets that are opened in it, are inside as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from schemas.errors import OffbeatError

T = TypeVar("T")

LINE = "eth0"
"""A rank's end of its line."""

_CLONE_NEWNET = 0x40000000

_COMMAND_S = 20.0


class KernelRefused(OffbeatError):
    """The kernel, or the machine, does not let a network be built; the message says what it refused."""


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
class Network:
    """A bridge, and a namespace for each rank."""

    bridge: Namespace
    ranks: Sequence[Namespace]


@contextmanager
def network(ranks: int, *options: str) -> Iterator[Network]:
    """Lines of all ranks to one bridge; ``options``: of both ends of each, as ``ip link set`` takes them.

    Raises ``KernelRefused`` where the machine lacks ``ip`` or ``tc``, or the kernel a privilege or a module.
    """
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise KernelRefused(f"{program} is not installed; Debian has it in the package iproute2")
    with ExitStack() as held:
        bridge, *own = (held.enter_context(closing(Namespace())) for _ in range(ranks + 1))
        bridge.configure("ip", "link", "add", "bridge", "type", "bridge")
        bridge.configure("ip", "link", "set", "bridge", "up")
        for rank, namespace in enumerate(own):
            _connect(bridge, namespace, rank, options)
        yield Network(bridge, own)


def address(rank: int) -> str:
    """The address of a rank's line."""
    return f"10.77.0.{rank + 1}"


def port(rank: int) -> str:
    """The bridge's end of a rank's line."""
    return f"port{rank}"


def _connect(bridge: Namespace, own: Namespace, rank: int, options: Sequence[str]) -> None:
    bridge.configure("ip", "link", "add", port(rank), "type", "veth", "peer", "name", LINE, "netns", own.path)
    bridge.configure("ip", "link", "set", port(rank), *options, "master", "bridge", "up")
    own.configure("ip", "address", "add", f"{address(rank)}/24", "dev", LINE)
    own.configure("ip", "link", "set", LINE, *options, "up")
    own.configure("ip", "link", "set", "lo", "up")  # a rank may reach itself by its address


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
