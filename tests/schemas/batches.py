"""Hypothesis strategies: any batch that a topic allows, drawn from its columns' types and bounds."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from schemas.catalogue import COMM_OPS, FINDINGS
from schemas.topic import Column, Topic

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


def rows_of(topic: Topic, max_rows: int = 6) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of a topic; absent values of nullable columns are None."""
    return st.lists(_row(topic), max_size=max_rows)


@cache
def _row(topic: Topic) -> st.SearchStrategy[dict[str, Any]]:
    row = st.fixed_dictionaries({column.name: _column(column) for column in topic.columns})
    allowed = {COMM_OPS.name: _in_order, FINDINGS.name: _with_a_share}.get(topic.name)
    return row if allowed is None else row.map(allowed)


def _column(column: Column) -> st.SearchStrategy[Any]:
    if column.choices:
        values: st.SearchStrategy[Any] = st.sampled_from(column.choices)
    else:
        values = _values(column.type, column.minimum, column.maximum)
    return st.none() | values if column.nullable else values


def _values(kind: pa.DataType, minimum: float | None = None, maximum: float | None = None) -> st.SearchStrategy[Any]:
    if pa.types.is_dictionary(kind):
        return _values(kind.value_type)
    if pa.types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return st.integers(int(minimum if minimum is not None else -limit), int(maximum or limit - 1))
    if pa.types.is_floating(kind):
        return st.floats(minimum, maximum, allow_nan=False, allow_infinity=False)
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_binary(kind):
        return st.binary(max_size=8)
    if pa.types.is_list(kind):
        return st.lists(_values(kind.value_type, minimum, maximum), max_size=3)
    if pa.types.is_map(kind):
        return st.dictionaries(_TEXT, _TEXT, max_size=3).map(lambda pairs: list(pairs.items()))
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries(
            {f.name: st.none() | _values(f.type) if f.nullable else _values(f.type) for f in kind}
        )
    return _TEXT


def _in_order(row: dict[str, Any]) -> dict[str, Any]:
    """An operator is called, then started, then done."""
    names = [name for name in ("call_ns", "start_ns", "end_ns", "next_call_ns") if row[name] is not None]
    return row | dict(zip(names, sorted(abs(row[name]) & (1 << 63) - 1 for name in names), strict=True))


def _with_a_share(row: dict[str, Any]) -> dict[str, Any]:
    """A culprit has at most all of the lost time."""
    evidence = row["evidence"]
    if evidence is None or evidence["share"] is None:
        return row
    return row | {"evidence": evidence | {"share": min(1.0, abs(evidence["share"]))}}
