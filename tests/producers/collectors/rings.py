"""Processes that have left calls, made without a compiler."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from producers.collectors.call_log import CALL, MAGIC, PAIR, RECORD
from producers.live.ring import HEADER, HEADER_BYTES
from producers.live.slots import Records

CAPACITY = 64


def record(kind: int = CALL, **values: Any) -> Records:
    """One record; what is not given is that of an all-reduce."""
    made = np.zeros(1, dtype=RECORD)
    made["kind"], made["peer"], made["dtype"], made["reduce_op"] = kind, -1, 7, 255
    for name, value in values.items():
        made[name] = value
    return made


def pair(kind: int, **values: Any) -> Records:
    """One of a queue pair."""
    made = record(kind)
    for name, value in {"nic": b"mlx5_0", **values}.items():
        made.view(PAIR)[name] = value
    return made


def write(folder: Path, *records: Records, facts: tuple[Records, ...] = (), rank: int = 3, job: str = "llama") -> Path:
    """The folder of a process that has ended."""
    folder.mkdir(parents=True)
    (folder / "alive").touch()
    said = {"job": job, "rank": rank, "start_id": "a", "host": "h0", "layout": {}, "groups": []}
    (folder / "registration.json").write_text(json.dumps(said))
    (folder / "facts").write_bytes(b"".join(each.tobytes() for each in facts))
    (folder / "ring-0").write_bytes(
        HEADER.pack(MAGIC, RECORD.itemsize, CAPACITY).ljust(HEADER_BYTES, b"\0") + bytes(CAPACITY * RECORD.itemsize)
    )
    append(folder, *records)
    return folder


def append(folder: Path, *records: Records) -> None:
    """What the process logs next; the ring is never full."""
    slots = np.memmap(folder / "ring-0", dtype=RECORD, mode="r+", offset=HEADER_BYTES, shape=(CAPACITY,))
    for each in records:
        number = int(slots["number"].max())
        slot = each.copy()
        slot["number"] = number + 1
        slots[number % CAPACITY] = slot[0]
    slots.flush()


def live(folder: Path) -> int:
    """Have the process live until the descriptor is closed."""
    lock = os.open(folder / "alive", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock
