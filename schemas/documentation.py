"""The reference of everything that travels, written from the catalogue.

``python -m schemas.documentation`` prints docs/telemetry.md; a test keeps the file as this module writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa

from schemas.catalogue import TOPICS
from schemas.topic import Column, Key, Topic

_INTRODUCTION = """\
# Telemetry: what travels

Written from the catalogue in `schemas/`: run `python -m schemas.documentation > docs/telemetry.md` after a change.

One Kafka record is one Arrow IPC stream that holds one record batch, compressed with zstd: never one row, but
everything that one sender has to say of one second, iteration or poll. Columns are matched by name. An absent
nullable column is null and an unknown one is ignored, so both ends may be upgraded in any order; anything else that
does not fit is put into `dead_letters`, whole and with the reason.

| header | meaning |
|---|---|
| `schema` | short name and version of the topic, `comm_ops/1`; required |
| `job` | the job that the record belongs to; required |
| `producer` | who sent it, with an id of its start |
| `seq` | ordinal per producer, topic and key, from 0: a gap is a loss |
| `produced_ns` | when it was sent; the sender's clock |
| `watermark_ns` | up to when the sender has told everything |
| `request_id`, `host`, `ranks`, `outcome` | on answers to log requests: to which, by whom, for whom, how complete |
| `part`, `parts` | on answers that would be too large for one record: which of how many |
| `partition` | on saved states: the partition number of the inputs |

Times are nanoseconds since the epoch, durations nanoseconds, sizes bytes. Ranks are global. *May be null* means not
seen or not known, never zero. A type in *italics* is dictionary-encoded."""

_KEYS = {
    Key.JOB: "job",
    Key.JOB_HOST: "job and host",
    Key.FABRIC: "fabric",
    Key.PROCESSOR_JOB: "processor and job",
    Key.TOPIC: "topic",
    Key.SILENCE: "id of the silence",
}


def telemetry() -> str:
    """The text of docs/telemetry.md."""
    return "\n\n".join([_INTRODUCTION, _contents(), *(_topic(topic) for topic in TOPICS.values())]) + "\n"


def type_name(kind: pa.DataType) -> str:
    """A type as a reader wants it: ``list of {rank int32, host string?}``, ``?`` where a field may be null."""
    if pa.types.is_dictionary(kind):
        return f"*{kind.value_type}*"
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    if pa.types.is_map(kind):
        return f"map of {type_name(kind.key_type)} to {type_name(kind.item_type)}"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(f"{f.name} {type_name(f.type)}{'?' if f.nullable else ''}" for f in kind) + "}"
    return str(kind)


def _contents() -> str:
    rows = [f"| [{name}](#{name.replace('.', '')}) | {topic.doc} |" for name, topic in TOPICS.items()]
    return "\n".join(["| topic | what it holds |", "|---|---|", *rows])


def _topic(topic: Topic) -> str:
    facts = (
        ("Header `schema`", f"`{topic.schema_id}`"),
        ("Key", _KEYS[topic.key]),
        ("Partitions", str(topic.partitions)),
        ("Kept", _kept(topic)),
        (
            "At most",
            f"{_size(topic.max_bytes)}, {_size(topic.max_decoded_bytes)} decompressed, {topic.max_rows:,} rows",
        ),
    )
    lines = [f"## {topic.name}", "", topic.doc, "", *(f"- {name}: {value}" for name, value in facts), ""]
    return "\n".join(
        [*lines, "| column | type | unit | may be null | meaning |", "|---|---|---|---|---|", *_rows(topic)]
    )


def _rows(topic: Topic) -> Iterator[str]:
    for column in topic.columns:
        cells = (
            f"`{column.name}`",
            type_name(column.type),
            column.unit,
            "yes" if column.nullable else "",
            " ".join(filter(None, (column.doc, _bounds(column)))),
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _bounds(column: Column) -> str:
    if column.choices:
        return f"One of {', '.join(f'`{choice}`' for choice in column.choices)}."
    if column.minimum is not None and column.maximum is not None:
        return f"{column.minimum} to {column.maximum}."
    if column.minimum is not None:
        return f"At least {column.minimum}."
    return "" if column.maximum is None else f"At most {column.maximum}."


def _kept(topic: Topic) -> str:
    if topic.compacted:
        return "the newest record of each key (compacted)"
    hours = topic.retention_hours
    if hours >= 48:
        return f"{hours / 24:g} days"
    return "1 hour" if hours == 1 else f"{hours:g} hours"


def _size(count: int) -> str:
    return f"{count / (1 << 20):g} MiB"


if __name__ == "__main__":
    sys.stdout.write(telemetry())
