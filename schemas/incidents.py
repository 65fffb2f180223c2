"""analysis.incidents: what a person is paged for; all evidence on one fault."""

from __future__ import annotations

import pyarrow as pa

from schemas.findings import CAUSES, DEVICE, LEVELS, STAGE
from schemas.iterations import PERIOD
from schemas.topic import DURATION, TIME, Column, Key, Topic

STATES = ("open", "resolved")

NETWORK = pa.struct(
    [
        pa.field("layer", pa.string()),
        pa.field("component", pa.string()),
        pa.field("component_kind", pa.string()),
        pa.field("issue_classes", pa.list_(pa.string())),
        pa.field("evidence", pa.list_(pa.string())),
    ]
)

TOPIC = Topic(
    name="analysis.incidents",
    version=1,
    key=Key.JOB,
    doc="Incidents; a record replaces the one of the same id with a lower or equal revision.",
    retention_hours=720.0,
    columns=(
        Column("id", pa.string(), "hash(opening finding)."),
        Column("revision", pa.int32(), "Rises on changes that a person must hear.", minimum=1),
        Column("state", pa.string(), "Whether it goes on.", choices=STATES),
        Column("cause", pa.string(), "What is wrong.", choices=CAUSES),
        Column("level", pa.string(), "How far the evidence reaches.", choices=LEVELS),
        Column("ranks", pa.list_(pa.int32()), "The culprits, never the victims.", minimum=0),
        Column("candidates", pa.list_(pa.list_(pa.int32())), "Sets that the evidence cannot tell apart.", minimum=0),
        Column("devices", pa.list_(DEVICE), "Hardware to look at."),
        Column("first_iteration", pa.int32(), "First affected iteration.", nullable=True, minimum=0),
        Column("last_iteration", pa.int32(), "Last affected iteration so far.", nullable=True, minimum=0),
        Column("pattern", pa.string(), "How it behaves over time.", nullable=True),
        PERIOD,
        Column("confidence", pa.float64(), "How sure.", minimum=0, maximum=1),
        Column("lost_ns", DURATION, "Time that the job lost so far.", "ns", nullable=True, minimum=0),
        Column("lost_gpu_seconds", pa.float64(), "The same times the job's GPUs.", "s", nullable=True, minimum=0),
        Column("stage", STAGE, "Part of the iteration that lost the time.", nullable=True),
        Column("network", NETWORK, "Of network_path: component and classes.", nullable=True),
        Column("methods", pa.list_(pa.string()), "Methods that support it."),
        Column("explanation", pa.string(), "One or two sentences that a person can act on."),
        Column("opened_ns", TIME, "When it was opened, in the messages' time.", "ns since the epoch", minimum=0),
        Column("updated_ns", TIME, "When this record was made.", "ns since the epoch", minimum=0),
        Column("resolved_ns", TIME, "When it ended.", "ns since the epoch", nullable=True),
        Column("findings", pa.list_(pa.string()), "Ids of the findings that it joins."),
    ),
)
