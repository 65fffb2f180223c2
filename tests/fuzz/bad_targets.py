"""Targets that do what none may, to try the campaign on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from schemas.errors import InputError
from tests.fuzz.target import Target, Trial

BOUND = 64 << 20


def _trial(bad: Callable[[bytes], object]) -> Callable[[Path], Trial]:
    """A function that reads one input, refuses those that are longer, and is ``bad`` for the shorter ones."""
    seed = b"good input"

    def feed(data: bytes) -> None:
        if len(data) > len(seed):
            raise InputError("too long")
        if len(data) < len(seed):
            bad(data)

    return lambda _: Trial([seed], feed)


def _raises(data: bytes) -> None:
    raise KeyError(len(data))


def _dies(_: bytes) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hangs(_: bytes) -> None:
    while True:
        time.sleep(60)


def _hoards(_: bytes) -> None:
    bytearray(b"\1") * (2 * BOUND)


def _asks_for_too_much(_: bytes) -> None:
    try:
        bytearray(1 << 46)
    except MemoryError as error:
        raise InputError("refused, but only by the machine") from error


TARGETS = {
    name: Target(name, _trial(bad), memory_bytes=BOUND)
    for name, bad in {
        "good": len,
        "raises": _raises,
        "dies": _dies,
        "hangs": _hangs,
        "hoards": _hoards,
        "asks": _asks_for_too_much,
    }.items()
}
