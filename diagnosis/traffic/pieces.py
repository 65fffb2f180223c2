"""What single queue pairs sent for each transfer, once it is known which bursts are whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.traffic.bursts import Bursts
from diagnosis.traffic.in_turn import Pairs
from diagnosis.traffic.matching import Match
from diagnosis.traffic.ports import Ports, Spans

UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Transfers in the bursts that they were seen in, as ``matching.Match`` has it; arrays of shape (n,).

    ``cut``: when those begin and end that begin or end within a burst, by their place. ``resumed_ns`` is ``UNKNOWN``
    where telemetry was not away.
    """

    transfer: Ints
    low: Ints
    high: Ints
    reached: Bools
    resumed_ns: Ints
    cut: dict[int, tuple[int | None, int | None]]

    @classmethod
    def of(cls, plain: Pairs, walked: Sequence[Match]) -> Matches:
        """Join those of pairs with a transfer a burst and those that walks have found."""
        pair, place, burst = plain.bursts
        columns = np.array([(one.transfer, one.low, one.high, one.reached) for one in walked], dtype=np.int64)
        transfer, low, high, reached = columns.reshape(-1, 4).T
        resumed = [UNKNOWN if one.resumed_ns is None else one.resumed_ns for one in walked]
        return cls(
            transfer=np.concatenate((plain.first[pair] + place, transfer)),
            low=np.concatenate((burst, low)),
            high=np.concatenate((burst + 1, high)),
            reached=np.concatenate((np.ones(len(burst), dtype=np.bool_), reached > 0)),
            resumed_ns=np.concatenate((np.full(len(burst), UNKNOWN), np.array(resumed, dtype=np.int64))),
            cut={
                at: (one.from_ns, one.to_ns)
                for at, one in enumerate(walked, start=len(burst))
                if one.from_ns is not None or one.to_ns is not None
            },
        )


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """What single queue pairs sent for a ``transfer`` without a silence; shape (pieces,), sorted by transfer."""

    transfer: Ints
    spans: Spans

    @classmethod
    def of(cls, ports: Ports, bursts: Bursts, matches: Matches) -> Pieces:
        """The spans of each transfer's bursts, as far as they are its own."""
        lengths = bursts.first[matches.high] - bursts.first[matches.low]
        begins = np.cumsum(lengths) - lengths
        of_match = np.repeat(np.arange(len(lengths)), lengths)
        taken = np.arange(len(of_match)) - np.repeat(begins - bursts.first[matches.low], lengths)
        spans = bursts.spans.take(taken)
        for at, (from_ns, to_ns) in matches.cut.items():
            _cut(ports, spans, slice(int(begins[at]), int(begins[at] + lengths[at])), from_ns, to_ns)
        kept = np.flatnonzero(spans.high > spans.low)
        transfer = matches.transfer[of_match[kept]]
        order = np.argsort(transfer, kind="stable")
        return cls(transfer[order], spans.take(kept[order]))


def _cut(ports: Ports, spans: Spans, own: slice, from_ns: int | None, to_ns: int | None) -> None:
    """Leave of some spans, in place, what was sent from a time on and before another."""
    for at in range(own.start, own.stop):
        part, low, high = ports.parts[spans.part[at]], int(spans.low[at]), int(spans.high[at])
        first = low if from_ns is None else part.first_from(from_ns, low, high)
        end = high if to_ns is None else part.first_from(to_ns, first, high)
        if (first, end) != (low, high):
            spans.low[at], spans.high[at] = first, max(first, end)
            if end > first:
                start_ns, units = part.rows(first, end)
                spans.start_ns[at], spans.last_ns[at] = start_ns[0], start_ns[-1]
                spans.size[at] = int(units.sum()) * ports.unit_bytes
