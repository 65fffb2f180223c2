"""Splits rows into as many records as the topic's bounds ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from schemas.errors import MessageTooLarge
from schemas.log_answers import numbered
from schemas.message import Message, encode
from schemas.topic import Topic


def encode_parts(
    topic: Topic, rows: pa.Table, *, job: str, key: str | None = None, watermark_ns: int, headers: Mapping[str, str]
) -> list[Message]:
    """Records that hold the rows in their order: at least one, numbered by the headers ``part`` and ``parts``.

    ``key`` is the job where it is not given.
    """
    columns = [rows.column(name).combine_chunks() for name in topic.schema.names]
    batch = pa.RecordBatch.from_arrays(columns, schema=topic.schema)
    per_row = max(1, batch.nbytes // max(batch.num_rows, 1))
    step = max(1, min(topic.max_rows, topic.max_decoded_bytes // (2 * per_row)))
    messages: list[Message] = []
    for first in range(0, max(batch.num_rows, 1), step):
        messages.extend(_encoded(topic, batch.slice(first, step), job, key, watermark_ns))
    return [
        replace(message, headers={**message.headers, **headers, **numbered(part, len(messages))})
        for part, message in enumerate(messages)
    ]


def _encoded(topic: Topic, batch: pa.RecordBatch, job: str, key: str | None, watermark_ns: int) -> Iterator[Message]:
    try:
        yield encode(topic, _compact(batch), job=job, key=key, watermark_ns=watermark_ns)
    except MessageTooLarge:
        if batch.num_rows < 2:
            raise
        half = batch.num_rows // 2
        yield from _encoded(topic, batch.slice(0, half), job, key, watermark_ns)
        yield from _encoded(topic, batch.slice(half), job, key, watermark_ns)


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with dictionaries that hold only what the rows use: a job has thousands of communicators."""
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > 1:
            indices = column.indices.fill_null(-1).to_numpy()
            used = np.zeros(len(column.dictionary) + 1, dtype=np.bool_)
            used[indices] = True  # nulls the last one
            values = column.dictionary.take(pa.array(np.flatnonzero(used[:-1])))
            codes = (np.cumsum(used, dtype=np.int32) - 1)[indices]
            columns.append(pa.DictionaryArray.from_arrays(pa.array(codes, mask=indices < 0), values))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
