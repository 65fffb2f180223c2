"""control.addresses: where each rank of a host is met, so that other hosts know whom a call or a queue pair reaches.

The calls of a communication library name a peer by its place in a communicator, and a queue pair's other end by an
address and a number: a host knows its own alone (Pulse 5.1, where the processes gather them among themselves).
"""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import ID, MOST_RANKS, Column, Key, Topic

KINDS = ("communicator", "queue_pair")

TOPIC = Topic(
    name="control.addresses",
    version=1,
    key=Key.JOB_HOST,
    doc="Places in communicators and queue pairs of a host's ranks, a row each; the newest record of a host holds all.",
    compacted=True,
    columns=(
        Column("rank", pa.int32(), "Global rank.", minimum=0, maximum=MOST_RANKS - 1),
        Column("kind", ID, "What it is met by.", choices=KINDS),
        Column("name", ID, "The communicator, or the address of the NIC that the rank sends from."),
        Column("number", pa.int64(), "Its place in that, or its queue pair there.", minimum=0, maximum=(1 << 24) - 1),
    ),
)
