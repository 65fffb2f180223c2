"""Completes the rows of a log: which iteration, where in it, and the ordinal of each call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.positions import operator_positions
from producers.columns import codes, integers


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows with ``iteration``, ``position`` and ``call_order``."""

    table: pa.Table
    iterations_source: str
    """"given" or "inferred"."""


def label(table: pa.Table, iteration_end: str | None = None) -> Labelled:
    """Fill ``iteration`` (where no row carries it), ``position`` and ``call_order``.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order.
    Raises ``ValueError`` where iterations cannot be inferred.
    """
    source = "given"
    iteration = integers(table, "iteration")
    if (iteration < 0).all() or iteration_end is not None:
        raise ValueError("the rows carry no iteration")
    communicator, _ = codes(table, "communicator")
    rank = integers(table, "rank")
    positions = operator_positions(rank, communicator, integers(table, "seq"), iteration)
    position = pa.array(positions.position, mask=iteration < 0)
    table = _filled(table, "position", position)
    heads = np.flatnonzero(np.diff(rank, prepend=-1))
    ordinal = np.arange(len(rank)) - np.repeat(heads, np.diff(np.append(heads, len(rank))))
    return Labelled(_filled(table, "call_order", pa.array(ordinal)), source)


def _filled(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """A column with its nulls filled."""
    at = table.schema.get_field_index(name)
    filled = pc.coalesce(table.column(name), values.cast(table.schema.field(at).type))
    return table.set_column(at, table.schema.field(at), filled)
