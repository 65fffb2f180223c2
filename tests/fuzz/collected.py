"""Targets: what collectors read on a host, left there by NIC agents."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from producers.collectors.epoch_dump import HEADER, read
from producers.collectors.nic_clock import NicClock
from producers.collectors.poll import messages
from schemas.catalogue import NIC_EPOCHS
from schemas.message import decode
from tests.fuzz.target import Target, Trial
from tests.producers.collectors.dumps import dump


def targets() -> Iterator[Target]:
    """Epoch dumps, with the damage found by their checksums and with it before they were made."""
    yield Target("epoch dump", _epoch_dump)
    yield Target("epoch dump before its checksums", weight=6, make=_epoch_dump_unchecked)


def _seeds() -> list[bytes]:
    readings = [(1_000, 7, 3_000), (9_000, 6_007, 9_500)]
    flows = [(5, 3, [1, 0, 2, 65535]), (5, 40, [4] * 20), (9, 0, []), (1 << 20, 31_249, [7])]
    rich = dump(flows, readings=readings, aged=[1, 2], events_dropped=3)
    return [rich + dump(nic=b"mlx5_1"), dump(flows, count_bytes=4, unit_bytes=64), dump()]


def _tell(path: Path) -> None:
    """What is read becomes records that readers take."""
    for found in read(path):
        clock = NicClock()
        clock.take(found.readings)
        clock.offset(found.poll.from_ns, found.poll.to_ns)
        for message in messages([found.poll], "j", "h"):
            decode(message, NIC_EPOCHS)


def _epoch_dump(folder: Path) -> Trial:
    path = folder / "poll.epochs"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        _tell(path)

    return Trial(_seeds(), feed)


def _epoch_dump_unchecked(folder: Path) -> Trial:
    """What an agent of another make could have written: the checksums fit."""
    path = folder / "poll.epochs"

    def feed(data: bytes) -> None:
        head, body = data[: HEADER.size - 8], data[HEADER.size :]
        head += struct.pack("<I", zlib.crc32(body))
        path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + body)
        _tell(path)

    return Trial([dump([(5, 3, [1, 0, 2])], readings=[(1, 2, 3)], aged=[4]), _seeds()[1]], feed)
