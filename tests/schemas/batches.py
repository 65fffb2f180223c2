"""Hypothesis strategies: any batch that a topic allows, drawn from its columns' types and bounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from schemas.catalogue import COMM_OPS, FINDINGS, NIC_EPOCHS, OP_CALLS, OPERATORS, QUEUE_PAIRS, TRAFFIC_METRICS
from schemas.topic import Column, Topic

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


def rows_of(topic: Topic, max_rows: int = 6) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of a topic; absent values of nullable columns are None."""
    return st.lists(_row(topic), max_size=max_rows)


@cache
def _row(topic: Topic) -> st.SearchStrategy[dict[str, Any]]:
    row = st.fixed_dictionaries({column.name: _column(column) for column in topic.columns})
    return row.map(_ALLOWED.get(topic.name, dict))


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


def _a_poll(row: dict[str, Any]) -> dict[str, Any]:
    """Lists of one length, sorted, within the poll; no queue pairs where a port is counted."""
    first, last = sorted((row["poll_from_ns"], row["poll_to_ns"]))
    epochs = -(-(last - first) // row["epoch_ns"])
    of_port = row["source"] == "port_counter"
    numbers = [0] * 3 if of_port else row["qpn"] or []
    places = sorted({(qpn, e % epochs) for qpn, e in zip(numbers, row["epoch"], strict=False)} if epochs else set())
    return row | {
        "poll_from_ns": first,
        "poll_to_ns": last,
        "parts": max(row["parts"], row["part"] + 1),
        "qpn": None if of_port else [qpn for qpn, _ in places],
        "epoch": [epoch for _, epoch in places],
        "units": (row["units"] + [1] * 3)[: len(places)],
    }


def _a_call(row: dict[str, Any]) -> dict[str, Any]:
    """Only sends and receives have a peer; a call lies within its group."""
    point_to_point = row["op"] in {"send", "recv"}
    start, end = row["group_start_ns"], row["group_end_ns"]
    return row | {
        "peer": (row["peer"] or 0) if point_to_point else None,
        "group_start_ns": None if start is None else min(start, row["call_ns"]),
        "group_end_ns": None if start is None or end is None else max(end, row["call_ns"]),
    }


def _valid_once_connected(row: dict[str, Any]) -> dict[str, Any]:
    ended = row["valid_to_ns"]
    return row | {"valid_to_ns": None if ended is None else max(ended, row["valid_from_ns"])}


def _started_before_its_end(row: dict[str, Any]) -> dict[str, Any]:
    start, end = row["start_ns"], row["end_ns"]
    return row | {"end_ns": None if start is None or end is None else max(start, end)}


def _within_bounds(row: dict[str, Any]) -> dict[str, Any]:
    """No more is complete than there is, no longer active than it lasted; a volume for each peer."""
    expected, completed = row["p2p_expected"], row["p2p_completed"]
    duration, actual = row["duration_ns"], row["actual_time_ns"]
    of_peers = [row[name] for name in ("peers", "peer_sent_bytes", "peer_actual_time_ns")]
    each = None if any(values is None for values in of_peers) else list(zip(*of_peers, strict=False))
    return _started_before_its_end(row) | {
        "p2p_completed": None if expected is None or completed is None else min(expected, completed),
        "actual_time_ns": None if duration is None or actual is None else min(duration, actual),
        "peers": None if each is None else [peer for peer, *_ in each],
        "peer_sent_bytes": None if each is None else [size for _, size, _ in each],
        "peer_actual_time_ns": None if each is None else [time for *_, time in each],
    }


_ALLOWED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    COMM_OPS.name: _in_order,
    FINDINGS.name: _with_a_share,
    NIC_EPOCHS.name: _a_poll,
    OP_CALLS.name: _a_call,
    QUEUE_PAIRS.name: _valid_once_connected,
    OPERATORS.name: _started_before_its_end,
    TRAFFIC_METRICS.name: _within_bounds,
}
"""What a topic's check asks of a row."""
