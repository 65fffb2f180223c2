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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Bools, Ints
from diagnosis.traffic.bursts import Bursts
from diagnosis.traffic.endpoints import nic_of, pair_of
from diagnosis.traffic.in_turn import Pairs, in_turn
from diagnosis.traffic.inflation import MOST_INFLATION, large_inflation
from diagnosis.traffic.matching import Tolerances, Walk
from diagnosis.traffic.pieces import UNKNOWN, Matches, Pieces
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.remainders import without_remainders
from diagnosis.traffic.series import Coverage
from diagnosis.traffic.transfers import Transfers
from diagnosis.traffic.volume import LARGE_BYTES

State = Literal["complete", "incomplete", "missing_start", "unknown"]
STATES: tuple[State, ...] = ("complete", "incomplete", "missing_start", "unknown")
COMPLETE, INCOMPLETE, MISSING_START, UNKNOWN_STATE = range(4)

_FAR = 1 << 61
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class SegmentationRules:
    """Where operators begin and end in the traffic between two ranks (Pulse 5.2, Algorithm 1)."""

    quiet_ns: int = 1_000_000
    """Silence that may end an operator, in nanoseconds (the paper's ``delta``); a higher value keeps operators whole
    that pause, and runs together those that follow each other."""
    quiet_epochs: int = 4
    """The least such silence in epochs, where that is longer than ``quiet_ns``."""
    opening: float = 0.001
    """Part of its expected bytes that a burst must have to be an operator's beginning; with a lower value control
    messages and late remainders may pass for one."""
    tail_ns: int = 20_000_000
    """How long after an operator, in nanoseconds, what is still sent before the next call counts as part of it; a
    higher value tells operators later."""
    early_ns: int = 100_000
    """How long before its call traffic may come, in nanoseconds, beyond what clocks may be off, since calls are logged
    late."""
    loose: float = 0.01
    """Part of an operator's volume that may come beyond the usual, with ``resent_bytes`` a quarter at most; what is
    more is the beginning of the next one."""
    resent_bytes: int = 512 << 10
    """Bytes that may come beyond the usual as well, since some are sent again."""
    snap: float = 0.01
    """Where operators follow without a pause, part of an operator's volume around its expected end within which the
    longest silence is taken for the end."""

    def delta(self, epoch_ns: int) -> int:
        """The silence that may end an operator."""
        return max(self.quiet_ns, self.quiet_epochs * epoch_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Where transfers were seen; arrays of shape (transfers,), in their order.

    ``start_ns`` and ``end_ns`` (end of the last epoch) are ``UNKNOWN`` where nothing was seen. ``state`` indexes
    ``STATES``. ``silent_ns``: silence up to the end of telemetry since the last of its traffic, or since the launch of
    what is missing; an operator is over once that is ``delta`` or another follows. ``coverage``: share of its time
    that telemetry covers. ``caught_up``: whether all that had been called between its ranks was sent when it ended
    (beside a large one, all large ones).
    """

    start_ns: Ints
    end_ns: Ints
    sent: Ints
    state: Ints
    silent_ns: Ints
    coverage: npt.NDArray[np.float64]
    caught_up: Bools
    pieces: Pieces


def segment(
    ports: Ports,
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
    slack = lanes_between * (ports.aggregation_bytes - 1)
    pairs = _pairs(ports, bursts, transfers, slack, rules)
    plain = in_turn(ports, bursts, transfers, pairs)
    walked = [
        match._replace(transfer=match.transfer + first, low=match.low + low, high=match.high + low)
        for walk, first, low in _walks(ports, bursts, transfers, pairs.take(~plain), rules)
        for match in walk.run()
    ]
    matches = Matches.of(pairs.take(plain), walked)
    pieces = without_remainders(ports, Pieces.of(ports, bursts, matches), transfers.expected, slack)
    return _segments(ports, transfers, pieces, matches)


def _pairs(ports: Ports, bursts: Bursts, transfers: Transfers, slack: Ints, rules: SegmentationRules) -> Pairs:
    """The pairs of ranks that have both transfers and bursts; both are sorted by pair."""
    first = np.flatnonzero(_fresh(transfers))
    end = np.append(first, len(transfers))[1:]
    keys = pair_of(bursts.source, bursts.destination)
    wanted = transfers.pair[first]
    low, high = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
    seen = high > low
    first, end, low, high = (column[seen] for column in (first, end, low, high))
    nic = nic_of(transfers.source[first])
    error = ports.clock_error_ns[nic] + ports.epoch_ns + rules.early_ns
    sent = np.append(0, np.cumsum(bursts.size))
    expected = np.append(0, np.cumsum(transfers.expected))
    inflation = np.clip((sent[high] - sent[low]) / (expected[end] - expected[first]), 1.0, MOST_INFLATION)
    of_large = large_inflation(bursts, transfers, len(ports.series))[nic]
    return Pairs(
        first=first,
        end=end,
        low=low,
        high=high,
        nic=nic,
        # a NIC whose clock is not known tells nothing of calls
        error=error if ports.aligned else np.full(len(nic), _FAR),
        slack=slack[first],
        inflation=inflation,
        large_inflation=np.where(np.isnan(of_large), inflation, of_large),
    )


def _walks(
    ports: Ports, bursts: Bursts, transfers: Transfers, pairs: Pairs, rules: SegmentationRules
) -> Iterator[tuple[Walk, int, int]]:
    """A walk for each pair of ranks, with the numbers of its first transfer and its first burst."""
    coverage = [Coverage(one.covered[:, 0].tolist(), one.covered[:, 1].tolist()) for one in ports.series]
    columns = (getattr(pairs, name).tolist() for name in pairs.__slots__)
    for first, end, low, high, nic, error, slack, inflation, of_large in zip(*columns, strict=True):
        walk = Walk(
            launch=transfers.launch_ns[first:end].tolist(),
            expected=transfers.expected[first:end].tolist(),
            start=bursts.start_ns[low:high].tolist(),
            last=bursts.last_ns[low:high].tolist(),
            size=bursts.size[low:high].tolist(),
            epochs=partial(_epochs, ports, bursts, low),
            coverage=coverage[nic],
            allowed=Tolerances(
                error=error,
                slack=slack,
                pause=2 * ports.epoch_ns,
                delta=rules.delta(ports.epoch_ns),
                opening=rules.opening,
                tail=rules.tail_ns,
                loose=rules.loose,
                resent=rules.resent_bytes,
                snap=rules.snap,
            ),
            inflation=inflation,
            large_inflation=of_large,
        )
        yield walk, first, low


def _epochs(ports: Ports, bursts: Bursts, first: int, low: int, high: int) -> tuple[Ints, Ints]:
    """When something was sent in bursts ``low`` to ``high`` after a first one, ascending, and bytes up to then."""
    own = slice(bursts.first[first + low], bursts.first[first + high])
    spans = zip(
        *(column[own].tolist() for column in (bursts.spans.part, bursts.spans.low, bursts.spans.high)), strict=True
    )
    times, units = zip(*(ports.parts[part].rows(*rows) for part, *rows in spans), strict=True)
    joined = np.concatenate(times)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.cumsum(np.concatenate(units)[order], dtype=np.int64) * ports.unit_bytes


def _segments(ports: Ports, transfers: Transfers, pieces: Pieces, matches: Matches) -> Segments:
    """How far each transfer came: what telemetry does not cover is unknown, never missing."""
    count, spans = len(transfers), pieces.spans
    start, end = np.full(count, UNKNOWN, dtype=np.int64), np.full(count, UNKNOWN, dtype=np.int64)
    sent = np.zeros(count, dtype=np.int64)
    if len(spans):
        at = np.flatnonzero(np.diff(pieces.transfer, prepend=UNKNOWN))
        own = pieces.transfer[at]
        start[own] = np.minimum.reduceat(spans.start_ns, at)
        end[own] = np.maximum.reduceat(spans.last_ns, at) + ports.epoch_ns
        sent[own] = np.add.reduceat(spans.size, at)
    nic = nic_of(transfers.source)
    over = ports.over_ns[nic]
    seen = start != UNKNOWN
    complete, resumed = np.zeros(count, dtype=np.bool_), np.full(count, UNKNOWN, dtype=np.int64)
    complete[matches.transfer], resumed[matches.transfer] = matches.reached, matches.resumed_ns
    complete &= seen
    since = np.where(complete, start, transfers.launch_ns)
    broken = resumed != UNKNOWN
    until = np.where(complete | broken, np.maximum(end, resumed), np.maximum(over, since))
    coverage = ports.coverage(nic, since, until) if ports.aligned else np.where(complete, 1.0, 0.0)
    covered = (coverage >= 1.0 - _ROUNDING) & (until > since)
    # what others between the same ranks have followed has run, too small or too near to them to be told
    passed = np.arange(count) < _last_seen(transfers, seen)
    state = np.select(
        [complete, seen & covered & ~broken, ~seen & covered & ~passed],
        [COMPLETE, INCOMPLETE, MISSING_START],
        default=UNKNOWN_STATE,
    )
    silent = np.maximum(over - np.where(seen, end, transfers.launch_ns), 0)
    caught_up = (state == COMPLETE) & (_next_call_ns(transfers) > end)
    return Segments(start, end, sent, state, silent, coverage, caught_up, pieces)


def _next_call_ns(transfers: Transfers) -> Ints:
    """When the next one was called between the ranks of each transfer, of a large one the next large one: what is small
    beside it may be taken for a part of it. Shape (transfers,)."""
    pair, count = np.cumsum(_fresh(transfers)) - 1, len(transfers)
    large = transfers.expected >= LARGE_BYTES
    of_large = np.append(np.flatnonzero(large), count)
    following = np.arange(1, count + 1)
    following[large] = of_large[1:]
    at = np.minimum(following, count - 1)
    same = (following < count) & (pair[at] == pair)
    return np.where(same, transfers.launch_ns[at], _FAR) if count else transfers.launch_ns


def _last_seen(transfers: Transfers, seen: Bools) -> Ints:
    """The last transfer between the ranks of each one that was seen; shape (transfers,)."""
    pair = np.cumsum(_fresh(transfers)) - 1
    last = np.full(int(pair[-1]) + 1 if len(pair) else 0, UNKNOWN, dtype=np.int64)
    last[pair[seen]] = np.flatnonzero(seen)  # of several the last one stays
    return np.asarray(last[pair], dtype=np.int64)


def _fresh(transfers: Transfers) -> Bools:
    """Where the transfers between the next pair of ranks begin."""
    source, destination = transfers.source, transfers.destination
    return np.asarray((np.diff(source, prepend=UNKNOWN) != 0) | (np.diff(destination, prepend=UNKNOWN) != 0))
