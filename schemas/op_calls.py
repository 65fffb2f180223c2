"""telemetry.op_calls: calls of the communication library, with their arguments as passed (Pulse 5.1).

Caught outside of the training code. They say what was called and when, not when it ran: that is in the traffic.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.comm_ops import OPS
from schemas.errors import ImpossibleValue
from schemas.topic import ID, LATEST_NS, MOST, MOST_RANKS, TIME, Column, Key, Topic

DTYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
)
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "other")
_POINT_TO_POINT = pa.array(["send", "recv"])
_NAME = "telemetry.op_calls"


def _check(batch: pa.RecordBatch) -> None:
    point_to_point = pc.is_in(batch["op"].cast(pa.string()), _POINT_TO_POINT)
    wrong = {
        "peer is given where nothing is sent or received": pc.and_not(pc.is_valid(batch["peer"]), point_to_point),
        "group_start_ns lies after call_ns": pc.greater(batch["group_start_ns"], batch["call_ns"]),
        "group_end_ns lies before call_ns": pc.less(batch["group_end_ns"], batch["call_ns"]),
    }
    for what, rows in wrong.items():
        if pc.any(rows).as_py():
            raise ImpossibleValue(f"{_NAME}: row {pc.index(rows, True).as_py()}: {what}")


TOPIC = Topic(
    name=_NAME,
    version=1,
    key=Key.JOB_HOST,
    doc="Calls of the communication library, a row a call and rank.",
    retention_hours=6.0,
    check=_check,
    columns=(
        Column("rank", pa.int32(), "Global rank that called.", minimum=0, maximum=MOST_RANKS - 1),
        Column("call_id", pa.int64(), "Ordinal of the call within its rank.", minimum=0, maximum=MOST),
        Column("communicator", ID, "Communicator, stable within the job."),
        Column("communicator_rank", pa.int32(), "The rank's place in it.", minimum=0, maximum=MOST_RANKS - 1),
        Column("seq", pa.int64(), "Ordinal per communicator and rank; never resets.", minimum=0, maximum=MOST),
        Column("op", ID, "What was called.", choices=OPS),
        Column("dtype", ID, "Element type.", choices=DTYPES),
        Column("count", pa.int64(), "Elements, as passed.", minimum=0, maximum=MOST),
        Column(
            "peer",
            pa.int32(),
            "Global rank at the other end of a send or recv.",
            nullable=True,
            minimum=0,
            maximum=MOST_RANKS - 1,
        ),
        Column(
            "root",
            pa.int32(),
            "Global rank of the root, of operators that have one.",
            nullable=True,
            minimum=0,
            maximum=MOST_RANKS - 1,
        ),
        Column("reduce_op", ID, "Reduction, of operators that reduce.", nullable=True, choices=REDUCTIONS),
        Column("stream", ID, "Stream that the operator runs on.", nullable=True),
        Column(
            "call_ns", TIME, "The call was entered; host clock.", "ns since the epoch", minimum=0, maximum=LATEST_NS
        ),
        Column(
            "group_start_ns",
            TIME,
            "The outermost group that holds the call was opened; null: no group. Host clock.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column(
            "group_end_ns",
            TIME,
            "That group was closed; null: not seen. Host clock.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
    ),
)
