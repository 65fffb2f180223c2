"""What a host's NICs and processes told of one job, as it came: on disk, the newest of it, within a bound of bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from producers.message_frames import frame_of, message_of
from producers.segments import Frame, Segments
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message

log = logging.getLogger(__name__)

_FROM, _TO = "kept_from_ns", "kept_to_ns"
"""Headers of a frame: the span of time that its message tells of."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a message is, and the span of time that it tells of; host clock."""

    frame: Frame
    topic: str
    from_ns: int
    to_ns: int


class TrafficRing:
    """Records of telemetry.nic_epochs, op_calls and queue_pairs of a job in a folder.

    The oldest go for the newest. Raises ``OSError`` where the folder cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._segments = Segments(folder, max_bytes)
        self._kept: list[Kept] = []
        for frame in self._segments.frames:
            try:
                message = message_of(self._segments.read(frame))
                self._kept.append(_kept(frame, message))
            except (ValueError, KeyError) as error:
                log.warning("%s: what is kept under number %d is passed over: %s", folder, frame.number, error)

    @property
    def total_bytes(self) -> int:
        """What is on disk."""
        return self._segments.total_bytes

    @property
    def polled(self) -> tuple[int, int] | None:
        """The span of time that kept epochs tell of; None: there are none."""
        polls = [one for one in self._kept if one.topic == NIC_EPOCHS.name]
        return (min(one.from_ns for one in polls), max(one.to_ns for one in polls)) if polls else None

    def append(self, message: Message, batch: pa.RecordBatch) -> list[Kept]:
        """Keep a message that holds ``batch``; what had to go for it. Raises ``OSError`` where the disk is full."""
        from_ns, to_ns = span_of(message.topic, batch)
        own = replace(message, headers={**message.headers, _FROM: str(from_ns), _TO: str(to_ns)})
        number = self._segments.frames[-1].number + 1 if self._segments.frames else 0
        gone = {frame.number for frame in self._segments.append(number, frame_of(own))}
        self._kept.append(_kept(self._segments.frames[-1], own))
        if not gone:
            return []
        lost = [one for one in self._kept if one.frame.number in gone]
        self._kept = [one for one in self._kept if one.frame.number not in gone]
        return lost

    def since(self, from_ns: int) -> Iterator[Message]:
        """The messages that tell of a time or later ones, in the order in which they came."""
        for one in list(self._kept):
            if one.to_ns >= from_ns or one.topic == QUEUE_PAIRS.name:
                yield self.read(one)

    def epochs(self, from_ns: int, to_ns: int) -> list[Kept]:
        """Where the records of telemetry.nic_epochs are that tell of a span of time, the oldest first."""
        polls = (one for one in self._kept if one.topic == NIC_EPOCHS.name)
        return [one for one in polls if one.to_ns > from_ns and one.from_ns < to_ns]

    def read(self, kept: Kept) -> Message:
        """A message that is kept. Raises ``OSError`` where it can no longer be read."""
        return message_of(self._segments.read(kept.frame))


def span_of(topic: str, batch: pa.RecordBatch) -> tuple[int, int]:
    """The span of time that rows tell of, by the host's clock; (0, 0) of queue pairs, which hold on."""
    if topic == NIC_EPOCHS.name:
        offset = pc.fill_null(batch["host_minus_nic_ns"], 0)
        began, ended = pc.add(batch["poll_from_ns"], offset), pc.add(batch["poll_to_ns"], offset)
    elif topic == OP_CALLS.name:
        began, ended = batch["call_ns"], pc.coalesce(batch["group_end_ns"], batch["call_ns"])
    else:
        return 0, 0
    return (pc.min(began).as_py(), pc.max(ended).as_py()) if batch.num_rows else (0, 0)


def _kept(frame: Frame, message: Message) -> Kept:
    return Kept(frame, message.topic, int(message.headers[_FROM]), int(message.headers[_TO]))
