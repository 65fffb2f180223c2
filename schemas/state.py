"""control.state: what a processor saves of a job, with the next offset that it needs of each input."""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import Column, Key, Topic

OFFSET = pa.struct([pa.field("topic", pa.string(), nullable=False), pa.field("offset", pa.int64(), nullable=False)])

TOPIC = Topic(
    name="control.state",
    version=1,
    key=Key.PROCESSOR_JOB,
    doc="Saved states; the record with the highest offsets counts; an ended job's state is a tombstone. Under "
    "processor#partition/topic: how many bad messages there were in a row.",
    compacted=True,
    columns=(
        Column("processor", pa.string(), "Whose state."),
        Column("job", pa.string(), "Of which job; none where it is of none."),
        Column("offsets", pa.list_(OFFSET), "Next offset needed of each input; messages below it are skipped."),
        Column("format", pa.string(), "Name and version of the state's form."),
        Column("state", pa.binary(), "The state."),
    ),
)
