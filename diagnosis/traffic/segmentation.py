"""Where operators begin and end in the traffic between two ranks (Pulse 5.2, Algorithm 1).

An operator ends where its expected volume is reached and nothing follows for ``delta``. As published, Algorithm 1
knows one size and looks at one operator at a time; here

- the expected volumes are those of the calls, in their order, and none begins before its call;
- operators without a silence between them are cut apart by volume, and the first part of one that a late receiver
  holds up after its buffers are full is told from the one before. Headers and the low-latency protocols (twice the
  bytes, or 128 for 120) make operators larger than expected, by how much is told by those that stand alone;
- the last operator is closed by the end of telemetry, and says for how long it has been silent;
- what telemetry does not cover is unknown, and the operator that goes on after it is told by how long after their
  calls operators usually begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from diagnosis.traffic.bursts import Bursts, sums
from diagnosis.traffic.epochs import Bools, EpochSeries, Ints
from diagnosis.traffic.matching import Coverage, Match, Tolerances, Walk
from diagnosis.traffic.transfers import Transfers

State = Literal["complete", "incomplete", "missing_start", "unknown"]
STATES: tuple[State, ...] = ("complete", "incomplete", "missing_start", "unknown")
COMPLETE, INCOMPLETE, MISSING_START, UNKNOWN_STATE = range(4)
UNKNOWN = -1
MOST_INFLATION = 2.2
"""Twice the bytes, and headers: no protocol costs more."""

_FAR = 1 << 61
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class SegmentationRules:
    """``quiet_ns`` is the paper's ``delta``, but at least ``quiet_epochs`` epochs. ``opening``: share of its expected
    bytes that a burst has to have to be an operator's beginning: control messages and late remainders have less.
    ``tail_ns``: what a pair still sends within it, before the next call, belongs to the operator before.
    ``early_ns``: by as much traffic may come before its call, beyond what clocks may be off, as calls are logged late.
    ``loose`` and ``resent_bytes``: what may exceed an operator's usual volume, at most a quarter; more is the beginning
    of the next one. ``snap``: share of an operator's volume within which the longest silence is taken for its end,
    back to back.
    """

    quiet_ns: int = 1_000_000
    quiet_epochs: int = 4
    opening: float = 0.001
    tail_ns: int = 20_000_000
    early_ns: int = 100_000
    loose: float = 0.01
    resent_bytes: int = 512 << 10
    snap: float = 0.01

    def delta(self, epoch_ns: int) -> int:
        """The silence that may end an operator."""
        return max(self.quiet_ns, self.quiet_epochs * epoch_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Rows ``low`` to ``high`` that one ``lane`` sent for one ``transfer``, ``size`` bytes; shape (pieces,), sorted by
    transfer."""

    transfer: Ints
    lane: Ints
    low: Ints
    high: Ints
    size: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Where transfers were seen; arrays of shape (transfers,), in their order.

    ``start_ns`` and ``end_ns`` (end of the last epoch) are ``UNKNOWN`` where nothing was seen. ``state`` indexes
    ``STATES``. ``silent_ns``: silence up to the end of telemetry since the last of its traffic, or since the launch of
    what is missing; an operator is over once that is ``delta`` or another follows. ``coverage``: share of its time
    that telemetry covers.
    """

    start_ns: Ints
    end_ns: Ints
    sent: Ints
    state: Ints
    silent_ns: Ints
    coverage: npt.NDArray[np.float64]
    pieces: Pieces


def segment(
    series: EpochSeries,
    bursts: Bursts,
    transfers: Transfers,
    lanes_between: Ints,
    rules: SegmentationRules | None = None,
) -> Segments:
    """Find each transfer in the bursts between its ranks.

    ``lanes_between``: number of queue pairs between the ranks of each transfer, shape (transfers,): each may keep a
    remainder below the aggregation to itself. ``bursts`` are those of ``rules.delta``.
    """
    rules = rules or SegmentationRules()
    matches = [
        match._replace(transfer=match.transfer + own.start, low=match.low + seen.start, high=match.high + seen.start)
        for own, seen in _pairs(bursts, transfers)
        for match in _walk(series, bursts, transfers, lanes_between, own, seen, rules).run()
    ]
    pieces = _pieces(series, bursts, matches)
    return _segments(series, transfers, pieces, matches)


def _pairs(bursts: Bursts, transfers: Transfers) -> Iterator[tuple[slice, slice]]:
    """The transfers and the bursts of each pair of ranks that has both; both are sorted by pair."""
    begins = np.flatnonzero(
        (np.diff(transfers.source, prepend=UNKNOWN) != 0) | (np.diff(transfers.destination, prepend=UNKNOWN) != 0)
    )
    keys = bursts.source << 32 | bursts.destination
    wanted = transfers.source[begins] << 32 | transfers.destination[begins]
    low, high = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
    ends = np.append(begins, len(transfers))[1:]
    for own_from, own_to, seen_from, seen_to in zip(*(c.tolist() for c in (begins, ends, low, high)), strict=True):
        if seen_to > seen_from:
            yield slice(own_from, own_to), slice(seen_from, seen_to)


def _walk(
    series: EpochSeries,
    bursts: Bursts,
    transfers: Transfers,
    lanes_between: Ints,
    own: slice,
    seen: slice,
    rules: SegmentationRules,
) -> Walk:
    expected, size = transfers.expected[own], bursts.size[seen]
    return Walk(
        launch=transfers.launch_ns[own].tolist(),
        expected=expected.tolist(),
        start=bursts.start_ns[seen].tolist(),
        last=bursts.last_ns[seen].tolist(),
        size=size.tolist(),
        epochs=lambda low, high: _epochs(series, bursts, low + seen.start, high + seen.start),
        coverage=Coverage(series.covered[:, 0].tolist(), series.covered[:, 1].tolist()),
        allowed=Tolerances(
            # a NIC whose clock is not known tells nothing of calls
            error=series.clock_error_ns + series.epoch_ns + rules.early_ns if series.aligned else _FAR,
            slack=int(lanes_between[own.start]) * (series.aggregation_bytes - 1),
            pause=2 * series.epoch_ns,
            delta=rules.delta(series.epoch_ns),
            opening=rules.opening,
            tail=rules.tail_ns,
            loose=rules.loose,
            resent=rules.resent_bytes,
            snap=rules.snap,
        ),
        inflation=min(max(float(size.sum() / expected.sum()), 1.0), MOST_INFLATION),
    )


def _epochs(series: EpochSeries, bursts: Bursts, low: int, high: int) -> tuple[Ints, Ints]:
    """When something was sent in bursts ``low`` to ``high``, ascending, and bytes up to then."""
    span = slice(bursts.pieces(low).start, bursts.pieces(high - 1).stop)
    spans = [slice(*rows) for rows in zip(bursts.low[span].tolist(), bursts.high[span].tolist(), strict=True)]
    times = np.concatenate([series.start_ns[rows] for rows in spans])
    units = np.concatenate([series.units[rows] for rows in spans])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(units[order], dtype=np.int64) * series.unit_bytes


def _pieces(series: EpochSeries, bursts: Bursts, matches: Sequence[Match]) -> Pieces:
    first = np.append(bursts.first_piece, len(bursts.low))
    low, high = (np.array([getattr(match, name) for match in matches], dtype=np.int64) for name in ("low", "high"))
    lengths = first[high] - first[low]
    of_match = np.repeat(np.arange(len(matches)), lengths)
    begins = np.cumsum(lengths) - lengths
    taken = np.arange(len(of_match)) + np.repeat(first[low] - begins, lengths)
    lane, row_low, row_high = bursts.lane[taken], bursts.low[taken], bursts.high[taken]
    for at, match in enumerate(matches):
        if match.from_ns is not None or match.to_ns is not None:
            own = slice(int(begins[at]), int(begins[at] + lengths[at]))
            bounds = row_low[own], row_high[own]
            row_low[own] = _rows_from(series, *bounds, match.from_ns, 0)
            row_high[own] = _rows_from(series, *bounds, match.to_ns, 1)
    transfer = np.array([match.transfer for match in matches], dtype=np.int64)[of_match]
    kept = np.flatnonzero(row_high > row_low)
    kept = kept[np.lexsort((row_low[kept], transfer[kept]))]
    transfer, lane, row_low, row_high = (column[kept] for column in (transfer, lane, row_low, row_high))
    size = np.zeros(len(kept), dtype=np.int64)
    if len(kept):
        by_row = np.argsort(row_low)
        size[by_row] = sums(series.units, row_low[by_row], row_high[by_row]) * series.unit_bytes
    return Pieces(transfer, lane, row_low, row_high, size)


def _rows_from(series: EpochSeries, low: Ints, high: Ints, at_ns: int | None, otherwise: int) -> Ints:
    """The first row of each piece from a time on; without one the pieces' beginnings (0) or ends (1)."""
    if at_ns is None:
        return (low, high)[otherwise].copy()
    found = [a + int(np.searchsorted(series.start_ns[a:b], at_ns)) for a, b in zip(low, high, strict=True)]
    return np.array(found, dtype=np.int64)


def _segments(series: EpochSeries, transfers: Transfers, pieces: Pieces, matches: Sequence[Match]) -> Segments:
    count = len(transfers)
    start, end = np.full(count, UNKNOWN, dtype=np.int64), np.full(count, UNKNOWN, dtype=np.int64)
    sent = np.zeros(count, dtype=np.int64)
    if len(pieces.low):
        seen, at = np.unique(pieces.transfer, return_index=True)
        start[seen] = np.minimum.reduceat(series.start_ns[pieces.low], at)
        end[seen] = np.maximum.reduceat(series.start_ns[pieces.high - 1], at) + series.epoch_ns
        sent[seen] = np.add.reduceat(pieces.size, at)
    return _judged(series, transfers, start, end, sent, matches, pieces)


def _judged(
    series: EpochSeries,
    transfers: Transfers,
    start: Ints,
    end: Ints,
    sent: Ints,
    matches: Sequence[Match],
    pieces: Pieces,
) -> Segments:
    """How far each came: what telemetry does not cover is unknown, never missing."""
    over = int(series.covered[-1, 1]) if len(series.covered) else 0
    seen = start != UNKNOWN
    complete, resumed = np.zeros(len(start), dtype=np.bool_), np.full(len(start), UNKNOWN, dtype=np.int64)
    for match in matches:
        complete[match.transfer] = match.reached
        resumed[match.transfer] = UNKNOWN if match.resumed_ns is None else match.resumed_ns
    complete &= seen
    since = np.where(complete, start, transfers.launch_ns)
    broken = resumed != UNKNOWN
    until = np.where(complete | broken, np.maximum(end, resumed), np.maximum(over, since))
    coverage = series.coverage(since, until) if series.aligned else np.where(complete, 1.0, 0.0)
    covered = (coverage >= 1.0 - _ROUNDING) & (until > since)
    # what others between the same ranks have followed has run, too small or too near to them to be told
    passed = np.arange(len(start)) < _last_seen(transfers, seen)
    state = np.select(
        [complete, seen & covered & ~broken, ~seen & covered & ~passed],
        [COMPLETE, INCOMPLETE, MISSING_START],
        default=UNKNOWN_STATE,
    )
    silent = np.maximum(over - np.where(seen, end, transfers.launch_ns), 0)
    return Segments(start, end, sent, state, silent, coverage, pieces)


def _last_seen(transfers: Transfers, seen: Bools) -> Ints:
    """The last transfer between the ranks of each one that was seen; shape (transfers,)."""
    pair = np.cumsum(
        (np.diff(transfers.source, prepend=UNKNOWN) != 0) | (np.diff(transfers.destination, prepend=UNKNOWN) != 0)
    )
    last = np.full(int(pair[-1]) + 1 if len(pair) else 0, UNKNOWN, dtype=np.int64)
    np.maximum.at(last, pair[seen], np.flatnonzero(seen))
    return np.asarray(last[pair], dtype=np.int64)
