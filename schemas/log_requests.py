"""control.log_requests: what a search asks of the log agents. A request is one or more rows of one request id."""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import TIME, Column, Key, Topic

ROWS, STATISTICS, SERIES, EPOCHS = WHAT = ("rows", "statistics", "series", "epochs")
"""The rows themselves; of each operator, statistics of its durations in the iterations asked for; or, of one operator,
these durations beside the iterations'. The rows of a request that ask for the same statistics or series, of several
stretches of iterations, are answered as one window. Epochs are those of NICs, where agents keep them: of ranks and a
stretch of time, whatever the iterations are.
"""

TOPIC = Topic(
    name="control.log_requests",
    version=1,
    key=Key.JOB,
    doc="Requests for operator logs and NIC epochs; every agent answers once a request, for its own ranks.",
    retention_hours=6.0,
    columns=(
        Column("request_id", pa.string(), "One for each request; a search that starts again asks under the same."),
        Column("ranks", pa.list_(pa.int32()), "Ranks whose rows are asked for.", minimum=0),
        Column("iteration_from", pa.int32(), "First iteration.", minimum=0),
        Column("iteration_to", pa.int32(), "Last iteration, included.", minimum=0),
        Column("communicator", pa.string(), "Only operators of this communicator; null: all.", nullable=True),
        Column("seq_from", pa.int64(), "First sequence number; null: from the first.", nullable=True, minimum=0),
        Column("seq_to", pa.int64(), "Last sequence number, included; null: to the last.", nullable=True, minimum=0),
        Column(
            "positions",
            pa.list_(pa.int32()),
            "Only operators in these places of each iteration and communicator; null: all. A series needs one.",
            nullable=True,
            minimum=0,
        ),
        Column("what", pa.string(), "What to send.", choices=WHAT),
        Column(
            "nic", pa.string(), "Of epochs: only this NIC's; null: those of all that the ranks have.", nullable=True
        ),
        Column(
            "from_ns",
            TIME,
            "Of epochs: from when; host clock. Null: from the oldest.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
        ),
        Column(
            "to_ns",
            TIME,
            "Of epochs: up to when; host clock. Null: up to the newest.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
        ),
        Column("deadline_ns", TIME, "After this nobody waits for answers.", "ns since the epoch", minimum=0),
    ),
)
