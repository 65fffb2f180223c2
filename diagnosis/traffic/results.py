"""What is found in a NIC's traffic as rows of analysis.operators and analysis.traffic_metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.columns import nullable
from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.association import VISIBILITIES, Association
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.epochs import Bools, EpochSeries, Ints
from diagnosis.traffic.metrics import Metrics
from diagnosis.traffic.segmentation import COMPLETE, STATES, UNKNOWN
from diagnosis.traffic.transfers import kind_of

CUSTOM = "custom"


def metrics_table(
    found: Association, calls: Calls, series: EpochSeries, nic: str, parallelism: Mapping[str, str] | None = None
) -> pa.Table:
    """Rows of analysis.traffic_metrics: one an operator, custom collectives as one.

    ``parallelism``: what each communicator serves, where that is known.
    """
    operators, metrics = found.operators, found.metrics
    rows = operators.key
    seen = operators.start_ns != UNKNOWN
    duration = np.where(seen, operators.duration_ns, 0)
    return pa.table(
        {
            **_named(found, calls, rows, nic, parallelism or {}),
            "op": pa.array(
                [CUSTOM if own else calls.ops[op] for own, op in zip(found.custom, calls.op[rows], strict=True)]
            ),
            "call_ns": calls.call_ns[rows],
            "start_ns": nullable(operators.start_ns, seen, pa.int64()),
            "end_ns": nullable(operators.end_ns, seen, pa.int64()),
            "clock_error_ns": pa.array([series.clock_error_ns if series.aligned else None] * len(rows), pa.int64()),
            "state": pa.array([STATES[state] for state in operators.state]),
            "visibility": pa.array([VISIBILITIES[0]] * len(rows), pa.string()),
            "duration_ns": nullable(duration, seen, pa.int64()),
            "actual_time_ns": nullable(np.minimum(metrics.actual_time_ns, duration), seen, pa.int64()),
            "expected_bytes": operators.expected,
            "sent_bytes": operators.sent,
            "actual_rate_bytes_per_s": pa.array(Metrics.rate(operators.sent, metrics.actual_time_ns), mask=~seen),
            "observed_rate_bytes_per_s": pa.array(Metrics.rate(operators.sent, duration), mask=~seen),
            "longest_gap_ns": nullable(metrics.longest_gap_ns, seen, pa.int64()),
            "gap_histogram": pa.array(metrics.gaps.tolist(), pa.list_(pa.int32())),
            "p2p_expected": nullable(operators.sends, found.custom, pa.int32()),
            "p2p_completed": nullable(operators.completed, found.custom, pa.int32()),
            **_peers(found),
            "busy_epoch_bytes": nullable(metrics.busy_epoch_bytes, seen, pa.int64()),
            "epoch_ns": np.full(len(rows), series.epoch_ns),
            "coverage": operators.coverage,
        }
    )


def operators_table(
    found: Association, calls: Calls, nic: str, parallelism: Mapping[str, str] | None = None
) -> pa.Table:
    """Rows of analysis.operators: one a call that has something to send, also where no NIC can see that."""
    seen = found.calls
    hidden = np.setdiff1d(found.transfers.call, seen.key)
    rows = np.concatenate((seen.key, hidden))
    on_network = np.arange(len(rows)) < len(seen)
    started = _padded(seen.start_ns != UNKNOWN, len(hidden), False)
    size = np.bincount(found.transfers.call, weights=found.transfers.expected, minlength=len(calls)).astype(np.int64)
    visibility = np.full(len(calls), len(VISIBILITIES), dtype=np.int64)
    np.minimum.at(visibility, found.transfers.call, found.visibility)
    point_to_point = calls.point_to_point[rows]
    inferred = [found.inferred.get(kind_of(calls, row)) for row in rows.tolist()]
    return pa.table(
        {
            **_named(found, calls, rows, nic, parallelism or {}),
            "method": pa.array(["traffic"] * len(rows), pa.string()),
            "op": pa.array([calls.ops[op] for op in calls.op[rows]], pa.string()),
            "call_id": calls.call_id[rows],
            "group_call": nullable(calls.call_id[calls.unit[rows]], calls.grouped[rows], pa.int64()),
            "qpns": pa.array(_queue_pairs(found, rows, on_network), pa.list_(pa.uint32())),
            "peer": nullable(calls.peer[rows], point_to_point, pa.int32()),
            "algorithm_confidence": pa.array([one.confidence if one else None for one in inferred], pa.float64()),
            "expected_bytes": size[rows],
            "sent_bytes": nullable(_padded(seen.sent, len(hidden), 0), on_network, pa.int64()),
            "start_ns": nullable(_padded(seen.start_ns, len(hidden), 0), started, pa.int64()),
            "end_ns": nullable(_padded(seen.end_ns, len(hidden), 0), started, pa.int64()),
            "state": pa.array([STATES[state] for state in _padded(seen.state, len(hidden), len(STATES) - 1)]),
            "visibility": pa.array([VISIBILITIES[v] for v in visibility[rows]], pa.string()),
            "coverage": _padded(seen.coverage, len(hidden), 0.0),
        }
    )


def _named(found: Association, calls: Calls, rows: Ints, nic: str, parallelism: Mapping[str, str]) -> dict[str, Any]:
    """What both tables say of a call."""
    names = [calls.communicators[code] for code in calls.communicator[rows]]
    direct = (calls.point_to_point | calls.is_op("all_to_all"))[rows]
    return {
        "communicator": pa.array(names, pa.string()),
        "seq": calls.seq[rows],
        "rank": calls.rank[rows].astype(np.int32),
        "nic": pa.array([nic] * len(rows), pa.string()),
        "algorithm": pa.array(
            [
                "point_to_point" if alone else _algorithm(found.inferred.get(kind_of(calls, row)))
                for row, alone in zip(rows.tolist(), direct.tolist(), strict=True)
            ],
            pa.string(),
        ),
        "parallelism": pa.array([parallelism.get(name) for name in names], pa.string()),
    }


def _algorithm(inference: Inference | None) -> str | None:
    return inference.algorithm if inference else None


def _peers(found: Association) -> dict[str, pa.Array]:
    """Peers of each operator with what was sent to them; several sends to one peer are added up."""
    seen, segments, operators = found.seen, found.segments, found.operators
    ranks = int(seen.destination.max(initial=0)) + 1
    key, which = np.unique(operators.of_transfer * ranks + seen.destination, return_inverse=True)

    def totals(values: Ints) -> Ints:
        return np.bincount(which, weights=values, minlength=len(key)).astype(np.int64)

    sent, time = totals(segments.sent), totals(found.metrics.peer_actual_time_ns)
    lacking = totals((segments.state != COMPLETE).astype(np.int64)) > 0
    unknown = totals((segments.state == len(STATES) - 1).astype(np.int64)) > 0
    of, peer = key // ranks, key % ranks
    told, incomplete = sent > 0, lacking & ~unknown
    return {
        "incomplete_peers": _lists(of, peer, incomplete, len(operators), pa.int32()),
        "peers": _lists(of, peer, told, len(operators), pa.int32()),
        "peer_sent_bytes": _lists(of, sent, told, len(operators), pa.int64()),
        "peer_actual_time_ns": _lists(of, time, told, len(operators), pa.int64()),
    }


def _lists(of: Ints, values: Ints, chosen: Bools, count: int, kind: pa.DataType) -> pa.Array:
    offsets = np.searchsorted(of[chosen], np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[chosen]).cast(kind))


def _queue_pairs(found: Association, rows: Ints, on_network: Bools) -> list[list[int] | None]:
    pieces = found.segments.pieces
    pairs = np.unique(np.stack((found.seen.call[pieces.transfer], found.lanes.qpn[pieces.lane])), axis=1)
    bounds = np.searchsorted(pairs[0], np.stack((rows, rows + 1)))
    return [
        pairs[1, low:high].tolist() if there else None
        for low, high, there in zip(*bounds.tolist(), on_network.tolist(), strict=True)
    ]


def _padded(values: Any, count: int, value: float) -> Any:
    return np.concatenate((values, np.full(count, value, dtype=values.dtype)))
