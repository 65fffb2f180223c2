"""One poll of a NIC, and the records of telemetry.nic_epochs that tell of polls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from producers.collectors.nic_clock import NicClock, Offset
from schemas.catalogue import NIC_EPOCHS
from schemas.message import Message, encode

Counts = NDArray[np.uint32]

MOST_VALUES = 1 << 18
"""Values of a record: 3 MiB that need not compress for the record to be within its bound."""

MOST_POLLS = 8
"""Polls of a record."""

MOST_AGED = 1 << 14
"""Queue pairs that a NIC may stop to keep at a poll: half a MiB in a record of so many polls."""


@dataclass(frozen=True)
class Poll:
    """What a NIC sent from ``from_ns`` to ``to_ns`` of its own clock; silence in there is zero.

    ``qpn`` (None: the port as a whole), ``epoch`` (from ``from_ns``, in steps of ``epoch_ns``) and ``units`` (of
    ``unit_bytes``, never 0) are of one length, sorted by queue pair and epoch. ``offset`` leads from the NIC's clock
    to the host's; None: it is not known.
    """

    nic: str
    source: str
    from_ns: int
    to_ns: int
    epoch_ns: int
    unit_bytes: int
    aggregation_bytes: int
    qpn: Counts | None
    epoch: Counts
    units: Counts
    aged_qpns: Counts
    events_dropped: int = 0
    offset: Offset | None = None

    @property
    def host_to_ns(self) -> int:
        """Up to when the poll tells everything by the host's clock, as far as that is known."""
        return self.to_ns + (0 if self.offset is None else self.offset.host_minus_nic_ns)

    def aligned(self, clock: NicClock) -> Poll:
        """The same poll with the offset that a clock has in it."""
        return replace(self, offset=clock.offset(self.from_ns, self.to_ns))


Part = tuple[Poll, int, int]
"""A poll's own share of its queue pairs, its number, and how many parts there are."""


def messages(polls: Sequence[Poll], job: str, host: str) -> Iterator[Message]:
    """Records that tell of polls, as many to a record as ``batches`` puts together."""
    told_ns = max(min((poll.host_to_ns for poll in polls), default=0), 0)
    for rows in batches(polls):
        yield encode(NIC_EPOCHS, rows, job=job, key=f"{job}/{host}", watermark_ns=told_ns)


def batches(polls: Iterable[Poll]) -> Iterator[pa.RecordBatch]:
    """Rows of telemetry.nic_epochs: a batch of the polls that fit into a record together, of others one for each part.

    What the NIC tells of a poll as a whole, as its lost events, stands in each of its parts.
    """
    together: list[Part] = []
    for part in (part for poll in polls for part in _numbered(poll)):
        values = len(part[0].units) + sum(len(other.units) for other, _, _ in together)
        if together and (values > MOST_VALUES or len(together) == MOST_POLLS):
            yield _batch(together)
            together = []
        together.append(part)
    if together:
        yield _batch(together)


def rows_of(poll: Poll) -> pa.RecordBatch:
    """A poll as rows of telemetry.nic_epochs, of which each fits into a record."""
    return _batch(list(_numbered(poll)))


def _batch(parts: Sequence[Part]) -> pa.RecordBatch:
    polls = [poll for poll, _, _ in parts]
    columns = {
        "nic": [poll.nic for poll in polls],
        "poll_from_ns": [poll.from_ns for poll in polls],
        "poll_to_ns": [poll.to_ns for poll in polls],
        "source": [poll.source for poll in polls],
        "host_minus_nic_ns": [None if poll.offset is None else poll.offset.host_minus_nic_ns for poll in polls],
        "clock_error_ns": [None if poll.offset is None else poll.offset.error_ns for poll in polls],
        "part": [part for _, part, _ in parts],
        "parts": [of for _, _, of in parts],
        "aged_qpns": _lists([poll.aged_qpns for poll in polls]),
        "qpn": _lists([poll.qpn for poll in polls]),
        "epoch": _lists([poll.epoch for poll in polls]),
        "units": _lists([poll.units for poll in polls]),
    }
    for name in ("epoch_ns", "unit_bytes", "aggregation_bytes", "events_dropped"):
        columns[name] = [getattr(poll, name) for poll in polls]
    return NIC_EPOCHS.batch(columns)


def _lists(columns: Iterable[Counts | None]) -> pa.ListArray:
    """One list of each column; null where there is none."""
    columns = list(columns)
    ends = np.cumsum([0, *(0 if values is None else len(values) for values in columns)])
    missing = pa.array([values is None for values in columns], pa.bool_())
    whole = np.concatenate([np.zeros(0, dtype=np.uint32), *(values for values in columns if values is not None)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(whole, pa.uint32()), mask=missing)


def _numbered(poll: Poll) -> Iterator[Part]:
    for short in _in_time(poll):
        parts = list(_parts(short))
        yield from ((part, number, len(parts)) for number, part in enumerate(parts))


def _in_time(poll: Poll) -> Iterator[Poll]:
    """The poll, or shorter ones one after the other where a queue pair alone has more values than a part holds."""
    if _most_of_one(poll) <= MOST_VALUES:
        yield poll
        return
    half = (poll.to_ns - poll.from_ns) // poll.epoch_ns // 2
    middle_ns = poll.from_ns + half * poll.epoch_ns
    early = poll.epoch < half
    yield from _in_time(replace(_chosen(poll, early), to_ns=middle_ns))
    later = replace(_chosen(poll, ~early), from_ns=middle_ns, events_dropped=0, aged_qpns=poll.aged_qpns[:0])
    yield from _in_time(replace(later, epoch=later.epoch - np.uint32(half)))


def _most_of_one(poll: Poll) -> int:
    if poll.qpn is None:
        return len(poll.units)
    firsts = _firsts(poll.qpn)
    return int(np.diff(firsts, append=len(poll.qpn)).max(initial=0))


def _parts(poll: Poll) -> Iterator[Poll]:
    """The poll in parts, each with its own share of the queue pairs; at least one."""
    if len(poll.units) <= MOST_VALUES or poll.qpn is None:
        yield poll
        return
    firsts = np.append(_firsts(poll.qpn), len(poll.qpn))
    begin = 0
    while begin < len(poll.qpn):
        end = int(firsts[np.searchsorted(firsts, begin + MOST_VALUES, side="right") - 1])
        yield _chosen(poll, slice(begin, end))
        begin = end


def _firsts(qpn: Counts) -> NDArray[np.int64]:
    """Where each queue pair's values begin."""
    return np.flatnonzero(np.diff(qpn.astype(np.int64), prepend=-1))


def _chosen(poll: Poll, which: slice | NDArray[np.bool_]) -> Poll:
    qpn = None if poll.qpn is None else poll.qpn[which]
    return replace(poll, qpn=qpn, epoch=poll.epoch[which], units=poll.units[which])
