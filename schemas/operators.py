"""analysis.operators: where operators begin and end in the traffic of their rank's NIC (Pulse 5.2)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.comm_ops import OPS
from schemas.errors import ImpossibleValue
from schemas.nic_epochs import MOST_QPN
from schemas.topic import ID, LATEST_NS, MOST, MOST_RANKS, TIME, Column, Key, Topic

METHODS = ("traffic",)
ALGORITHMS = ("ring", "tree", "point_to_point")
PARALLELISMS = ("dp", "tp", "pp", "ep", "none", "unknown")
STATES = ("complete", "incomplete", "missing_start", "unknown")
"""All of it was sent; a part; nothing, in a covered interval; the telemetry has a gap."""

VISIBILITIES = ("network", "intra_host", "below_aggregation")
"""Seen on a NIC; between GPUs of a host; too small for the NIC's counts."""

_NAME = "analysis.operators"


def check_times(batch: pa.RecordBatch, name: str) -> None:
    """Raise ``ImpossibleValue`` where an operator ends before it starts."""
    backwards = pc.less(batch["end_ns"], batch["start_ns"])
    if pc.any(backwards).as_py():
        raise ImpossibleValue(f"{name}: row {pc.index(backwards, True).as_py()}: end_ns lies before start_ns")


TOPIC = Topic(
    name=_NAME,
    version=1,
    key=Key.JOB_HOST,
    doc="Operators as found in NIC traffic, a row an operator, rank and NIC.",
    retention_hours=24.0,
    check=lambda batch: check_times(batch, _NAME),
    columns=(
        Column("method", ID, "What found it.", choices=METHODS),
        Column("rank", pa.int32(), "Global rank.", minimum=0, maximum=MOST_RANKS - 1),
        Column("communicator", ID, "Communicator, stable within the job."),
        Column("seq", pa.int64(), "Ordinal per communicator and rank.", nullable=True, minimum=0, maximum=MOST),
        Column(
            "position",
            pa.int32(),
            "Ordinal within iteration and communicator; null: by traffic.",
            nullable=True,
            minimum=0,
        ),
        Column(
            "iteration",
            pa.int32(),
            "Training iteration; null: by traffic, which carries none.",
            nullable=True,
            minimum=0,
        ),
        Column("op", ID, "What the operator does.", choices=OPS),
        Column("call_id", pa.int64(), "Its call, in telemetry.op_calls.", nullable=True, minimum=0, maximum=MOST),
        Column(
            "group_call",
            pa.int64(),
            "First call of the group that holds it; null: no group.",
            nullable=True,
            minimum=0,
            maximum=MOST,
        ),
        Column("nic", ID, "NIC that carries it.", nullable=True),
        Column("qpns", pa.list_(pa.uint32()), "Queue pairs that carry it.", nullable=True, minimum=0, maximum=MOST_QPN),
        Column(
            "peer",
            pa.int32(),
            "Global rank at the other end of a send or recv.",
            nullable=True,
            minimum=0,
            maximum=MOST_RANKS - 1,
        ),
        Column("algorithm", ID, "Algorithm, told by the active peers.", nullable=True, choices=ALGORITHMS),
        Column("algorithm_confidence", pa.float64(), "How sure that is.", nullable=True, minimum=0, maximum=1),
        Column(
            "parallelism", ID, "Dimension that it serves; null: not known yet.", nullable=True, choices=PARALLELISMS
        ),
        Column(
            "expected_bytes",
            pa.int64(),
            "What the rank has to send by the algorithm.",
            "bytes",
            nullable=True,
            minimum=0,
            maximum=MOST,
        ),
        Column("sent_bytes", pa.int64(), "What it sent.", "bytes", nullable=True, minimum=0, maximum=MOST),
        Column(
            "received_bytes",
            pa.int64(),
            "What it got; null: NICs count what they send.",
            "bytes",
            nullable=True,
            minimum=0,
            maximum=MOST,
        ),
        Column(
            "start_ns",
            TIME,
            "First traffic; host clock.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column(
            "end_ns",
            TIME,
            "Last traffic; host clock. Null: not seen.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column("state", ID, "How far it came.", choices=STATES),
        Column("visibility", ID, "Whether a NIC can see it.", choices=VISIBILITIES),
        Column("coverage", pa.float64(), "Share of its time that telemetry covers.", minimum=0, maximum=1),
    ),
)
