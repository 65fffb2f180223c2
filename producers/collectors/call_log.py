"""What the preloaded library tells of one process (preload/ring.h): its calls, communicators and queue pairs."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from producers.collectors.addresses import Addresses
from producers.live.registration import Registration, is_alive, opened
from producers.live.slots import Records, SlotReader
from schemas.catalogue import OP_CALLS
from schemas.comm_ops import OPS
from schemas.nic_epochs import MOST_QPN
from schemas.op_calls import DTYPES, REDUCTIONS
from schemas.topic import LATEST_NS, MOST, MOST_RANKS

log = logging.getLogger(__name__)

MAGIC = b"OFFBEATC"
RING, FACTS = "ring-0", "facts"
MOST_FACTS = 1 << 16

MEMBER, CALL, GROUP_END, CONNECTED, CLOSED = range(1, 6)

_HEAD = [("at_ns", "i8"), ("kind", "u1"), ("op", "u1"), ("dtype", "u1"), ("reduce_op", "u1"), ("place", "i4")]
_TAIL = [("spare", "u8"), ("number", "i8")]
RECORD = np.dtype(
    [
        *_HEAD,
        ("communicator", "u8"),
        *((name, "i8") for name in ("seq", "count")),
        ("stream", "u8"),
        *((name, "i8") for name in ("group", "group_start_ns")),
        *((name, "i4") for name in ("peer", "size")),
        ("none", "V40"),
        *_TAIL,
    ]
)
PAIR = np.dtype(
    [
        *_HEAD,
        ("gid", "V16"),
        ("destination_gid", "V16"),
        *((name, "u4") for name in ("qpn", "destination_qpn")),
        ("by_lid", "u1"),
        ("nic", "S55"),
        *_TAIL,
    ]
)
"""The same records, where they tell of a queue pair."""

HOLD_NS = 5_000_000_000
"""How long a call waits for the end of its group, and for its peer to be known, and those behind it with it.

One that the clock was set back behind does not wait: nobody knows how old it is.
"""

_SEND, _RECV = OPS.index("send"), OPS.index("recv")
_ROOTED = (OPS.index("broadcast"), OPS.index("reduce"))


@dataclass(frozen=True, slots=True)
class Member:
    """A place in a communicator."""

    communicator: str
    place: int


@dataclass(frozen=True, slots=True)
class QueuePair:
    """A queue pair with its two ends, or, where it is closed, its own alone."""

    at_ns: int
    nic: str
    qpn: int
    closed: bool
    gid: str = ""
    destination_gid: str = ""
    destination_qpn: int = 0


class CallLog:
    """A process that has the library in it.

    What is told of calls stays in the ring until ``release``, so that nothing is lost with the collector.
    Raises ``ValueError``, ``OSError`` or ``InputError`` for a folder that is no such process's.
    """

    def __init__(self, folder: Path) -> None:
        self.registration = Registration.read(folder)
        self._folder = folder
        self._ring = SlotReader(folder / RING, MAGIC, RECORD)
        self._facts_read = 0
        self._told_dropped = 0
        self._next = self._ring.tail
        self.alive = True
        self.told_ns = 0
        """Up to when ``calls`` has told of all, by the host's clock."""

    @property
    def rank(self) -> int:
        return self.registration.rank

    def look(self) -> int:
        """See what was logged meanwhile; calls that were lost since the last time, which is told as well."""
        self.alive = self.alive and is_alive(self._folder)  # first: all that a dead process logged is seen below
        self._ring.look()
        lost = self._ring.dropped - self._told_dropped
        if lost > 0:
            log.warning("rank %d of %s: %d calls were not logged", self.rank, self.registration.job, lost)
            self._told_dropped += lost
        return max(lost, 0)

    def facts(self) -> Iterator[Member | QueuePair]:
        """Communicators and queue pairs that have not been given yet; those that cannot be are left out.

        Raises ``OSError`` or ``ValueError`` where they cannot be read.
        """
        with os.fdopen(opened(self._folder / FACTS), "rb") as file:
            file.seek(self._facts_read * RECORD.itemsize)
            read = file.read((MOST_FACTS - self._facts_read) * RECORD.itemsize)
        whole = len(read) // RECORD.itemsize
        self._facts_read += whole
        records = np.frombuffer(read, RECORD, whole)
        for record, pair in zip(records, records.view(PAIR), strict=True):
            fact = _member(record) if record["kind"] == MEMBER else _queue_pair(pair)
            if fact is not None:
                yield fact

    def calls(self, addresses: Addresses, now_ns: int) -> pa.RecordBatch:
        """Rows of telemetry.op_calls: those that follow what was released, up to the first that is to wait.

        What has waited too long is told without what it waited for.
        """
        records = self._ring.seen()
        ends = _group_ends(records)
        peer = _peers(records, addresses)
        fresh = np.abs(records["at_ns"] - now_ns) <= HOLD_NS
        called = (records["kind"] == CALL) & _possible(records)
        two_ended = called & np.isin(records["op"], (_SEND, _RECV))
        waiting = (called & (records["group"] > 0) & (ends < 0)) | (two_ended & (peer < 0))
        waiting &= fresh & self.alive
        cut = int(waiting.argmax()) if waiting.any() else len(records)
        self._next = self._ring.tail + cut
        self.told_ns = min(int(records["at_ns"][cut]), now_ns) if cut < len(records) else now_ns
        told = called & (np.arange(len(records)) < cut)
        ordinal = np.arange(self._ring.tail, self._ring.tail + len(records))
        return _batch(records[told], ordinal[told], ends[told], peer[told], self.rank)

    def release(self) -> None:
        """Let go of what ``calls`` has given last."""
        self._ring.release(self._next)

    def remove(self) -> None:
        """Clear away what a process has left that is no more."""
        shutil.rmtree(self._folder, ignore_errors=True)


def communicator_name(code: int) -> str:
    """A communicator's name, from the number that its members have in common."""
    return f"{code:016x}"


def _member(record: np.void) -> Member | None:
    place = int(record["place"])
    return Member(communicator_name(int(record["communicator"])), place) if 0 <= place < MOST_RANKS else None


def _queue_pair(pair: np.void) -> QueuePair | None:
    at_ns, qpn, destination_qpn = (int(pair[name]) for name in ("at_ns", "qpn", "destination_qpn"))
    nic = bytes(pair["nic"]).decode(errors="replace")
    possible = 0 <= at_ns <= LATEST_NS and max(qpn, destination_qpn) <= MOST_QPN and nic.isprintable() and nic
    if not possible or pair["kind"] not in {CONNECTED, CLOSED}:
        return None
    if pair["kind"] == CLOSED:
        return QueuePair(at_ns, nic, qpn, closed=True)
    gid, destination = (_address(bytes(pair[name]), pair["by_lid"]) for name in ("gid", "destination_gid"))
    return QueuePair(at_ns, nic, qpn, False, gid, destination, destination_qpn)


def _address(gid: bytes, by_lid: int) -> str:
    return f"lid:{int.from_bytes(gid[14:])}" if by_lid else str(IPv6Address(gid))


def _group_ends(records: Records) -> NDArray[np.int64]:
    """When the group of each record was closed; -1: not seen, or no group."""
    closing = np.flatnonzero(records["kind"] == GROUP_END)
    order = closing[np.argsort(records["group"][closing], kind="stable")]
    groups = records["group"][order]
    ends = np.full(len(records), -1, dtype=np.int64)
    if len(order):
        at = np.minimum(np.searchsorted(groups, records["group"]), len(order) - 1)
        same = (groups[at] == records["group"]) & (records["group"] > 0)
        ends[same] = records["at_ns"][order][at[same]]
    return ends


def _peers(records: Records, addresses: Addresses) -> NDArray[np.int64]:
    """The global rank of each record's peer or root; -1: not known, or none."""
    found = np.full(len(records), -1, dtype=np.int64)
    asked = np.flatnonzero((records["kind"] == CALL) & (records["peer"] >= 0))
    pairs, of_pair = np.unique(records[["communicator", "peer"]][asked], return_inverse=True)
    names = (communicator_name(int(code)) for code in pairs["communicator"])
    found[asked] = addresses.ranks_at(names, pairs["peer"].tolist())[of_pair]
    return found


def _possible(records: Records) -> NDArray[np.bool_]:
    """Which records hold what a call can."""
    possible = (records["op"] < len(OPS)) & (records["dtype"] < len(DTYPES))
    for name, most in (("at_ns", LATEST_NS), ("count", MOST), ("seq", MOST), ("place", MOST_RANKS - 1)):
        possible &= (records[name] >= 0) & (records[name] <= most)
    return np.asarray(possible)


def _batch(
    records: Records, ordinal: NDArray[np.int64], ends: NDArray[np.int64], peer: NDArray[np.int64], rank: int
) -> pa.RecordBatch:
    codes, of_code = np.unique(records["communicator"], return_inverse=True)
    streams, of_stream = np.unique(records["stream"], return_inverse=True)
    call_ns, start_ns = records["at_ns"], records["group_start_ns"]
    grouped = (records["group"] > 0) & (start_ns >= 0) & (start_ns <= call_ns)
    ended = grouped & (ends >= call_ns) & (ends <= LATEST_NS)
    two_ended = np.isin(records["op"], (_SEND, _RECV))
    rooted = np.isin(records["op"], _ROOTED) & (peer >= 0)
    return OP_CALLS.batch(
        {
            "rank": np.full(len(records), rank, dtype=np.int32),
            "call_id": ordinal,
            "communicator": _named(of_code, [communicator_name(int(code)) for code in codes]),
            "communicator_rank": records["place"],
            "seq": records["seq"],
            "op": _named(records["op"], OPS),
            "dtype": _named(records["dtype"], DTYPES),
            "count": records["count"],
            "peer": pa.array(peer, mask=~two_ended | (peer < 0)),
            "root": pa.array(peer, mask=~rooted),
            "reduce_op": _named(records["reduce_op"], REDUCTIONS),
            "stream": _named(of_stream, [f"{int(stream):#x}" for stream in streams]),
            "call_ns": call_ns,
            "group_start_ns": pa.array(start_ns, mask=~grouped),
            "group_end_ns": pa.array(ends, mask=~ended),
        }
    )


def _named(codes: NDArray[np.generic], names: list[str] | tuple[str, ...]) -> pa.DictionaryArray:
    """Names of codes; what has none is null."""
    indices = codes.astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices >= len(names)), pa.array(names, pa.string()))
