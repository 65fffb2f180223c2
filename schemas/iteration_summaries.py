"""telemetry.iteration_summaries: a row a rank and iteration; small and always published."""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import DURATION, MOST_RANKS, TIME, Column, Key, Topic

OPERATOR_SUMMARY = pa.struct(
    [
        pa.field("communicator", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("duration_sum_ns", pa.int64()),
        pa.field("duration_max_ns", pa.int64()),
    ]
)

TOPIC = Topic(
    name="telemetry.iteration_summaries",
    version=1,
    key=Key.JOB,
    doc="What each rank's iteration took, in short.",
    retention_hours=72.0,
    columns=(
        Column("rank", pa.int32(), "Global rank.", minimum=0, maximum=MOST_RANKS - 1),
        Column("iteration", pa.int32(), "Training iteration.", minimum=0),
        Column("start_ns", TIME, "First call of the iteration; host clock.", "ns since the epoch", minimum=0),
        Column(
            "end_ns",
            TIME,
            "First call of the next iteration, or the last end of the log; null where a gap hides it.",
            "ns since the epoch",
            nullable=True,
        ),
        Column(
            "pause_ns",
            DURATION,
            "From the end of its last operator to the first call of the next iteration; null where either is unknown.",
            "ns",
            nullable=True,
            minimum=0,
        ),
        Column("operators", pa.int32(), "Operators logged.", minimum=0),
        Column("bytes", pa.int64(), "Their bytes.", "bytes", nullable=True, minimum=0),
        Column("lost_lines", pa.int32(), "Operators missing by their sequence numbers.", minimum=0),
        Column(
            "by_operator",
            pa.list_(OPERATOR_SUMMARY),
            "Per communicator and op; durations are null where more than a twentieth of the ends are unknown.",
            nullable=True,
        ),
        Column("last", pa.bool_(), "The job's log ends with this iteration.", nullable=True),
    ),
)
