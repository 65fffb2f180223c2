"""What a log agent keeps of a closed iteration: an Arrow file of its rows, a batch a rank.

What is known of the iteration beyond its rows is JSON in the metadata of the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from producers.log_store import Spans
from schemas.catalogue import COMM_OPS
from schemas.errors import ImpossibleValue
from schemas.ipc_bounds import decoded_bytes

UNREADABLE = (OSError, pa.ArrowException, ValueError, TypeError, LookupError, OverflowError, RecursionError)
"""What reading a damaged iteration raises, or one of another version."""

_ABOUT = b"offbeat.iteration"
_SPANS = ("rank", "start_ns", "end_ns", "lost")
_WRITE = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)
_MAGIC = b"ARROW1\0\0"
"""How an Arrow file begins; a stream of the same batches follows."""
_MAX_METADATA_BYTES = 16 << 20
"""A host's ranks tell of the last number on each of their communicators."""


class TooLarge(ValueError):
    """An iteration is larger than what may be decoded."""


def encode(table: pa.Table, rows: Ints, spans: Spans, about: Mapping[str, Any]) -> bytes:
    """An iteration as bytes: ``table`` is sorted by rank, ``rows`` says how many each of ``spans.rank`` has.

    ``about`` is what is known beyond that, values of JSON.
    """
    said = {**{name: getattr(spans, name).tolist() for name in _SPANS}, **about}
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata({_ABOUT: json.dumps(said)})
    with pa.ipc.new_file(sink, schema, options=_WRITE) as writer:
        for first, count in zip(np.cumsum(rows) - rows, rows, strict=True):
            for batch in table.slice(first, count).replace_schema_metadata(schema.metadata).to_batches():
                writer.write_batch(batch)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def about(payload: bytes) -> tuple[Spans, Mapping[str, Any]]:
    """What is known of an iteration, and when its ranks began and ended it. Raises one of ``UNREADABLE``."""
    with pa.ipc.open_file(payload) as file:
        return _about(file.schema)


def rows_of(payload: bytes, places: Ints) -> pa.Table:
    """The rows of the ranks at some places of the spans; of others nothing is decoded. Raises one of ``UNREADABLE``."""
    with pa.ipc.open_file(payload, options=_READ) as file:
        batches = [file.get_batch(place) for place in places.tolist()]
        return _checked(pa.Table.from_batches(batches, file.schema))


def decode(payload: bytes, most_bytes: int) -> tuple[Spans, Mapping[str, Any], pa.Table]:
    """All of an iteration that anybody may have written, decoded within a bound of bytes.

    Raises one of ``UNREADABLE``; ``TooLarge`` where it is larger.
    """
    require_bounded(payload, most_bytes)
    with pa.ipc.open_stream(payload.removeprefix(_MAGIC), options=_READ) as reader:
        spans, said = _about(reader.schema)
        return spans, said, _checked(reader.read_all())


def require_bounded(payload: bytes, most_bytes: int) -> None:
    """Raise ``TooLarge`` where an iteration is larger once decoded, ``ValueError`` where that cannot be told."""
    size = decoded_bytes(payload.removeprefix(_MAGIC), max_metadata_bytes=_MAX_METADATA_BYTES)
    if size > most_bytes:
        raise TooLarge(f"{size} bytes decompressed, at most {most_bytes} are read")


def require_possible(table: pa.Table, iteration: int) -> None:
    """Raise ``ImpossibleValue`` where the rows of an iteration hold what cannot be."""
    for batch in table.to_batches():
        for column in COMM_OPS.columns:
            column.check(batch.column(column.name), COMM_OPS.name)
        if COMM_OPS.check is not None:
            COMM_OPS.check(batch)
    if not pc.all(pc.equal(table.column("iteration"), iteration)).as_py():
        raise ImpossibleValue(f"column iteration is not {iteration} in all rows")


def _about(schema: pa.Schema) -> tuple[Spans, Mapping[str, Any]]:
    said = json.loads(schema.metadata[_ABOUT])
    return Spans(*(np.array(said[name], dtype=np.int64) for name in _SPANS)), said


def _checked(table: pa.Table) -> pa.Table:
    table = table.replace_schema_metadata(None)
    if not table.schema.equals(COMM_OPS.schema):
        raise ValueError("its columns are those of another version")
    table.validate(full=True)
    return table
