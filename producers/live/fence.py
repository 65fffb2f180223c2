"""Keeps a reader from seeing a record's number before the record, on machines that reorder stores.

x86 shows one core's stores to the others in their order. ARM does not, and Python has no fence for the writer to
use; but the reader can have the kernel run one on every core (membarrier(2)): whatever was stored before a number
that has been seen is then visible as well.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from functools import cache

_MEMBARRIER = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365}
_GLOBAL = 1


def through_the_kernel(machine: str) -> Callable[[], None]:
    """A fence on every core.

    Raises ``ValueError`` for a machine of which it is not known how; the fence raises ``OSError`` where the kernel
    refuses it.
    """
    if machine not in _MEMBARRIER:
        raise ValueError(f"rings cannot be read on {machine}: add its number of membarrier(2) to {__name__}")
    number = _MEMBARRIER[machine]
    libc = ctypes.CDLL(None, use_errno=True)

    def fence() -> None:
        if libc.syscall(number, _GLOBAL, 0, 0):
            raise OSError(ctypes.get_errno(), f"membarrier: {os.strerror(ctypes.get_errno())}")

    return fence


def fence_for(machine: str) -> Callable[[], None]:
    """What to call between reading a number and reading its record; as ``through_the_kernel`` but on x86."""
    return _none_needed if machine == "x86_64" else through_the_kernel(machine)


def _none_needed() -> None:
    """Stores are seen in their order."""


@cache
def _of_this_machine() -> Callable[[], None]:
    return fence_for(platform.machine())


def fence() -> None:
    """``fence_for`` this machine. Raises ``ValueError`` and ``OSError`` as that does."""
    _of_this_machine()()
