"""dead_letters: messages that could not be processed, whole, with the reason; they can be replayed."""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import TIME, Column, Key, Topic

TOPIC = Topic(
    name="dead_letters",
    version=1,
    key=Key.TOPIC,
    doc="Bad messages, as they came.",
    retention_hours=720.0,
    partitions=1,
    max_bytes=8 << 20,
    columns=(
        Column("topic", pa.string(), "Where it came from."),
        Column("partition", pa.int32(), "Its partition.", minimum=0),
        Column("offset", pa.int64(), "Its offset."),
        Column("key", pa.string(), "Its key.", nullable=True),
        Column("headers", pa.map_(pa.string(), pa.string()), "Its headers."),
        Column("value", pa.binary(), "Its bytes; null for a tombstone.", nullable=True),
        Column("schema", pa.string(), "Its header schema.", nullable=True),
        Column("processor", pa.string(), "Who could not process it."),
        Column("error", pa.string(), "Class of the error."),
        Column("reason", pa.string(), "The error's message."),
        Column("code_version", pa.string(), "Version of Offbeat that refused it."),
        Column("at_ns", TIME, "When, in the message's time.", "ns since the epoch", minimum=0),
    ),
)
