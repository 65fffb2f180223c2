"""telemetry.operator_windows: what operators usually last, as the log agents work it out next to their logs.

Statistics are features of a detector, and what a search compares one iteration's rows with (Holmes 4.2.2); series
are what the irregularity rate correlates (Holmes 4.4). Both travel on request only: every record answers one.
"""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import DURATION, ID, MOST_RANKS, Column, Key, Topic

SERIES = pa.struct(
    [
        pa.field("iteration", pa.int32(), nullable=False),
        pa.field("operator_ns", pa.int64(), nullable=False),
        pa.field("iteration_ns", pa.int64(), nullable=False),
    ]
)
"""How long the operator and the rank's whole iteration took."""

TOPIC = Topic(
    name="telemetry.operator_windows",
    version=1,
    key=Key.JOB,
    doc="Statistics and series of operators over a window of iterations, a row an operator and rank; on request.",
    retention_hours=6.0,
    columns=(
        Column("rank", pa.int32(), "Global rank that called the operator.", minimum=0, maximum=MOST_RANKS - 1),
        Column("communicator", ID, "Communicator, stable within the job."),
        Column("position", pa.int32(), "Ordinal within iteration and communicator.", minimum=0),
        Column("samples", pa.int32(), "Durations that are known in the window.", minimum=0),
        Column("mean_ns", DURATION, "Mean of the durations.", "ns", nullable=True, minimum=0),
        Column("std_ns", DURATION, "Their sample standard deviation; 0 of a single one.", "ns", True, minimum=0),
        Column("q1_ns", DURATION, "First quartile.", "ns", nullable=True, minimum=0),
        Column("q2_ns", DURATION, "Median.", "ns", nullable=True, minimum=0),
        Column("q3_ns", DURATION, "Third quartile.", "ns", nullable=True, minimum=0),
        Column(
            "series",
            pa.list_(SERIES),
            "Each duration, beside that of the rank's iteration; null: no series was asked for.",
            nullable=True,
        ),
    ),
)
