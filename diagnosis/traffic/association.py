"""Operators in the traffic of one NIC: from epochs, queue pairs and calls to what is published (Pulse 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.bursts import find_bursts
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.epochs import Bools, EpochSeries, Ints
from diagnosis.traffic.metrics import Metrics, Operators, combined, measure
from diagnosis.traffic.queue_pairs import Lanes, QueuePairs
from diagnosis.traffic.segmentation import UNKNOWN_STATE, SegmentationRules, Segments, segment
from diagnosis.traffic.transfers import Kind, Transfers, expected_transfers, infer_algorithms

Visibility = Literal["network", "intra_host", "below_aggregation"]
VISIBILITIES: tuple[Visibility, ...] = ("network", "intra_host", "below_aggregation")
NETWORK, INTRA_HOST, BELOW_AGGREGATION = range(3)


@dataclass(frozen=True, eq=False)
class Association:
    """What one NIC's traffic tells of its ranks' calls.

    ``transfers`` are all that the calls have to send, with ``visibility`` (indexes ``VISIBILITIES``) and, of those on
    the network, where they were seen (``segments``, in the order of ``network``: rows of ``transfers``). ``calls``
    joins them by call, ``operators`` by operator (custom collectives as one), with ``metrics``; both have keys that
    are rows of the calls. Calls that send nothing on the network are in neither.
    """

    transfers: Transfers
    visibility: Ints
    network: Ints
    segments: Segments
    calls: Operators
    operators: Operators
    custom: Bools
    metrics: Metrics
    inferred: Mapping[Kind, Inference]
    lanes: Lanes

    @property
    def seen(self) -> Transfers:
        """The transfers on the network."""
        return self.transfers.take(self.network)


def associate(
    series: EpochSeries,
    queue_pairs: QueuePairs,
    calls: Calls,
    members: Mapping[str, Sequence[int]],
    same_host: Callable[[int, int], bool],
    inferred: Mapping[Kind, Inference] | None = None,
    rules: SegmentationRules | None = None,
) -> Association:
    """Find the calls of the ranks that a NIC serves in its traffic.

    ``members``: ranks of each communicator; ``same_host``: whether two ranks share a host. ``inferred``: algorithms
    that are known from before, since operators repeat; those of other kinds of calls are inferred here.
    """
    rules = rules or SegmentationRules()
    lanes = queue_pairs.lanes(series)
    bursts = find_bursts(series, lanes, rules.delta(series.epoch_ns))
    known = dict(inferred or {})
    known = {**infer_algorithms(calls, members, bursts, series.clock_error_ns + series.epoch_ns), **known}
    transfers = expected_transfers(calls, members, known)
    between = _lanes_between(queue_pairs, transfers)
    visibility = _visibility(transfers, between, series.aggregation_bytes, same_host)
    network = np.flatnonzero(visibility == NETWORK)
    seen = transfers.take(network)
    segments = segment(series, bursts, seen, np.maximum(between[network], 1), rules)
    segments = _unmapped_are_unknown(segments, between[network])
    unit = calls.unit[seen.call]
    operators = combined(seen, segments, unit)
    custom = calls.grouped[operators.key] & calls.point_to_point[operators.key]
    return Association(
        transfers=transfers,
        visibility=visibility,
        network=network,
        segments=segments,
        calls=combined(seen, segments, seen.call),
        operators=operators,
        custom=custom,
        metrics=measure(series, segments, operators, custom),
        inferred=known,
        lanes=lanes,
    )


def _lanes_between(queue_pairs: QueuePairs, transfers: Transfers) -> Ints:
    """Number of queue pairs that ever connected the ranks of each transfer."""
    records = queue_pairs.distinct()
    pairs, counts = np.unique(records.source << 32 | records.destination, return_counts=True)
    if not len(pairs):
        return np.zeros(len(transfers), dtype=np.int64)
    wanted = transfers.source << 32 | transfers.destination
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    return np.where(pairs[at] == wanted, counts[at], 0).astype(np.int64)


def _visibility(transfers: Transfers, between: Ints, aggregation: int, same_host: Callable[[int, int], bool]) -> Ints:
    """An operator that leaves less than the aggregation on each queue pair may never be counted."""
    pairs, which = np.unique(np.stack((transfers.source, transfers.destination)), axis=1, return_inverse=True)
    local = np.array([same_host(*pair) for pair in pairs.T.tolist()], dtype=np.bool_)[which.ravel()]
    small = transfers.expected < aggregation * np.maximum(between, 1)
    return np.select([local, small], [INTRA_HOST, BELOW_AGGREGATION], default=NETWORK).astype(np.int64)


def _unmapped_are_unknown(segments: Segments, between: Ints) -> Segments:
    """Without a record of a queue pair between two ranks, that none of their traffic is seen tells nothing."""
    mapped = between > 0
    state, coverage = np.where(mapped, segments.state, UNKNOWN_STATE), np.where(mapped, segments.coverage, 0.0)
    return replace(segments, state=state, coverage=coverage)
