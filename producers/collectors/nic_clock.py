"""The offset of a NIC's clock from its host's, from readings of both (Pulse 7.1).

The host reads its clock, has the NIC read its own through the mailbox, and reads its clock again: the NIC's reading
lies between the two. The quickest round trip of a poll says most; the slope of several polls is the drift. The paper
only says that the clocks are aligned this way; the bound on the error is ours.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Readings = NDArray[np.int64]
"""A row a reading: the host's clock before, the NIC's, the host's clock after; ns."""

UNKNOWN_DRIFT = 1e-4
"""What two crystals may differ by, while there is nothing to tell the drift from."""

WINDOW = 16
"""Polls that the drift is told from."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Added to the NIC's clock it gives the host's, wrong by at most ``error_ns``."""

    host_minus_nic_ns: int
    error_ns: int


class NicClock:
    """One NIC's clock. ``drift`` is the change of the offset in ns a ns."""

    def __init__(self) -> None:
        self.drift = 0.0
        self._best: deque[tuple[int, int, int]] = deque(maxlen=WINDOW)  # NIC's time, offset, half the round trip

    def take(self, readings: Readings) -> None:
        """Take the readings of a poll; those whose end lies before their beginning, as the host's clock was set
        meanwhile, say nothing. Clocks that were set begin anew.
        """
        readings = readings[readings[:, 2] >= readings[:, 0]]
        if not len(readings):
            return
        before, nic, after = (int(value) for value in readings[np.argmin(readings[:, 2] - readings[:, 0])])
        offset = before + (after - before) // 2 - nic
        half = (after - before) // 2 + 1  # clocks are read in whole ns
        if self._best and not self._continues(nic, offset, half):
            self._best.clear()
        self._best.append((nic, offset, half))
        self._fit()

    def offset(self, from_ns: int, to_ns: int) -> Offset | None:
        """The offset in the middle of an interval of the NIC's clock; its error holds all over the interval.

        None: there was no reading.
        """
        if not self._best:
            return None
        middle = (from_ns + to_ns) // 2
        moved, error, slack = self._at(middle)
        error += (abs(self.drift) + slack) * (to_ns - from_ns) / 2
        return Offset(self._best[0][1] + round(moved), int(error) + 1)

    def _fit(self) -> None:
        nic, offset, _ = self._columns()
        spread = nic - nic.mean()
        variance = float(spread @ spread)
        self.drift = float(spread @ (offset - offset.mean())) / variance if variance else 0.0

    def _at(self, nic_ns: int) -> tuple[float, float, float]:
        """How far the offset has moved since the oldest reading, at a time of the NIC's clock; how far that, and the
        drift, may be wrong.

        Where clocks drift evenly, the line is nowhere further off between readings than at them, and its slope is
        wrong by no more than leads from one end of that to the other.
        """
        nic, offset, half = self._columns()
        mean = float(offset.mean())
        line = mean + self.drift * (nic - nic.mean())
        error = float((np.abs(offset - line) + half).max())
        slack = 2 * error / float(nic[-1] - nic[0]) if len(nic) > 1 else UNKNOWN_DRIFT
        beyond = max(self._best[0][0] - nic_ns, nic_ns - self._best[-1][0], 0)
        moved = mean + self.drift * (nic_ns - self._best[0][0] - float(nic.mean()))
        return moved, error + slack * beyond, slack

    def _continues(self, nic: int, offset: int, half: int) -> bool:
        """Whether a reading agrees with those before it."""
        if nic <= self._best[-1][0]:
            return False
        last_nic, last_offset, last_half = self._best[-1]
        return abs(offset - last_offset) <= half + last_half + 2 * UNKNOWN_DRIFT * (nic - last_nic)

    def _columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """NIC times, offsets and half round trips, the first two less the oldest's: floats would not hold them."""
        columns = np.array(self._best, dtype=np.int64)
        columns[:, :2] -= columns[0, :2]
        nic, offset, half = columns.T.astype(np.float64)
        return nic, offset, half
