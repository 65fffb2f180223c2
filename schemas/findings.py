"""analysis.findings: one method's evidence on one irregular iteration."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import ImpossibleValue
from schemas.iterations import PERIOD
from schemas.topic import DURATION, LONGEST_RUN_NS, TIME, Column, Key, Topic

METHODS = ("operator_graph", "like_ranks", "traffic")
CAUSES = (
    "compute_slow",
    "communication_slow",
    "mixed_slow",
    "host_slow",
    "hang_not_entered",
    "hang_inconsistent",
    "hang_hardware",
    "network_path",
    "imbalance",
)
LEVELS = ("device", "machine", "group")

DEVICE = pa.struct(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("downside_nics", pa.int32()),
    ]
)
OPERATOR = pa.struct(
    [
        pa.field("rank", pa.int32()),
        pa.field("communicator", pa.string()),
        pa.field("position", pa.int32()),
        pa.field("op", pa.string()),
    ]
)
STAGE = pa.struct(
    [
        pa.field("phase", pa.string()),
        pa.field("pipeline_stage", pa.int32()),
        pa.field("microbatch", pa.int32()),
        pa.field("op", pa.string()),
    ]
)
EVIDENCE = pa.struct(
    [
        pa.field("delta", pa.float64()),
        pa.field("irregularity_rate", pa.float64()),
        pa.field("share", pa.float64()),
        pa.field("operator_ns", pa.list_(pa.int64())),
        pa.field("iteration_ns", pa.list_(pa.int64())),
        pa.field("path", pa.list_(pa.int32())),
        pa.field("clock_error_ns", pa.int64()),
        pa.field("fetched_bytes", pa.int64()),
    ]
)
MEASURE = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.float64(), nullable=False)])
WAIT = pa.struct(
    [
        pa.field("waiting_rank", pa.int32()),
        pa.field("awaited_rank", pa.int32()),
        pa.field("communicator", pa.string()),
        pa.field("op", pa.string()),
    ]
)


def _check(batch: pa.RecordBatch) -> None:
    share = pc.struct_field(batch.column("evidence"), "share")
    if pc.any(pc.greater(pc.abs(share), 1)).as_py():
        raise ImpossibleValue("analysis.findings: a share of the lost time is more than all of it")


TOPIC = Topic(
    name="analysis.findings",
    version=1,
    key=Key.JOB,
    doc="Evidence of one method on one iteration, active or cleared.",
    retention_hours=168.0,
    check=_check,
    columns=(
        Column("id", pa.string(), "hash(job, method, iteration, pivot, ordinal of the culprit)."),
        Column("method", pa.string(), "Which method speaks.", choices=METHODS),
        Column("active", pa.bool_(), "False: what the method said of this run of iterations is over."),
        Column("iteration", pa.int32(), "Iteration examined.", nullable=True, minimum=0),
        Column("pivot", pa.int32(), "Rank that the search started from.", nullable=True, minimum=0),
        Column("pattern", pa.string(), "Pattern of the irregular run.", nullable=True),
        PERIOD,
        Column("first_iteration", pa.int32(), "First affected iteration of the run.", nullable=True, minimum=0),
        Column("last_iteration", pa.int32(), "Last affected iteration of the run so far.", nullable=True, minimum=0),
        Column(
            "step_from", pa.int32(), "First iteration that was longer still, as this one was.", nullable=True, minimum=0
        ),
        Column("cause", pa.string(), "What is slow; null: not located.", nullable=True, choices=CAUSES),
        Column("level", pa.string(), "How far the evidence reaches.", nullable=True, choices=LEVELS),
        Column("ranks", pa.list_(pa.int32()), "The culprits, never the victims; empty: not located.", minimum=0),
        Column("candidates", pa.list_(pa.list_(pa.int32())), "Sets that the evidence cannot tell apart.", minimum=0),
        Column("devices", pa.list_(DEVICE), "Hardware that the culprits' slowness points to."),
        Column("root_operator", OPERATOR, "Operator that the search ended at.", nullable=True),
        Column("stage", STAGE, "Part of the iteration that lost the time.", nullable=True),
        Column("excess_ns", DURATION, "Time that this culprit cost in this iteration.", "ns", nullable=True),
        Column(
            "run_excess_ns",
            DURATION,
            "Time lost over the run of iterations so far.",
            "ns",
            nullable=True,
            maximum=LONGEST_RUN_NS,
        ),
        Column(
            "step_excess_ns",
            DURATION,
            "Of that, since step_from, on its step.",
            "ns",
            nullable=True,
            maximum=LONGEST_RUN_NS,
        ),
        Column("iteration_ns", DURATION, "Duration of the iteration.", "ns", nullable=True, minimum=0),
        Column("expected_ns", DURATION, "Expected duration.", "ns", nullable=True, minimum=0),
        Column(
            "scatter_ns",
            DURATION,
            "What one in ten of the regular iterations before it took beyond the expected (of few the longest).",
            "ns",
            nullable=True,
            minimum=0,
        ),
        Column("evidence", EVIDENCE, "What the finding rests on.", nullable=True),
        Column("rule", pa.string(), "Rule of the method that decided.", nullable=True),
        Column("measures", pa.list_(MEASURE), "The numbers that it decided by.", nullable=True),
        Column("waits", pa.list_(WAIT), "Who waits for whom, along the path walked."),
        Column("coverage", pa.float64(), "Share of the asked logs that came.", nullable=True, minimum=0, maximum=1),
        Column("bounded", pa.bool_(), "Stopped at a bound of ranks or rows: some may be missing.", nullable=True),
        Column("last_record_ns", TIME, "Newest record that was looked at.", "ns since the epoch", nullable=True),
        Column("found_ns", TIME, "When, in the messages' time.", "ns since the epoch", minimum=0),
        Column("last", pa.bool_(), "The job's log has ended: this method finds nothing more.", nullable=True),
    ),
)
