"""Times that were written in another unit than nanoseconds, or tell nothing, as far as that is certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from diagnosis.columns import integers
from schemas.topic import LATEST_NS

_IN_NS: Mapping[str, int] = {"microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}

_EARLIEST_NS = 631_152_000 * 10**9
"""1990: of clocks that count from the epoch none is before it."""

_LIKELY_US = (1_388_534_400 * 10**6, 2_019_686_400 * 10**6)
"""From 2014 to 2034 in microseconds since the epoch: in nanoseconds 16 to 23 days of a host that is up."""

_LEAST_CALLS = 100

_LEAST_BETWEEN_NS = 10_000
"""Between two calls of a rank that trains, in the mean: a call alone takes about as long."""

_LEAST_STANDING = 10
"""Calls of a rank of which more than half can hardly be at one moment."""


@dataclass(frozen=True, slots=True)
class Mistaken:
    """A rank whose times are of no use, one of them, why, and what to do."""

    rank: int
    call_ns: int
    why: str


def mistaken_unit(table: pa.Table) -> Mistaken | None:
    """The first rank whose call times can only be in another unit; None: there is none.

    ``table`` is sorted by rank. Clocks may count from anywhere, as from the start of the host, so that small numbers
    alone show nothing: these would be times since 1990 in another unit as well, and as nanoseconds the rank would call
    faster than anybody can.
    """
    rank, call_ns = integers(table, "rank"), integers(table, "call_ns")
    heads = np.flatnonzero(np.diff(rank, prepend=-1))
    calls = np.diff(np.append(heads, len(rank)))
    first, last = np.minimum.reduceat(call_ns, heads), np.maximum.reduceat(call_ns, heads)
    between_ns = (last - first) / np.maximum(calls - 1, 1)
    dense = (calls >= _LEAST_CALLS) & (between_ns < _LEAST_BETWEEN_NS)
    for unit, ns in _IN_NS.items():
        found = np.flatnonzero(dense & (first >= _EARLIEST_NS // ns) & (last <= LATEST_NS // ns))
        if len(found):
            at = found[0]
            day = datetime.fromtimestamp(int(first[at]) * ns // 10**9, UTC)
            why = f"{unit} since the epoch, it seems ({day:%Y-%m-%d}): as nanoseconds the rank would call something "
            why = f"{why}every {between_ns[at]:.4g} ns; give nanoseconds"
            return Mistaken(int(rank[heads[at]]), int(first[at]), why)
    return None


def standing_clock(table: pa.Table) -> Mistaken | None:
    """The first rank that called most of its operators at one and the same moment, as its times tell; None: there is
    none.

    ``table`` is sorted by rank and call order. Without a clock nothing is slow, nor is anything known to be fine.
    """
    rank, call_ns = integers(table, "rank"), integers(table, "call_ns")
    heads = np.flatnonzero((np.diff(rank, prepend=-1) != 0) | (np.diff(call_ns, prepend=-1) != 0))
    at_once = np.diff(np.append(heads, len(rank)))
    calls = np.bincount(rank)[rank[heads]]
    found = np.flatnonzero((calls >= _LEAST_STANDING) & (2 * at_once > calls))
    if not len(found):
        return None
    at = found[0]
    why = f"at {at_once[at]} of its {calls[at]} calls: no clock; give the time of each call, or leave the rank out"
    return Mistaken(int(rank[heads[at]]), int(call_ns[heads[at]]), why)


def doubtful_unit(table: pa.Table) -> str | None:
    """What is said of the first rank whose times may as well be microseconds since the epoch; None: there is none."""
    rank, call_ns = integers(table, "rank"), integers(table, "call_ns")
    doubtful = np.flatnonzero((call_ns >= _LIKELY_US[0]) & (call_ns < _LIKELY_US[1]))
    if not len(doubtful):
        return None
    first = int(call_ns[doubtful[0]])
    day, up = datetime.fromtimestamp(first // 10**6, UTC), first / (86_400 * 10**9)
    as_ns = f"times of rank {rank[doubtful[0]]} are read as nanoseconds of a clock that began {up:.0f} days before"
    return f"{as_ns}: if they are microseconds since the epoch ({day:%Y-%m-%d}), all durations are 1,000 times as long"
