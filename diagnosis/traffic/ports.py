"""NICs side by side: what each of their queue pairs sent between silences, by the host's clock (Pulse 4.2)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Bools, Ints
from diagnosis.traffic.endpoints import flow_of
from diagnosis.traffic.epochs import Poll, Words
from diagnosis.traffic.queue_pairs import QueuePairs
from diagnosis.traffic.series import EpochSeries, Part

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Rows ``low`` to ``high`` of a ``part`` that one ``lane`` sent without a silence: from ``start_ns`` to
    ``last_ns``, the beginnings of the first and the last epoch, ``size`` bytes; shape (n,)."""

    lane: Ints
    part: Ints
    low: Ints
    high: Ints
    start_ns: Ints
    last_ns: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.lane)

    def take(self, chosen: Ints | Bools | slice) -> Spans:
        """The chosen ones, in their order."""
        return Spans(*(getattr(self, name)[chosen] for name in self.__slots__))


@dataclass(frozen=True, eq=False)
class Ports:
    """NICs that are looked at together, as they count alike; each one's number is its place in ``series``.

    Raises ``ValueError`` if they do not count alike.
    """

    series: Sequence[EpochSeries]

    def __post_init__(self) -> None:
        if len({one.scale for one in self.series}) != 1:
            raise ValueError("NICs that do not count alike cannot be looked at together")

    @property
    def epoch_ns(self) -> int:
        return self.series[0].epoch_ns

    @property
    def unit_bytes(self) -> int:
        return self.series[0].unit_bytes

    @property
    def aggregation_bytes(self) -> int:
        return self.series[0].aggregation_bytes

    @property
    def aligned(self) -> bool:
        return self.series[0].aligned

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Those of all NICs."""
        return tuple(part for one in self.series for part in one.parts)

    @cached_property
    def began_ns(self) -> Ints:
        """Of each part."""
        return np.array([part.began_ns for part in self.parts], dtype=np.int64)

    @cached_property
    def clock_error_ns(self) -> Ints:
        """Of each NIC."""
        return np.array([one.clock_error_ns for one in self.series], dtype=np.int64)

    @cached_property
    def over_ns(self) -> Ints:
        """Up to when the telemetry of each NIC covers anything, 0 where it does not."""
        return np.array([one.covered[-1, 1] if len(one.covered) else 0 for one in self.series], dtype=np.int64)

    @cached_property
    def last_sent_ns(self) -> Ints:
        """When each NIC last sent anything, for whomever, 0 where nothing was seen."""
        return np.array([max((part.last_ns for part in one.parts), default=0) for one in self.series])

    def coverage(self, nic: Ints, start_ns: Ints, end_ns: Ints) -> npt.NDArray[np.float64]:
        """Share of each time from ``start_ns`` to ``end_ns`` that the telemetry of a NIC covers; shape as given."""
        covered = np.zeros(len(nic))
        for series, own in self._each(nic):
            covered[own] = series.coverage(start_ns[own], end_ns[own])
        return covered

    def covered_since(self, nic: Ints, at_ns: Ints) -> Ints:
        """Since when the telemetry of a NIC covers everything up to each time, ``NEVER`` where it does not."""
        since = np.full(len(nic), NEVER)
        for series, own in self._each(nic):
            if len(series.covered):
                at = np.searchsorted(series.covered[:, 0], at_ns[own], side="right") - 1
                inside = (at >= 0) & (at_ns[own] <= series.covered[at, 1])
                since[own] = np.where(inside, series.covered[at, 0], NEVER)
        return since

    def _each(self, nic: Ints) -> Iterator[tuple[EpochSeries, Bools]]:
        for number, series in enumerate(self.series):
            own = nic == number
            if own.any():
                yield series, own

    def spans(self, lanes: QueuePairs, quiet_ns: int) -> Spans:
        """What each queue pair sent between silences, in the order of polls; ``lanes`` are distinct records.

        What no record explains (storage, checkpoints, other tenants) is left out.
        """
        epoch_ns, parts = self.epoch_ns, self.parts
        told = [part.poll.stretches(-(-quiet_ns // epoch_ns)) for part in parts]
        part = np.repeat(np.arange(len(parts)), [len(one.qpn) for one in told])
        nic = np.repeat(np.arange(len(self.series)), [len(one.parts) for one in self.series])
        qpn, low, high, first, last, units = (
            np.concatenate([getattr(one, name) for one in told]) for name in told[0].__slots__
        )
        flow = flow_of(nic[part], qpn)
        known, end = np.searchsorted(lanes.flow, flow), np.searchsorted(lanes.flow, flow, side="right")
        of = np.repeat(np.arange(len(flow)), end - known)
        lane = np.arange(len(of)) - np.repeat(np.cumsum(end - known) - end, end - known)
        part, low, high, first, last, units = (column[of] for column in (part, low, high, first, last, units))
        began = self.began_ns[part]
        bounds = np.array([(one.low, one.high) for one in parts], dtype=np.int64)[part]
        least = np.maximum(bounds[:, 0], -((began - lanes.valid_from_ns[lane]) // epoch_ns))
        most = np.minimum(bounds[:, 1], -((began - lanes.valid_to_ns[lane]) // epoch_ns))
        inside = (last >= least) & (first < most)
        cut = np.flatnonzero(inside & ((first < least) | (last >= most)))
        for number in np.unique(part[cut]).tolist():
            own = cut[part[cut] == number]
            narrowed = _narrowed(parts[number].poll, low[own], high[own], least[own], most[own])
            low[own], high[own], first[own], last[own], units[own] = narrowed
        kept = inside & (high > low)
        start_ns, last_ns, size = began + first * epoch_ns, began + last * epoch_ns, units * self.unit_bytes
        return Spans(lane, part, low, high, start_ns, last_ns, size).take(kept)


def _narrowed(poll: Poll, low: Ints, high: Ints, least: Ints, most: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """The rows of some stretches that lie in epochs ``least`` up to ``most``, their first and last epochs, units."""
    epochs = poll.epoch.data
    rows = zip(*(column.tolist() for column in (low, high, least, most)), strict=True)
    for at, (begin, end, least_epoch, most_epoch) in enumerate(rows):
        low[at] = bisect_left(epochs, least_epoch, begin, end)
        high[at] = bisect_left(epochs, most_epoch, begin, end)
    first, last, units = np.zeros_like(low), np.zeros_like(low), np.zeros_like(low)
    some = np.flatnonzero(high > low)
    if len(some):
        first[some], last[some] = poll.epoch[low[some]], poll.epoch[high[some] - 1]
        units[some] = _sums(poll.units, low[some], high[some])
    return low, high, first, last, units


def _sums(values: Words, low: Ints, high: Ints) -> Ints:
    """What the values of each of these disjoint, ascending spans of rows, none of them empty, add up to."""
    edges = np.stack((low, high), axis=1).ravel()
    edges = edges[:-1] if edges[-1] == len(values) else edges
    return np.add.reduceat(values, edges)[::2].astype(np.int64)
