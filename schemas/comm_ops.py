"""telemetry.comm_ops: the communication-operator log, a row an operator and rank (Holmes 4.2.1).

Everything after ``op`` but the call time may be missing in real logs. Records with the header ``request_id``
answer a request; the others were published unasked (the pivots' logs).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import ImpossibleValue
from schemas.topic import ID, LATEST_NS, MOST, MOST_RANKS, TIME, Column, Key, Topic

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "barrier")
POINT_TO_POINT = ("send", "recv")
OPS = COLLECTIVES + POINT_TO_POINT
PHASES = ("forward", "backward", "gradient", "other")

_ORDER = (("start_ns", "call_ns"), ("end_ns", "call_ns"), ("end_ns", "start_ns"), ("next_call_ns", "call_ns"))
"""Times of an operator, the later one first."""


def _check(batch: pa.RecordBatch) -> None:
    for later, earlier in _ORDER:
        backwards = pc.any(pc.less(batch.column(later), batch.column(earlier))).as_py()
        if backwards:
            row = pc.index(pc.less(batch.column(later), batch.column(earlier)), True).as_py()
            raise ImpossibleValue(f"telemetry.comm_ops: row {row}: {later} lies before {earlier}")


TOPIC = Topic(
    name="telemetry.comm_ops",
    version=1,
    key=Key.JOB,
    doc="Communication operators, a row an operator and rank.",
    retention_hours=6.0,
    check=_check,
    columns=(
        Column("rank", pa.int32(), "Global rank that called the operator.", minimum=0, maximum=MOST_RANKS - 1),
        Column("communicator", ID, "Communicator, stable within the job."),
        Column(
            "seq",
            pa.int64(),
            "Ordinal per communicator and rank; never resets.",
            nullable=True,
            minimum=0,
            maximum=MOST,
        ),
        Column("position", pa.int32(), "Ordinal within iteration and communicator.", nullable=True, minimum=0),
        Column("call_order", pa.int64(), "Ordinal within the rank's log.", nullable=True, minimum=0, maximum=MOST),
        Column("op", ID, "What the operator does.", choices=OPS),
        Column("algorithm", ID, "Algorithm that the library chose.", nullable=True),
        Column("protocol", ID, "Protocol that the library chose.", nullable=True),
        Column("dtype", ID, "Element type.", nullable=True),
        Column("count", pa.int64(), "Elements of the full buffer.", nullable=True, minimum=0, maximum=MOST),
        Column("bytes", pa.int64(), "Bytes of the full buffer.", "bytes", nullable=True, minimum=0, maximum=MOST),
        Column(
            "peer",
            pa.int32(),
            "Global rank at the other end of a send or recv.",
            nullable=True,
            minimum=0,
            maximum=MOST_RANKS - 1,
        ),
        Column(
            "p2p_seq",
            pa.int64(),
            "Ordinal per peer and direction: the n-th send of one side is the n-th recv of the other.",
            nullable=True,
            minimum=0,
            maximum=MOST,
        ),
        Column("stream", ID, "Stream that the operator runs on.", nullable=True),
        Column("group_call", pa.int64(), "Ordinal of the group call that holds the operator.", nullable=True),
        Column("iteration", pa.int32(), "Training iteration.", nullable=True, minimum=0),
        Column("microbatch", pa.int32(), "Microbatch within the iteration.", nullable=True, minimum=0),
        Column("phase", ID, "Part of the iteration.", nullable=True, choices=PHASES),
        Column("model_chunk", pa.int32(), "Model chunk (virtual pipeline stage).", nullable=True, minimum=0),
        Column("layer", pa.int32(), "Layer.", nullable=True, minimum=0),
        Column(
            "call_ns", TIME, "The call was entered; host clock.", "ns since the epoch", minimum=0, maximum=LATEST_NS
        ),
        Column(
            "start_ns",
            TIME,
            "Handed to the library; host clock.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column(
            "end_ns", TIME, "Done; null: not seen.", "ns since the epoch", nullable=True, minimum=0, maximum=LATEST_NS
        ),
        Column(
            "next_call_ns",
            TIME,
            "The rank's next call, on whichever communicator; told in answers where no end is known.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column("error", ID, "Error that the call returned.", nullable=True),
    ),
)
