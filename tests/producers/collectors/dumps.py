"""Epoch dumps as a NIC agent writes them, from docs/collectors.md and not from the reader's code."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence

Runs = Sequence[tuple[int, int, Sequence[int]]]
"""Queue pair, first epoch, and what was counted in that epoch and those after it."""


def dump(
    runs: Runs = (),
    *,
    nic: bytes = b"mlx5_0",
    from_ns: int = 0,
    to_ns: int = 1_000_000_000,
    epoch_ns: int = 32_000,
    unit_bytes: int = 32,
    aggregation_bytes: int = 4096,
    count_bytes: int = 2,
    readings: Iterable[tuple[int, int, int]] = (),
    aged: Sequence[int] = (),
    events_dropped: int = 0,
    header: Mapping[str, int] | None = None,
) -> bytes:
    """One poll; ``header`` replaces what follows from the rest, before the checksums are made."""
    width = {2: "H", 4: "I"}.get(count_bytes, "I")
    counts = [count for _, _, each in runs for count in each]
    read = list(readings)
    body = b"".join(struct.pack("<qqq", *each) for each in read)
    body += b"".join(struct.pack("<IIII", qpn, first, len(each), 0) for qpn, first, each in runs)
    body += struct.pack(f"<{len(aged)}I", *aged) + struct.pack(f"<{len(counts)}{width}", *counts)
    said = {
        "version": 1,
        "count_bytes": count_bytes,
        "readings": len(read),
        "runs": len(runs),
        "aged": len(aged),
        "counts": len(counts),
        "from_ns": from_ns,
        "to_ns": to_ns,
        "epoch_ns": epoch_ns,
        "unit_bytes": unit_bytes,
        "aggregation_bytes": aggregation_bytes,
        "zero": 0,
        "events_dropped": events_dropped,
        **(header or {}),
    }
    head = b"OFBEPOCH" + struct.pack("<HHIIIQqqIIIIQ", *said.values()) + nic.ljust(48, b"\0")
    head += struct.pack("<I", zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)) + body
