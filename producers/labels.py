"""Completes the rows of a log: which iteration, where in it, and the ordinal of each call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers
from diagnosis.iterations import OperatorPattern, infer_iterations
from diagnosis.positions import operator_positions


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows with ``iteration`` (null outside of iterations), ``position`` and ``call_order``."""

    table: pa.Table
    iterations_source: str
    """"given" or "inferred"."""


def label(table: pa.Table, iteration_end: OperatorPattern | None = None) -> Labelled:
    """Fill ``iteration``, ``position`` and ``call_order`` where they are missing.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order. Iterations are inferred where a
    rank carries none at all, or ``iteration_end`` names the operator that ends them.
    Raises ``ValueError`` that says what to give by hand where they cannot be inferred.
    """
    rank, iteration = integers(table, "rank"), integers(table, "iteration")
    given = iteration_end is None and not set(np.unique(rank)) - set(np.unique(rank[iteration >= 0]))
    if not given:
        iteration = _in_the_numbers_of(iteration, infer_iterations(table, iteration_end))
        table = _replaced(table, "iteration", pa.array(iteration, mask=iteration < 0))
    communicator, _ = codes(table, "communicator")
    positions = operator_positions(rank, communicator, integers(table, "seq"), iteration)
    table = _filled(table, "position", pa.array(positions.position, mask=iteration < 0))
    heads = np.flatnonzero(np.diff(rank, prepend=-1))
    ordinal = np.arange(len(rank)) - np.repeat(heads, np.diff(np.append(heads, len(rank))))
    table = _filled(table, "call_order", pa.array(ordinal))
    return Labelled(table, "given" if given else "inferred")


def _in_the_numbers_of(some: Ints, inferred: Ints) -> Ints:
    """Inferred iterations, counted as those rows count that carry theirs; what precedes number 0 is in none."""
    both = (some >= 0) & (inferred >= 0)
    if not both.any():
        return inferred
    offsets, counts = np.unique((some - inferred)[both], return_counts=True)
    return np.where(inferred >= 0, np.maximum(inferred + offsets[counts.argmax()], -1), -1)


def _filled(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The table with a column's nulls filled."""
    target = table.schema.field(name).type
    return _replaced(table, name, pc.coalesce(table.column(name), values.cast(target)))


def _replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values.cast(table.schema.field(at).type))
