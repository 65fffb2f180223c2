"""Where operators begin and end in the traffic between two ranks (Pulse 5.2, Algorithm 1).

An operator ends where its expected volume is reached and nothing follows for ``delta``. As published, Algorithm 1
knows one size and looks at one operator at a time; here

- the expected volumes are those of the calls, in their order, and none begins before its call;
- operators without a silence between them are cut apart by volume, in proportion to what is expected of each: headers
  and the low-latency protocols (twice the bytes, or 128 for 120) make all of them larger alike. How many there are is
  told by the calls and by how much larger operators of that size usually are;
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
from diagnosis.traffic.epochs import EpochSeries, Ints
from diagnosis.traffic.matching import Coverage, Match, Walk
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
    ``snap``: share of an operator's volume within which the longest silence is taken for its end, back to back.
    """

    quiet_ns: int = 1_000_000
    quiet_epochs: int = 4
    opening: float = 0.001
    tail_ns: int = 20_000_000
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
        match._replace(
            first=match.first + own.start,
            end=match.end + own.start,
            low=match.low + seen.start,
            high=match.high + seen.start,
        )
        for own, seen in _pairs(bursts, transfers)
        for match in _walk(series, bursts, transfers, lanes_between, own, seen, rules).run()
    ]
    pieces = _pieces(series, bursts, transfers, matches, rules)
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
        coverage=Coverage(series.covered[:, 0].tolist(), series.covered[:, 1].tolist()),
        slack=int(lanes_between[own.start]) * (series.aggregation_bytes - 1),
        # a NIC whose clock is not known tells nothing of calls
        error=series.clock_error_ns + series.epoch_ns if series.aligned else _FAR,
        delta=rules.delta(series.epoch_ns),
        opening=rules.opening,
        tail=rules.tail_ns,
        inflation=min(max(float(size.sum() / expected.sum()), 1.0), MOST_INFLATION),
    )


def _pieces(
    series: EpochSeries, bursts: Bursts, transfers: Transfers, matches: Sequence[Match], rules: SegmentationRules
) -> Pieces:
    first = np.append(bursts.first_piece, len(bursts.low))
    spans = [slice(int(first[match.low]), int(first[match.high])) for match in matches]
    taken = np.concatenate([np.arange(s.start, s.stop) for s in spans] or [np.zeros(0, dtype=np.int64)])
    of_match = np.repeat(np.arange(len(matches)), [s.stop - s.start for s in spans])
    alone = np.array([match.end == match.first + 1 for match in matches], dtype=np.bool_)
    chosen = alone[of_match]
    transfer = np.array([match.first for match in matches], dtype=np.int64)[of_match]
    columns = [[transfer[chosen]], *([column[taken[chosen]]] for column in (bursts.lane, bursts.low, bursts.high))]
    for at in np.flatnonzero(~alone).tolist():
        for column, values in zip(columns, _cut(series, bursts, transfers, matches[at], spans[at], rules), strict=True):
            column.append(values)
    of_transfer, lane, low, high = (np.concatenate(column) for column in columns)
    size = np.zeros(len(low), dtype=np.int64)
    if len(low):
        by_row = np.argsort(low)
        size[by_row] = sums(series.units, low[by_row], high[by_row]) * series.unit_bytes
    order = np.lexsort((low, of_transfer))
    return Pieces(*(column[order] for column in (of_transfer, lane, low, high, size)))


def _cut(
    series: EpochSeries, bursts: Bursts, transfers: Transfers, match: Match, span: slice, rules: SegmentationRules
) -> tuple[Ints, Ints, Ints, Ints]:
    """Pieces of operators without silence between them: transfer, lane, first row, end."""
    low, high, lane = bursts.low[span], bursts.high[span], bursts.lane[span]
    rows = np.concatenate([np.arange(one, other) for one, other in zip(low, high, strict=True)])
    order = np.argsort(series.start_ns[rows], kind="stable")
    times, sent = series.start_ns[rows][order], np.cumsum(series.units[rows][order], dtype=np.int64)
    expected = transfers.expected[match.first : match.end]
    scale = float(sent[-1]) / float(expected.sum())
    cuts = [
        _quietest(times, sent, float(target) * scale, float(width) * scale * rules.snap)
        for target, width in zip(np.cumsum(expected)[:-1], np.minimum(expected[:-1], expected[1:]), strict=True)
    ]
    edges = np.stack([low, *(_rows_from(series, low, high, cut) for cut in cuts), high])
    number = np.repeat(np.arange(len(expected)), len(low))
    begin, end = edges[:-1].ravel(), edges[1:].ravel()
    kept = end > begin
    return (match.first + number)[kept], np.tile(lane, len(expected))[kept], begin[kept], end[kept]


def _rows_from(series: EpochSeries, low: Ints, high: Ints, at_ns: int) -> Ints:
    """The first row of each piece from a time on."""
    found = [a + int(np.searchsorted(series.start_ns[a:b], at_ns)) for a, b in zip(low, high, strict=True)]
    return np.array(found, dtype=np.int64)


def _quietest(times: Ints, sent: Ints, target: float, width: float) -> int:
    """When the next operator begins: after the longest silence within ``width`` of where the volume is reached."""
    low = int(np.searchsorted(sent, target - width))
    high = min(int(np.searchsorted(sent, target + width)), len(times) - 2)
    exact = min(int(np.searchsorted(sent, target)), len(times) - 2)
    if high <= low:
        return int(times[exact + 1])
    silence = times[low + 1 : high + 2] - times[low : high + 1]
    longest = int(silence.max())
    near = np.flatnonzero(silence == longest) + low
    return int(times[near[np.argmin(np.abs(near - exact))] + 1])


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
        complete[match.first : match.end] = match.reached
        resumed[match.first : match.end] = UNKNOWN if match.resumed_ns is None else match.resumed_ns
    complete &= seen
    since = np.where(complete, start, transfers.launch_ns)
    broken = resumed != UNKNOWN
    until = np.where(complete | broken, np.maximum(end, resumed), np.maximum(over, since))
    coverage = series.coverage(since, until) if series.aligned else np.where(complete, 1.0, 0.0)
    covered = (coverage >= 1.0 - _ROUNDING) & (until > since)
    state = np.select(
        [complete, seen & covered & ~broken, ~seen & covered],
        [COMPLETE, INCOMPLETE, MISSING_START],
        default=UNKNOWN_STATE,
    )
    silent = np.maximum(over - np.where(seen, end, transfers.launch_ns), 0)
    return Segments(start, end, sent, state, silent, coverage, pieces)
