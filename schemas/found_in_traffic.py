"""What is found in a host's NIC traffic as messages: the same whoever looks for it, the host's agent or a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from schemas.catalogue import OPERATORS, TRAFFIC_METRICS
from schemas.message import Message, encode
from schemas.topic import Topic

HOST = "host"
"""Header of what is told: whose it is."""


class Found(Protocol):
    """Rows of analysis.operators and of analysis.traffic_metrics."""

    @property
    def operators(self) -> pa.Table: ...

    @property
    def metrics(self) -> pa.Table: ...


def found_in_traffic(job: str, host: str, until_ns: int, found: Sequence[Found]) -> Iterator[Message]:
    """Records that tell what was found up to a time: rows of analysis.operators, if there are any, and of
    analysis.traffic_metrics, also if there are none: up to then the host has told all."""
    headers = {HOST: host}
    operators = _batch(OPERATORS, [one.operators for one in found])
    if operators.num_rows:
        yield encode(OPERATORS, operators, job=job, key=f"{job}/{host}", watermark_ns=until_ns, headers=headers)
    metrics = _batch(TRAFFIC_METRICS, [one.metrics for one in found])
    yield encode(TRAFFIC_METRICS, metrics, job=job, watermark_ns=until_ns, headers=headers)


def _batch(topic: Topic, tables: Sequence[pa.Table]) -> pa.RecordBatch:
    if not tables:
        return topic.from_rows([])
    table = pa.concat_tables(tables, promote_options="permissive")
    return topic.batch({name: table.column(name) for name in table.column_names})
