"""The polls of a NIC joined, by the host's clock (Pulse 4.2)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Ints
from diagnosis.traffic.epochs import Poll, Words

_ALL = 1 << 40
"""More epochs than any poll has."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One part of a poll in a series: its first epoch begins at ``began_ns``, by the host's clock if the series is
    aligned, else by the NIC's; its epochs from ``low`` up to ``high`` count."""

    poll: Poll
    began_ns: int
    low: int = 0
    high: int = _ALL

    def rows(self, low: int, high: int) -> tuple[Ints, Words]:
        """When the epochs of some rows begin, and units sent in each."""
        start_ns = np.multiply(self.poll.epoch[low:high], self.poll.epoch_ns, dtype=np.int64)
        start_ns += self.began_ns
        return start_ns, self.poll.units[low:high]

    @property
    def last_ns(self) -> int:
        """When the last epoch with traffic begins, 0 where there is none."""
        epoch = self.poll.epoch[(self.poll.epoch >= self.low) & (self.poll.epoch < self.high)]
        return self.began_ns + int(epoch.max()) * self.poll.epoch_ns if len(epoch) else 0

    def first_from(self, at_ns: int, low: int, high: int) -> int:
        """The first of rows ``low`` to ``high``, of one queue pair, whose epoch begins at a time or later."""
        return bisect_left(self.poll.epoch.data, -((self.began_ns - at_ns) // self.poll.epoch_ns), low, high)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What telemetry tells everything of: covered intervals ``start`` to ``end``, ascending and disjoint."""

    start: Sequence[int]
    end: Sequence[int]

    def resumed(self, from_ns: int, to_ns: int) -> int | None:
        """When telemetry came back for the last time in between; None if it was never away."""
        at = bisect_right(self.start, to_ns) - 1
        if at < 0 or to_ns > self.end[at]:
            return to_ns
        return self.start[at] if self.start[at] > from_ns else None


@dataclass(frozen=True, slots=True, eq=False)
class EpochSeries:
    """The nonzero epochs of one NIC.

    ``covered``: intervals that telemetry tells everything of, shape (m, 2), ascending and disjoint: only silence inside
    of them is zero. ``clock_error_ns``: how far times may be off the host's clock, if they are ``aligned`` to it.
    """

    parts: tuple[Part, ...]
    covered: Ints
    epoch_ns: int
    unit_bytes: int
    aggregation_bytes: int
    aligned: bool
    clock_error_ns: int

    @property
    def scale(self) -> tuple[int, int, int, bool]:
        """What NICs have to have in common to be looked at together."""
        return self.epoch_ns, self.unit_bytes, self.aggregation_bytes, self.aligned

    def coverage(self, start_ns: Ints, end_ns: Ints) -> npt.NDArray[np.float64]:
        """Share of each time from ``start_ns`` to ``end_ns`` that telemetry covers, 0 to 1; shape as given."""
        length = np.maximum(end_ns - start_ns, 1)
        covered = self._covered_before(start_ns + length) - self._covered_before(start_ns)
        return np.asarray(np.minimum(covered / length, 1.0), dtype=np.float64)

    def _covered_before(self, at_ns: Ints) -> Ints:
        if not len(self.covered):
            return np.zeros(np.shape(at_ns), dtype=np.int64)
        starts, ends = self.covered[:, 0], self.covered[:, 1]
        before = np.concatenate(([0], np.cumsum(ends - starts)))
        row = np.searchsorted(starts, at_ns, side="right")
        last = np.maximum(row - 1, 0)
        within = np.clip(at_ns - starts[last], 0, ends[last] - starts[last])
        return np.asarray(np.where(row > 0, before[last] + within, 0), dtype=np.int64)

    @classmethod
    def join(cls, polls: Sequence[Poll], between_ns: tuple[int, int] | None = None) -> EpochSeries:
        """Join the polls of one NIC, in any order; a part that came twice counts once.

        ``between_ns``: only the epochs that lie between two times of the host's clock, and what is covered there.

        A poll of which a part is missing, or during which the NIC lost counts, covers nothing. Where some polls know
        the host's clock, the others take the offset of the one nearest to them.

        Raises ``ValueError`` if there is no poll, or if their units or epochs differ.
        """
        distinct = {(poll.from_ns, poll.part): poll for poll in polls}
        chosen = [distinct[key] for key in sorted(distinct)]
        if not chosen:
            raise ValueError("no poll to join")
        first = chosen[0]
        if any(poll.scale != first.scale for poll in chosen):
            raise ValueError("polls of one NIC differ in epoch, unit or aggregation: join them apart")
        offsets, error = _alignment(chosen)
        covered = _covered(chosen, offsets)
        if between_ns is not None:
            covered = np.clip(covered, *between_ns)
            covered = covered[covered[:, 1] > covered[:, 0]]
        return cls(
            parts=tuple(_part(poll, offset, between_ns) for poll, offset in zip(chosen, offsets, strict=True)),
            covered=covered,
            epoch_ns=first.epoch_ns,
            unit_bytes=first.unit_bytes,
            aggregation_bytes=first.aggregation_bytes,
            aligned=error is not None,
            clock_error_ns=error or 0,
        )


def _part(poll: Poll, offset: int, between_ns: tuple[int, int] | None) -> Part:
    began = poll.from_ns + offset
    if between_ns is None:
        return Part(poll, began)
    from_ns, to_ns = between_ns
    low, high = -((began - from_ns) // poll.epoch_ns), (to_ns - began) // poll.epoch_ns
    if low <= 0 and began + (poll.to_ns - poll.from_ns) <= to_ns:
        return Part(poll, began)
    return Part(poll, began, max(low, 0), max(high, 0))


def _alignment(polls: Sequence[Poll]) -> tuple[list[int], int | None]:
    """Host's clock less the NIC's for each poll, and how far it may be wrong; None where no poll knows it."""
    known: dict[int, int] = {}
    for poll in polls:
        if poll.host_minus_nic_ns is not None:
            known.setdefault(poll.from_ns, poll.host_minus_nic_ns)
    if not known:
        return [0] * len(polls), None
    error = max(poll.clock_error_ns or 0 for poll in polls)
    times = np.array(list(known))
    lacking = {poll.from_ns for poll in polls} - known.keys()
    known |= {at: known[int(times[np.argmin(np.abs(times - at))])] for at in lacking}
    return [known[poll.from_ns] for poll in polls], error


def _covered(polls: Sequence[Poll], offsets: Sequence[int]) -> Ints:
    parts: dict[int, set[int]] = {}
    for poll in polls:
        parts.setdefault(poll.from_ns, set()).add(poll.part)
    lossy = {poll.from_ns for poll in polls if poll.events_dropped}
    whole = sorted(
        {
            (poll.from_ns + offset, poll.to_ns + offset)
            for poll, offset in zip(polls, offsets, strict=True)
            if len(parts[poll.from_ns]) == poll.parts and poll.from_ns not in lossy
        }
    )
    merged: list[list[int]] = []
    for start, end in whole:
        # clocks are aligned anew at each poll: two that follow each other may be a few microseconds apart
        if merged and start <= merged[-1][1] + polls[0].epoch_ns:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return np.array(merged, dtype=np.int64).reshape(-1, 2)
