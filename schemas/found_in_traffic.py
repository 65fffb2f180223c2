"""What is found in a host's NIC traffic as messages: the same whoever looks for it, the host's agent or a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from schemas.catalogue import OPERATORS, TRAFFIC_METRICS
from schemas.message import Message, encode
from schemas.topic import Topic

HOST = "host"
"""Header of what is told: whose it is."""


def found_in_traffic(
    job: str, host: str, until_ns: int, operators: Sequence[pa.Table], metrics: Sequence[pa.Table]
) -> Iterator[Message]:
    """Records that tell what was found up to a time: rows of analysis.operators, if there are any, and of
    analysis.traffic_metrics, also if there are none: up to then the host has told all."""
    headers = {HOST: host}
    found = _batch(OPERATORS, operators)
    if found.num_rows:
        yield encode(OPERATORS, found, job=job, key=f"{job}/{host}", watermark_ns=until_ns, headers=headers)
    yield encode(TRAFFIC_METRICS, _batch(TRAFFIC_METRICS, metrics), job=job, watermark_ns=until_ns, headers=headers)


def _batch(topic: Topic, tables: Sequence[pa.Table]) -> pa.RecordBatch:
    if not tables:
        return topic.from_rows([])
    table = pa.concat_tables(tables, promote_options="permissive")
    return topic.batch({name: table.column(name) for name in table.column_names})
