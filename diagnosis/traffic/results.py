"""What is found in the traffic of NICs as rows of analysis.operators and analysis.traffic_metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import named, nullable
from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.association import VISIBILITIES, Association
from diagnosis.traffic.calls import Calls, Kind
from diagnosis.traffic.endpoints import qpn_of
from diagnosis.traffic.metrics import Metrics, Operators
from diagnosis.traffic.pieces import UNKNOWN
from diagnosis.traffic.segmentation import COMPLETE, INCOMPLETE, MISSING_START, STATES, UNKNOWN_STATE
from diagnosis.traffic.transfers import DIRECT
from diagnosis.traffic.volume import Algorithm

CUSTOM = "custom"
_ALGORITHMS = ("ring", "tree", "point_to_point", None)


def metrics_table(
    found: Association,
    calls: Calls,
    nics: Sequence[str],
    chosen: Bools | None = None,
    parallelism: Mapping[str, str] | None = None,
) -> pa.Table:
    """Rows of analysis.traffic_metrics: one an operator, custom collectives as one.

    ``nics``: names of the NICs. ``chosen``: the operators that get a row. ``parallelism``: what each communicator
    serves, where that is known.
    """
    chosen = np.ones(len(found.operators), dtype=np.bool_) if chosen is None else chosen
    metrics, at = found.measured(chosen), np.flatnonzero(chosen)
    operators, ports = found.operators, found.ports
    rows, custom = operators.key[at], found.custom[at]
    seen = _is_seen(operators)[at]
    duration = np.where(seen, operators.duration_ns[at], 0)
    sent, actual = operators.sent[at], metrics.actual_time_ns[at]
    aligned, nic = np.full(len(at), ports.aligned), calls.nic[rows]
    open_ = np.isin(operators.state[at], (INCOMPLETE, MISSING_START))
    return pa.table(
        {
            **_named(found, calls, rows, nics, parallelism or {}),
            "op": named(np.where(custom, len(calls.ops), calls.op[rows]), (*calls.ops, CUSTOM)),
            "call_ns": calls.call_ns[rows],
            "start_ns": nullable(operators.start_ns[at], seen, pa.int64()),
            "end_ns": nullable(operators.end_ns[at], seen, pa.int64()),
            "clock_error_ns": nullable(ports.clock_error_ns[nic], aligned, pa.int64()),
            "calls_lost": calls.lost_up_to(rows),
            "state": named(operators.state[at], STATES),
            "visibility": named(np.zeros(len(at), dtype=np.int64), VISIBILITIES),
            "duration_ns": nullable(duration, seen, pa.int64()),
            "actual_time_ns": nullable(np.minimum(actual, duration), seen, pa.int64()),
            "expected_bytes": operators.expected[at],
            "sent_bytes": sent,
            "actual_rate_bytes_per_s": pa.array(Metrics.rate(sent, actual), mask=~seen),
            "observed_rate_bytes_per_s": pa.array(Metrics.rate(sent, duration), mask=~seen),
            "longest_gap_ns": nullable(metrics.longest_gap_ns[at], seen, pa.int64()),
            "gap_histogram": _rows_of(metrics.gaps[at]),
            "p2p_expected": nullable(operators.sends[at], custom, pa.int32()),
            "p2p_completed": nullable(operators.completed[at], custom, pa.int32()),
            **_peers(found, metrics, chosen),
            "nic_sent_ns": nullable(ports.last_sent_ns[nic], open_ & (ports.last_sent_ns[nic] > 0), pa.int64()),
            "busy_epoch_bytes": nullable(metrics.busy_epoch_bytes[at], seen, pa.int64()),
            "epoch_ns": np.full(len(at), ports.epoch_ns),
            "coverage": operators.coverage[at],
        }
    )


def operators_table(
    found: Association,
    calls: Calls,
    nics: Sequence[str],
    chosen: Bools | None = None,
    parallelism: Mapping[str, str] | None = None,
) -> pa.Table:
    """Rows of analysis.operators: one a call that has something to send, also where no NIC can see that.

    ``chosen``: the calls that may get a row; shape (calls,).
    """
    told, transfers = found.calls, found.transfers
    size, visibility = np.zeros(len(calls), dtype=np.int64), np.full(len(calls), len(VISIBILITIES), dtype=np.int64)
    np.add.at(size, transfers.call, transfers.expected)
    np.minimum.at(visibility, transfers.call, found.visibility)
    place = np.full(len(calls), UNKNOWN, dtype=np.int64)
    place[told.key] = np.arange(len(told))
    on_network = place != UNKNOWN
    something = visibility < len(VISIBILITIES)
    rows = np.flatnonzero(something if chosen is None else something & chosen)
    rows = rows[np.lexsort((~on_network[rows], calls.nic[rows]))]
    on_network, at = on_network[rows], place[rows]

    def seen(values: Any, otherwise: float) -> Any:
        return (
            np.where(on_network, values[at], otherwise).astype(values.dtype)
            if len(told)
            else np.full(len(rows), otherwise, dtype=values.dtype)
        )

    start = seen(np.where(_is_seen(told), told.start_ns, UNKNOWN), UNKNOWN)
    code, kinds = calls.kinds
    inferred = [found.inferred.get(kind) for kind in kinds]
    sure = np.array([one.confidence if one else np.nan for one in inferred], dtype=np.float64)[code[rows]]
    return pa.table(
        {
            **_named(found, calls, rows, nics, parallelism or {}),
            "method": named(np.zeros(len(rows), dtype=np.int64), ("traffic",)),
            "op": named(calls.op[rows], calls.ops),
            "call_id": calls.call_id[rows],
            "group_call": nullable(calls.call_id[calls.unit[rows]], calls.grouped[rows], pa.int64()),
            "qpns": _queue_pairs(found, rows, on_network),
            "peer": nullable(calls.peer[rows], calls.point_to_point[rows], pa.int32()),
            "algorithm_confidence": pa.array(sure, mask=np.isnan(sure)),
            "expected_bytes": size[rows],
            "sent_bytes": nullable(seen(told.sent, 0), on_network, pa.int64()),
            "start_ns": nullable(start, start != UNKNOWN, pa.int64()),
            "end_ns": nullable(seen(told.end_ns, 0), start != UNKNOWN, pa.int64()),
            "state": named(seen(told.state, UNKNOWN_STATE), STATES),
            "visibility": named(visibility[rows], VISIBILITIES),
            "coverage": seen(told.coverage, 0.0),
        }
    )


def _is_seen(operators: Operators) -> Bools:
    """Whose traffic was seen, and is theirs as far as is known; shape (operators,)."""
    nobodys = (operators.state == UNKNOWN_STATE) & (operators.coverage <= 0.0)
    return np.asarray((operators.start_ns != UNKNOWN) & ~nobodys)


def _named(
    found: Association, calls: Calls, rows: Ints, nics: Sequence[str], parallelism: Mapping[str, str]
) -> dict[str, Any]:
    """What both tables say of a call."""
    code, kinds = calls.kinds
    algorithm = [_ALGORITHMS.index(_algorithm(kind, found.inferred)) for kind in kinds]
    serves = [parallelism.get(name) for name in calls.communicators]
    return {
        "communicator": named(calls.communicator[rows], calls.communicators),
        "seq": calls.seq[rows],
        "rank": calls.rank[rows].astype(np.int32),
        "nic": named(calls.nic[rows], nics),
        "algorithm": named(np.array(algorithm, dtype=np.int64)[code[rows]], _ALGORITHMS),
        "parallelism": named(calls.communicator[rows], serves),
    }


def _algorithm(kind: Kind, inferred: Mapping[Kind, Inference]) -> Algorithm | None:
    if kind.op in DIRECT:
        return "point_to_point"
    inference = inferred.get(kind)
    return inference.algorithm if inference else None


def _peers(found: Association, metrics: Metrics, chosen: Bools) -> dict[str, pa.Array]:
    """Peers of the chosen operators with what was sent to them; several sends to one peer are added up."""
    own = np.flatnonzero(chosen[found.operators.of_transfer])
    operator = (np.cumsum(chosen) - 1)[found.operators.of_transfer[own]]
    destination, state = found.seen.destination[own], found.segments.state[own]
    ranks = int(destination.max(initial=0)) + 1
    key, which = np.unique(operator * ranks + destination, return_inverse=True)

    def totals(values: Ints) -> Ints:
        return np.bincount(which, weights=values, minlength=len(key)).astype(np.int64)

    sent, time = totals(found.segments.sent[own]), totals(metrics.peer_actual_time_ns[own])
    lacking = totals((state != COMPLETE).astype(np.int64)) > 0
    unknown = totals((state == UNKNOWN_STATE).astype(np.int64)) > 0
    of, peer = key // ranks, key % ranks
    told, incomplete = sent > 0, lacking & ~unknown
    count = int(np.count_nonzero(chosen))
    return {
        "incomplete_peers": _lists(of, peer, incomplete, count, pa.int32()),
        "peers": _lists(of, peer, told, count, pa.int32()),
        "peer_sent_bytes": _lists(of, sent, told, count, pa.int64()),
        "peer_actual_time_ns": _lists(of, time, told, count, pa.int64()),
    }


def _lists(of: Ints, values: Ints, chosen: Bools, count: int, kind: pa.DataType) -> pa.Array:
    offsets = np.searchsorted(of[chosen], np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[chosen]).cast(kind))


def _rows_of(values: Ints) -> pa.Array:
    """A list of each row."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel().astype(np.int32)))


def _queue_pairs(found: Association, rows: Ints, on_network: Bools) -> pa.Array:
    """The queue pairs that each call was seen on, ascending; null where no NIC can see it."""
    pieces = found.segments.pieces
    qpn = qpn_of(found.lanes.flow[pieces.spans.lane])
    wide = int(qpn.max(initial=0)) + 1
    pairs = np.unique(found.seen.call[pieces.transfer] * wide + qpn)
    low, high = np.searchsorted(pairs, np.stack((rows, rows + 1)) * wide)
    lengths = np.where(on_network, high - low, 0)
    offsets = np.append(0, np.cumsum(lengths))
    taken = np.arange(offsets[-1]) + np.repeat(low - offsets[:-1], lengths)
    values = pa.array((pairs[taken] % wide).astype(np.uint32))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, mask=pa.array(~on_network))
