"""Columns of telemetry.comm_ops as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from diagnosis.arrays import Ints

_MOST_CODES = 1 << 62


def integers(table: pa.Table, name: str) -> Ints:
    """An integer column; -1 where it is null."""
    values = pc.fill_null(table.column(name).cast(pa.int64()), -1)
    return np.asarray(values.to_numpy(), dtype=np.int64)


def sizes(table: pa.Table) -> Ints:
    """Bytes of each operator; elements in a log that knows no bytes at all; -1 where neither is known."""
    return integers(table, "count" if table.column("bytes").null_count == table.num_rows else "bytes")


def codes(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """A dictionary-encoded column as codes (-1 where it is null) and what they stand for."""
    encoded = table.column(name).combine_chunks()
    indices = pc.fill_null(encoded.indices, -1).cast(pa.int64())
    return np.asarray(indices.to_numpy(), dtype=np.int64), encoded.dictionary.to_pylist()


def joint_codes(*columns: Ints) -> Ints:
    """A small code a row that is the same where all columns are; in order of first appearance."""
    joint, count = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns if len(joint) else ():
        own, span = _from_zero(column)
        if count * span > _MOST_CODES:
            joint, count = _from_zero(_appearance(joint))
        if count * span > _MOST_CODES:
            own, span = _from_zero(_appearance(column))
        joint, count = joint * span + own, count * span
    return _appearance(joint)


def _from_zero(column: Ints) -> tuple[Ints, int]:
    """The column less its least value, and how many values that leaves room for."""
    least = int(column.min())
    return column - least, int(column.max()) - least + 1


def _appearance(column: Ints) -> Ints:
    """The same values numbered in order of first appearance."""
    return np.asarray(pa.array(column).dictionary_encode().indices.to_numpy(), dtype=np.int64)


def nullable(values: NDArray[np.int64], known: NDArray[np.bool_], target: pa.DataType) -> pa.Array:
    """An Arrow column from values, null where they are not known."""
    return pa.array(values, mask=~known).cast(target)


def named(code: Ints, names: Sequence[str | None]) -> pa.DictionaryArray:
    """A dictionary-encoded column from what each row's code stands for: of the names those that occur."""
    used = np.flatnonzero(np.bincount(code, minlength=len(names))).tolist()
    places: dict[str, int] = {}
    index = np.full(len(names), -1, dtype=np.int32)
    for at in used:
        name = names[at]
        if name is not None:
            index[at] = places.setdefault(name, len(places))
    rows = index[code]
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=rows < 0), pa.array(list(places), pa.string()))


def left_ns(rank: Ints, call_ns: Ints, end_ns: Ints) -> Ints:
    """When each row's rank went on from it: its end where that is known (not -1), else the rank's next call.

    Rows are in call order within each rank; a rank's last call without an end stands for itself.
    """
    goes_on = np.append(np.diff(rank) == 0, False)
    following = np.where(goes_on, np.append(call_ns[1:], call_ns[-1:]), call_ns)
    return np.where(end_ns >= 0, end_ns, following)
