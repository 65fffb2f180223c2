"""control.silences: what nobody wants to be paged for, for a while."""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import TIME, Column, Key, Topic

TOPIC = Topic(
    name="control.silences",
    version=1,
    key=Key.SILENCE,
    doc="Silences by id; the newest record of an id counts, a tombstone ends it.",
    compacted=True,
    partitions=1,
    columns=(
        Column("id", pa.string(), "Names the silence."),
        Column("job", pa.string(), "Jobs it is about; * and ? are wild. Null: any.", nullable=True),
        Column("device", pa.string(), "Devices it is about; * and ? are wild. Null: any.", nullable=True),
        Column("until_ns", TIME, "When it ends.", "ns since the epoch", minimum=0),
        Column("reason", pa.string(), "Why, for whoever reads the list."),
        Column("made_ns", TIME, "When it was made.", "ns since the epoch", minimum=0),
    ),
)
