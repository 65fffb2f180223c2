"""telemetry.queue_pairs: which ranks a queue pair connects, and while (Pulse 5.1).

Told when one is connected or closed, and all that are open again when an agent starts. Numbers are reused. Which
communicator a queue pair serves is not known: several share the connections between two ranks.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import ImpossibleValue
from schemas.nic_epochs import MOST_QPN
from schemas.topic import ID, LATEST_NS, MOST_RANKS, TIME, Column, Key, Topic

_NAME = "telemetry.queue_pairs"


def _check(batch: pa.RecordBatch) -> None:
    backwards = pc.less(batch["valid_to_ns"], batch["valid_from_ns"])
    if pc.any(backwards).as_py():
        raise ImpossibleValue(
            f"{_NAME}: row {pc.index(backwards, True).as_py()}: valid_to_ns lies before valid_from_ns"
        )


TOPIC = Topic(
    name=_NAME,
    version=1,
    key=Key.JOB_HOST,
    doc="Queue pairs and the ranks they connect, a row a queue pair.",
    retention_hours=72.0,
    check=_check,
    columns=(
        Column("nic", ID, "The source's NIC, as control.jobs names it on its host."),
        Column("gid", ID, "Its address."),
        Column("qpn", pa.uint32(), "Number of the queue pair on its NIC.", minimum=0, maximum=MOST_QPN),
        Column("source_rank", pa.int32(), "Global rank that sends.", minimum=0, maximum=MOST_RANKS - 1),
        Column("destination_rank", pa.int32(), "Global rank that receives.", minimum=0, maximum=MOST_RANKS - 1),
        Column("destination_gid", ID, "Address of the NIC that receives."),
        Column("destination_qpn", pa.uint32(), "Number of the queue pair there.", minimum=0, maximum=MOST_QPN),
        Column(
            "valid_from_ns",
            TIME,
            "Connected since; host clock.",
            "ns since the epoch",
            minimum=0,
            maximum=LATEST_NS,
        ),
        Column(
            "valid_to_ns",
            TIME,
            "Closed; null: still open. Host clock.",
            "ns since the epoch",
            nullable=True,
            minimum=0,
            maximum=LATEST_NS,
        ),
    ),
)
