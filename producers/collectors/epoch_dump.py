"""Epoch dumps: what a NIC agent writes of each poll (Pulse 4.2, appendix A); docs/collectors.md has the format.

A file holds polls one after the other, each a header, its body, and a checksum of both. A flow's counts come in runs
of epochs, as the NIC keeps them in its memory; the zeros of a run are left out on the way in.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.collectors.nic_clock import Readings
from producers.collectors.poll import MOST_AGED, Poll
from schemas.errors import InputError
from schemas.nic_epochs import MOST_QPN
from schemas.topic import LATEST_NS, MOST

MAGIC = b"OFBEPOCH"
VERSION = 1
SUFFIX = ".epochs"

NAME_BYTES = 48
HEADER = struct.Struct(f"<8sHHIIIQqqIIIIQ{NAME_BYTES}sII")
RUN = np.dtype([("qpn", "<u4"), ("first_epoch", "<u4"), ("epochs", "<u4"), ("zero", "<u4")])
READING = np.dtype("<i8")

MOST_READINGS = 1 << 10
MOST_RUNS = 1 << 20
MOST_COUNTS = 1 << 26
"""2,000 flows that each sent in all of the 31,250 epochs of a second fit."""

_DAMAGED = "the file is damaged or cut short"


class _Header(NamedTuple):
    magic: bytes
    version: int
    count_bytes: int
    readings: int
    runs: int
    aged: int
    counts: int
    from_ns: int
    to_ns: int
    epoch_ns: int
    unit_bytes: int
    aggregation_bytes: int
    zero: int
    events_dropped: int
    nic: bytes
    body_crc: int
    header_crc: int

    @property
    def body_bytes(self) -> int:
        sizes = (24 * self.readings, RUN.itemsize * self.runs, 4 * self.aged, self.count_bytes * self.counts)
        return sum(sizes)

    @property
    def epochs(self) -> int:
        """Epochs that begin within the poll."""
        return min(-(-(self.to_ns - self.from_ns) // self.epoch_ns), 1 << 32)


_BOUNDS = {
    "readings": (0, MOST_READINGS),
    "runs": (0, MOST_RUNS),
    "aged": (0, MOST_AGED),
    "counts": (0, MOST_COUNTS),
    "from_ns": (0, LATEST_NS),
    "to_ns": (0, LATEST_NS),
    "epoch_ns": (1, (1 << 32) - 1),
    "unit_bytes": (1, (1 << 32) - 1),
    "aggregation_bytes": (1, (1 << 32) - 1),
    "zero": (0, 0),
    "events_dropped": (0, MOST),
}


@dataclass(frozen=True)
class Dump:
    """A poll as it was dumped, and the clocks' readings that came with it."""

    poll: Poll
    readings: Readings


def read(path: Path) -> Iterator[Dump]:
    """The polls of a file, in their order.

    Raises ``InputError`` that names the file, the offset and the field for what no agent writes, and for what cannot
    be read. Polls before the fault have been given by then.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while file.tell() < size:
                yield _dump(file, size, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _dump(file: BinaryIO, size: int, path: Path) -> Dump:
    at = file.tell()
    header = _header(file.read(HEADER.size), f"{path}: offset {at}")
    if header.body_bytes > (left := size - file.tell()):
        raise InputError(
            f"{path}: offset {at}: the header tells of {header.body_bytes} bytes, {left} follow: {_DAMAGED}"
        )
    begins = file.tell()
    body = file.read(header.body_bytes)
    if len(body) < header.body_bytes or zlib.crc32(body) != header.body_crc:
        raise InputError(f"{path}: offset {begins}: the body's checksum does not fit: {_DAMAGED}")
    return _decoded(header, body, f"{path}: offset {begins}")


def _header(data: bytes, where: str) -> _Header:
    if len(data) < HEADER.size:
        raise InputError(f"{where}: {len(data)} bytes of a header of {HEADER.size}: {_DAMAGED}")
    header = _Header(*HEADER.unpack(data))
    if header.magic != MAGIC:
        raise InputError(f"{where}: field magic is {header.magic!r}, not {MAGIC!r}: no epoch dump begins here")
    if header.version != VERSION:
        raise InputError(f"{where}: field version is {header.version}, known is {VERSION}: update Offbeat or the agent")
    if zlib.crc32(data[:-4]) != header.header_crc:
        raise InputError(f"{where}: the header's checksum does not fit: {_DAMAGED}")
    if header.count_bytes not in {2, 4}:
        raise InputError(f"{where}: field count_bytes is {header.count_bytes}, not 2 or 4")
    for name, (least, most) in _BOUNDS.items():
        value = getattr(header, name)
        if not least <= value <= most:
            raise InputError(f"{where}: field {name} is {value}, not from {least} to {most}")
    if header.to_ns < header.from_ns:
        raise InputError(f"{where}: field to_ns is {header.to_ns}, before from_ns, {header.from_ns}")
    return header


def _decoded(header: _Header, body: bytes, where: str) -> Dump:
    """The poll in a body whose checksum fits; what is left to check is what the agent wrote."""
    at = 24 * header.readings
    readings = np.frombuffer(body, READING, 3 * header.readings).reshape(-1, 3).astype(np.int64)
    runs = np.frombuffer(body, RUN, header.runs, at)
    at += runs.nbytes
    aged = np.frombuffer(body, "<u4", header.aged, at)
    at += aged.nbytes
    counts = np.frombuffer(body, f"<u{header.count_bytes}", header.counts, at)
    _check_readings(readings, where)
    _check_runs(runs, header, where)
    _refuse(aged > MOST_QPN, aged, "aged", f"more than the {MOST_QPN} that 24 bits hold", where)
    qpn, epoch, units = _values(runs, counts)
    poll = Poll(
        nic=_name(header.nic, where),
        source="dpa",
        from_ns=header.from_ns,
        to_ns=header.to_ns,
        epoch_ns=header.epoch_ns,
        unit_bytes=header.unit_bytes,
        aggregation_bytes=header.aggregation_bytes,
        qpn=qpn,
        epoch=epoch,
        units=units,
        aged_qpns=aged.astype(np.uint32),
        events_dropped=header.events_dropped,
    )
    return Dump(poll, readings)


def _values(
    runs: NDArray[np.void], counts: NDArray[np.unsignedinteger]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Queue pair, epoch and units of what is not zero."""
    at = np.flatnonzero(counts)
    begins = np.cumsum(runs["epochs"], dtype=np.int64) - runs["epochs"]
    of_run = np.diff(np.searchsorted(at, np.append(begins, len(counts))))
    epoch = at + np.repeat(runs["first_epoch"].astype(np.int64) - begins, of_run)
    return np.repeat(runs["qpn"].astype(np.uint32), of_run), epoch.astype(np.uint32), counts[at].astype(np.uint32)


def _check_readings(readings: Readings, where: str) -> None:
    outside = np.asarray(((readings < 0) | (readings > LATEST_NS)).any(axis=1))
    _refuse(outside, readings, "readings", f"not from 0 to {LATEST_NS}", where)


def _check_runs(runs: NDArray[np.void], header: _Header, where: str) -> None:
    first, length = runs["first_epoch"].astype(np.int64), runs["epochs"].astype(np.int64)
    end = first + length
    place = runs["qpn"].astype(np.int64) << 33
    late = np.zeros(len(runs), dtype=np.bool_)
    late[1:] = (place + first)[1:] < (place + end)[:-1]
    _refuse(runs["qpn"] > MOST_QPN, runs["qpn"], "qpn of runs", f"more than the {MOST_QPN} that 24 bits hold", where)
    _refuse(runs["zero"] != 0, runs["zero"], "zero of runs", "not 0", where)
    _refuse(end > header.epochs, end, "first_epoch + epochs of runs", f"beyond the poll's {header.epochs}", where)
    _refuse(late, first, "first_epoch of runs", "before the end of the run before it", where)
    if length.sum() != header.counts:
        raise InputError(f"{where}: field counts is {header.counts}, but the runs have {length.sum()}")


def _refuse(wrong: NDArray[np.bool_], values: NDArray[np.generic], name: str, what: str, where: str) -> None:
    if wrong.any():
        first = int(wrong.argmax())
        raise InputError(f"{where}: field {name}: entry {first} is {values[first].tolist()}, {what}")


def _name(data: bytes, where: str) -> str:
    try:
        name = data.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        name = ""
    if not name or not name.isprintable():
        raise InputError(f"{where}: field nic is {data.rstrip(bytes(1))!r}: no name")
    return name
