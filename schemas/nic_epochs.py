"""telemetry.nic_epochs: what each queue pair of a NIC sent, epoch by epoch; a row a NIC and poll (Pulse 4.2).

Only epochs in which something was sent are told, so that silence inside a covered interval, and nothing else, is
zero: an agent publishes every poll, also an empty one. A poll that is too large for a record comes in parts, each
with its own share of the queue pairs. Ordinary NICs that have port counters alone tell them the same way, without
queue pairs and with longer epochs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import ImpossibleValue
from schemas.topic import DURATION, ID, LATEST_NS, MOST, TIME, Column, Key, Topic

SOURCES = ("dpa", "port_counter")
MOST_QPN = (1 << 24) - 1
"""Numbers of queue pairs have 24 bits."""

MOST_PARTS = 1 << 16
_NAME = "telemetry.nic_epochs"


def _check(batch: pa.RecordBatch) -> None:
    _check_polls(batch)
    _check_epochs(batch)


def _check_polls(batch: pa.RecordBatch) -> None:
    _refuse(pc.less(batch["poll_to_ns"], batch["poll_from_ns"]), "poll_to_ns lies before poll_from_ns")
    _refuse(pc.greater_equal(batch["part"], batch["parts"]), "part is not one of the parts")
    per_port = pc.equal(batch["source"].cast(pa.string()), "port_counter")
    _refuse(pc.and_(per_port, pc.is_valid(batch["qpn"])), "qpn is given where a whole port is counted")


def _check_epochs(batch: pa.RecordBatch) -> None:
    """As many values in each list, epochs within the poll, sorted by queue pair and epoch, each once."""
    lengths = pc.list_value_length(batch["units"])
    for name in ("epoch", "qpn"):
        _refuse(pc.not_equal(pc.list_value_length(batch[name]), lengths), f"{name} and units differ in length")
    counts = np.asarray(lengths, dtype=np.int64)
    if not counts.any():
        return
    # few passes, over the four bytes that values have: busy NICs tell millions of them a second
    epoch, qpn = np.asarray(batch["epoch"].flatten()), _queue_pairs(batch, counts)
    begins = (np.cumsum(counts) - counts)[counts > 0]
    span = np.asarray(batch["poll_to_ns"]) - np.asarray(batch["poll_from_ns"])
    epochs = -(-span // np.asarray(batch["epoch_ns"]))
    late = np.zeros(len(counts), dtype=np.bool_)
    late[counts > 0] = np.maximum.reduceat(epoch, begins) >= epochs[counts > 0]
    _refuse(pa.array(late), "an epoch begins after the poll's end")
    unsorted = epoch[1:] <= epoch[:-1]
    unsorted &= qpn[1:] == qpn[:-1]
    unsorted |= qpn[1:] < qpn[:-1]
    unsorted[begins[1:] - 1] = False
    _refuse_at(counts, np.append(False, unsorted), "epochs are not sorted by queue pair and time, each once")


def _queue_pairs(batch: pa.RecordBatch, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The queue pair of each value, 0 where ports are counted."""
    told = np.asarray(batch["qpn"].flatten())
    if len(told) == int(counts.sum()):
        return told
    numbers = np.zeros(int(counts.sum()), dtype=np.uint32)
    numbers[np.repeat(np.asarray(pc.is_valid(batch["qpn"])), counts)] = told
    return numbers


def _refuse(wrong: pa.Array, what: str) -> None:
    if pc.any(wrong).as_py():
        raise ImpossibleValue(f"{_NAME}: row {pc.index(wrong, True).as_py()}: {what}")


def _refuse_at(counts: npt.NDArray[np.int64], wrong: npt.NDArray[np.bool_], what: str) -> None:
    """Name the row that holds the first wrong value; ``counts`` are the values of each row."""
    if wrong.any():
        row = int(np.searchsorted(np.cumsum(counts), np.argmax(wrong), side="right"))
        raise ImpossibleValue(f"{_NAME}: row {row}: {what}")


TOPIC = Topic(
    name=_NAME,
    version=1,
    key=Key.JOB_HOST,
    doc="Bytes that queue pairs sent in each epoch, as NICs count them; a row a NIC and poll.",
    retention_hours=6.0,
    check=_check,
    columns=(
        Column("nic", ID, "The NIC, as control.jobs names it on its host."),
        Column(
            "poll_from_ns",
            TIME,
            "Beginning of the poll's first epoch; NIC clock.",
            "ns since the epoch",
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column(
            "poll_to_ns",
            TIME,
            "Up to when the poll tells everything; NIC clock.",
            "ns since the epoch",
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column("epoch_ns", DURATION, "Length of an epoch.", "ns", minimum=1, maximum=LATEST_NS),
        Column("unit_bytes", pa.int64(), "What one unit counts.", "bytes", minimum=1, maximum=MOST),
        Column(
            "aggregation_bytes",
            pa.int64(),
            "A queue pair is counted in steps of as much: what remains is told with what follows.",
            "bytes",
            minimum=1,
            maximum=MOST,
        ),
        Column("source", ID, "What counted.", choices=SOURCES),
        Column(
            "host_minus_nic_ns",
            DURATION,
            "The host's clock less the NIC's.",
            "ns",
            nullable=True,
            minimum=-LATEST_NS,
            maximum=LATEST_NS,
        ),
        Column(
            "clock_error_ns",
            DURATION,
            "How far that offset may be wrong; null: nobody knows.",
            "ns",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column("events_dropped", pa.int64(), "Counts that the NIC lost since its last poll.", minimum=0, maximum=MOST),
        Column(
            "aged_qpns",
            pa.list_(pa.uint32()),
            "Queue pairs that the NIC stopped to keep, as they had sent nothing since the last poll.",
            minimum=0,
            maximum=MOST_QPN,
        ),
        Column("part", pa.int32(), "Which part of the poll this is, from 0.", minimum=0, maximum=MOST_PARTS - 1),
        Column("parts", pa.int32(), "Parts that the poll has.", minimum=1, maximum=MOST_PARTS),
        Column(
            "qpn",
            pa.list_(pa.uint32()),
            "Queue pair of each value, ascending; null: the port is counted as a whole.",
            nullable=True,
            minimum=0,
            maximum=MOST_QPN,
        ),
        Column(
            "epoch",
            pa.list_(pa.uint32()),
            "Epoch of each value, counted from the poll's beginning; ascending per queue pair.",
            minimum=0,
            maximum=(1 << 32) - 1,
        ),
        Column("units", pa.list_(pa.uint32()), "Units sent in that epoch.", minimum=1, maximum=(1 << 32) - 1),
    ),
)
