"""Operators in the traffic of NICs: from epochs, queue pairs and calls to what is published (Pulse 5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.bursts import find_bursts
from diagnosis.traffic.calls import Calls, Kind
from diagnosis.traffic.endpoints import ends_of, pair_of, rank_of
from diagnosis.traffic.metrics import Metrics, Operators, combined, measure
from diagnosis.traffic.pieces import UNKNOWN
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.queue_pairs import QueuePairs
from diagnosis.traffic.segmentation import (
    COMPLETE,
    MISSING_START,
    UNKNOWN_STATE,
    SegmentationRules,
    Segments,
    segment,
)
from diagnosis.traffic.transfers import Transfers, expected_transfers, infer_algorithms
from diagnosis.traffic.volume import LARGE_BYTES
from diagnosis.traffic.ways import Way, ways_of

Visibility = Literal["network", "intra_host", "below_aggregation"]
VISIBILITIES: tuple[Visibility, ...] = ("network", "intra_host", "below_aggregation")
NETWORK, INTRA_HOST, BELOW_AGGREGATION = range(3)


@dataclass(frozen=True, eq=False)
class Association:
    """What the traffic of NICs tells of their ranks' calls.

    ``transfers`` are all that the calls have to send, with ``visibility`` (indexes ``VISIBILITIES``) and, of those on
    the network, where they were seen (``segments``, in the order of ``network``: rows of ``transfers``). ``calls``
    joins them by call, ``operators`` by operator (custom collectives as one); both have keys that are rows of the
    calls. Calls that send nothing on the network are in neither. ``lanes``: records of queue pairs, which pieces of
    segments refer to. ``mapped``: ways all of whose queue pairs are known, as all that had been called was sent once;
    ``unmapped``: those of which none is, as the rank has ended what it called later.
    """

    ports: Ports
    transfers: Transfers
    visibility: Ints
    network: Ints
    segments: Segments
    calls: Operators
    operators: Operators
    custom: Bools
    inferred: Mapping[Kind, Inference]
    lanes: QueuePairs
    mapped: frozenset[Way]
    unmapped: frozenset[Way]

    @cached_property
    def seen(self) -> Transfers:
        """The transfers on the network."""
        return self.transfers.take(self.network)

    def measured(self, chosen: Bools | None = None) -> Metrics:
        """What tells the ranks of the chosen operators, shape (operators,), or of all of them, apart."""
        chosen = np.ones(len(self.operators), dtype=np.bool_) if chosen is None else chosen
        return measure(self.ports, self.segments, self.operators, self.custom, chosen)


def associate(
    ports: Ports,
    queue_pairs: QueuePairs,
    calls: Calls,
    members: Mapping[str, Sequence[int]],
    same_host: Callable[[int, int], bool],
    inferred: Mapping[Kind, Inference] | None = None,
    rules: SegmentationRules | None = None,
    mapped: Collection[Way] | None = None,
    unmapped: Collection[Way] = (),
) -> Association:
    """Find the calls of the ranks that NICs serve in their traffic.

    ``members``: ranks of each communicator; ``same_host``: whether two ranks share a host. ``inferred``: algorithms
    that are known from before, since operators repeat; those of other kinds of calls are inferred here. ``mapped`` and
    ``unmapped``: ways of which that is known from before; None: all are mapped.
    """
    rules = rules or SegmentationRules()
    lanes = queue_pairs.distinct(ports.clock_error_ns)
    bursts = find_bursts(ports, lanes, rules.delta(ports.epoch_ns))
    algorithms = dict(inferred or {})
    algorithms |= infer_algorithms(calls, members, bursts, ports.clock_error_ns + ports.epoch_ns, algorithms)
    transfers = expected_transfers(calls, members, algorithms)
    between = _lanes_between(lanes, transfers)
    visibility = _visibility(transfers, between, ports.aggregation_bytes, same_host)
    network = np.flatnonzero(visibility == NETWORK)
    seen = transfers.take(network)
    segments = segment(ports, bursts, seen, np.maximum(between[network], 1), rules)
    way, ways = ways_of(calls, seen)
    whole = {ways[at] for at in np.unique(way[_sent_whole(segments, seen)]).tolist()}
    trusted = np.array([mapped is None or one in whole or one in mapped for one in ways], dtype=np.bool_)
    lacking = _never_sent(segments, seen, trusted[way])
    none = {ways[at] for at in np.unique(way[lacking]).tolist()} if mapped is not None else set()
    silent = np.array([one in none or one in unmapped for one in ways], dtype=np.bool_)
    segments = _unmapped_are_unknown(segments, seen, between[network], trusted[way], silent[way])
    operators = combined(seen, segments, calls.unit[seen.call])
    return Association(
        ports=ports,
        transfers=transfers,
        visibility=visibility,
        network=network,
        segments=segments,
        calls=combined(seen, segments, seen.call),
        operators=operators,
        custom=calls.grouped[operators.key] & calls.point_to_point[operators.key],
        inferred=algorithms,
        lanes=lanes,
        mapped=frozenset(whole),
        unmapped=frozenset(none),
    )


def _lanes_between(lanes: QueuePairs, transfers: Transfers) -> Ints:
    """Number of queue pairs that ever connected the ranks of each transfer."""
    pairs, counts = np.unique(pair_of(lanes.source, lanes.destination), return_counts=True)
    if not len(pairs):
        return np.zeros(len(transfers), dtype=np.int64)
    wanted = transfers.pair
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    return np.where(pairs[at] == wanted, counts[at], 0).astype(np.int64)


def _visibility(transfers: Transfers, between: Ints, aggregation: int, same_host: Callable[[int, int], bool]) -> Ints:
    """An operator that leaves less than the aggregation on each queue pair may never be counted."""
    pairs, which = np.unique(transfers.pair, return_inverse=True)
    source, destination = ends_of(pairs)
    ends = zip(rank_of(source).tolist(), destination.tolist(), strict=True)
    local = np.array([same_host(*pair) for pair in ends], dtype=np.bool_)[which]
    small = transfers.expected < aggregation * np.maximum(between, 1)
    return np.select([local, small], [INTRA_HOST, BELOW_AGGREGATION], default=NETWORK).astype(np.int64)


def _sent_whole(segments: Segments, transfers: Transfers) -> Bools:
    """Transfers that show that all of their queue pairs are mapped; shape (transfers,).

    All that had been called between their ranks was sent when the last one of a row ended. Where the record of a queue
    pair is missing the sum never comes. Of small ones, which may take fewer queue pairs, the last one alone shows it.
    """
    if not len(transfers):
        return segments.caught_up
    begins = np.append(True, segments.caught_up[:-1] | (np.diff(transfers.pair) != 0))
    row, last = np.cumsum(begins) - 1, np.append(np.flatnonzero(begins)[1:], len(begins)) - 1
    large = transfers.expected >= LARGE_BYTES
    lacking = np.bincount(row, large & (segments.state != COMPLETE))
    return np.asarray(segments.caught_up | (large & ((lacking == 0) & segments.caught_up[last])[row]))


def _never_sent(segments: Segments, transfers: Transfers, whole: Bools) -> Bools:
    """Transfers of which nothing was seen, nor of any other one between their ranks, though the rank has ended what it
    called later: no queue pair of theirs is mapped. Shape (transfers,), as ``whole``: whose queue pairs all are."""
    senders, sender = np.unique(transfers.source, return_inverse=True)
    ended = np.zeros(len(senders), dtype=np.int64)
    over = whole & (segments.state == COMPLETE)
    np.maximum.at(ended, sender[over], transfers.launch_ns[over])
    return np.asarray(_nothing_seen(segments, transfers) & ~whole & (transfers.launch_ns < ended[sender]))


def _nothing_seen(segments: Segments, transfers: Transfers) -> Bools:
    """Transfers of which nothing was seen, nor of any other one between their ranks; shape (transfers,)."""
    pair = transfers.pair
    return np.asarray((segments.state == MISSING_START) & ~np.isin(pair, pair[segments.start_ns != UNKNOWN]))


def _unmapped_are_unknown(
    segments: Segments, transfers: Transfers, between: Ints, whole: Bools, silent: Bools
) -> Segments:
    """Without a record of a queue pair between two ranks, that none of their traffic is seen tells nothing.

    Nor, where records of some may be missing, does what is seen: it is then taken for fewer operators than it was.
    ``whole``: whose queue pairs are all mapped, ``silent``: of whose none is; shape (transfers,). Of the others it
    counts that all that was called was sent, or nothing at all.
    """
    known = (between > 0) & (whole | segments.caught_up | (_nothing_seen(segments, transfers) & ~silent))
    state, coverage = np.where(known, segments.state, UNKNOWN_STATE), np.where(known, segments.coverage, 0.0)
    return replace(segments, state=state, coverage=coverage)
