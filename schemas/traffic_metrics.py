"""analysis.traffic_metrics: what is compared between the ranks of a communicator, a row an operator (Pulse 6.2).

Point-to-point operators of one group call are one operator here, a custom collective.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.comm_ops import OPS
from schemas.errors import ImpossibleValue
from schemas.operators import ALGORITHMS, PARALLELISMS, STATES, VISIBILITIES, check_times
from schemas.topic import DURATION, ID, LATEST_NS, MOST, MOST_RANKS, TIME, Column, Key, Topic

CUSTOM = "custom"
"""What a group of point-to-point operators does together."""

_NAME = "analysis.traffic_metrics"


def _check(batch: pa.RecordBatch) -> None:
    check_times(batch, _NAME)
    wrong = {
        "more point-to-point operators are complete than there are": pc.greater(
            batch["p2p_completed"], batch["p2p_expected"]
        ),
        "actual_time_ns exceeds duration_ns": pc.greater(batch["actual_time_ns"], batch["duration_ns"]),
        **{
            f"peers and {name} differ in length": pc.not_equal(
                pc.list_value_length(batch["peers"]), pc.list_value_length(batch[name])
            )
            for name in ("peer_sent_bytes", "peer_actual_time_ns")
        },
    }
    for what, rows in wrong.items():
        if pc.any(rows).as_py():
            raise ImpossibleValue(f"{_NAME}: row {pc.index(rows, True).as_py()}: {what}")


def _time(name: str, doc: str, nullable: bool = True) -> Column:
    return Column(name, TIME, doc, "ns since the epoch", nullable=nullable, minimum=0, maximum=LATEST_NS)


def _size(name: str, doc: str) -> Column:
    return Column(name, pa.int64(), doc, "bytes", nullable=True, minimum=0, maximum=MOST)


def _rate(name: str, doc: str) -> Column:
    return Column(name, pa.float64(), doc, "bytes/s", nullable=True, minimum=0)


def _length(name: str, doc: str) -> Column:
    return Column(name, DURATION, doc, "ns", nullable=True, minimum=0, maximum=LATEST_NS)


TOPIC = Topic(
    name=_NAME,
    version=1,
    key=Key.JOB,
    doc="Times, volumes and rates of operators in NIC traffic, a row an operator or custom collective and rank.",
    retention_hours=24.0,
    check=_check,
    columns=(
        Column("communicator", ID, "Communicator, stable within the job."),
        Column(
            "seq",
            pa.int64(),
            "Ordinal per communicator and rank; of a custom collective, of its first operator.",
            minimum=0,
            maximum=MOST,
        ),
        Column("rank", pa.int32(), "Global rank.", minimum=0, maximum=MOST_RANKS - 1),
        Column("nic", ID, "NIC that carries it.", nullable=True),
        Column("iteration", pa.int32(), "Training iteration; null: traffic carries none.", nullable=True, minimum=0),
        Column("op", ID, "What it does.", choices=(*OPS, CUSTOM)),
        Column("algorithm", ID, "Algorithm, told by the active peers.", nullable=True, choices=ALGORITHMS),
        Column(
            "parallelism", ID, "Dimension that it serves; null: not known yet.", nullable=True, choices=PARALLELISMS
        ),
        _time("call_ns", "The call was entered; host clock.", nullable=False),
        _time("start_ns", "First traffic; host clock. Null: none, or not seen."),
        _time("end_ns", "Last traffic; host clock. Null: not seen."),
        _length("clock_error_ns", "How far the offset between the NIC's clock and the host's may be wrong."),
        Column(
            "calls_lost",
            pa.int64(),
            "Calls of its rank on its communicator that telemetry has lost so far: where it has grown, traffic may be "
            "another one's.",
            nullable=True,
            minimum=0,
            maximum=MOST,
        ),
        Column("state", ID, "How far it came.", choices=STATES),
        Column("visibility", ID, "Whether a NIC can see it.", choices=VISIBILITIES),
        _length("duration_ns", "From the first traffic to the last."),
        _length("actual_time_ns", "Epochs in which something was sent, together."),
        _size("expected_bytes", "What the rank has to send."),
        _size("sent_bytes", "What it sent."),
        _size("received_bytes", "What it got; null: NICs count what they send."),
        _rate("actual_rate_bytes_per_s", "Sent in the actual time."),
        _rate("observed_rate_bytes_per_s", "Sent in the duration."),
        _length("longest_gap_ns", "Longest time within it in which nothing was sent."),
        Column(
            "gap_histogram",
            pa.list_(pa.int32()),
            "Gaps of 1 epoch, of 2 or 3, of 4 to 7, and so on.",
            nullable=True,
            minimum=0,
        ),
        Column("p2p_expected", pa.int32(), "Sends of a custom collective.", nullable=True, minimum=0),
        Column("p2p_completed", pa.int32(), "Those that sent all of theirs.", nullable=True, minimum=0),
        Column(
            "incomplete_peers",
            pa.list_(pa.int32()),
            "Global ranks that sends to were not complete.",
            nullable=True,
            minimum=0,
            maximum=MOST_RANKS - 1,
        ),
        Column(
            "peers",
            pa.list_(pa.int32()),
            "Global ranks that something was sent to.",
            nullable=True,
            minimum=0,
            maximum=MOST_RANKS - 1,
        ),
        Column(
            "peer_sent_bytes",
            pa.list_(pa.int64()),
            "What was sent to each of them: the rank's row of the traffic map.",
            "bytes",
            nullable=True,
            minimum=0,
            maximum=MOST,
        ),
        Column(
            "peer_actual_time_ns",
            pa.list_(pa.int64()),
            "Epochs in which something was sent to each of them, together, by their queue pairs.",
            "ns",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
        _time(
            "nic_sent_ns",
            "Last traffic of the NIC, for whomever, when an operator that has not ended was told; host clock. Null: "
            "none was seen, or it has ended.",
        ),
        _size("busy_epoch_bytes", "What full epochs hold: the 95th percentile of those with traffic."),
        Column("epoch_ns", DURATION, "Length of an epoch.", "ns", minimum=1, maximum=LATEST_NS),
        Column("coverage", pa.float64(), "Share of its time that telemetry covers.", minimum=0, maximum=1),
    ),
)
