"""Operators between two ranks that come one by one, each with silence before and behind it: most of them do.

Of all pairs of ranks at once it is told where the walk of Algorithm 1 (``matching``) would give each burst to one
operator, in turn; only where bursts and operators do not go together so plainly a walk is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Bools, Ints
from diagnosis.traffic.bursts import Bursts
from diagnosis.traffic.matching import EXACT
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.transfers import Transfers
from diagnosis.traffic.volume import LARGE_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of ranks that sent something and had to; arrays of shape (pairs,).

    Transfers ``first`` up to ``end`` and bursts ``low`` up to ``high`` are theirs. ``nic``: by which they send.
    ``error``, ``slack`` and both kinds of ``inflation`` are as in ``matching``.
    """

    first: Ints
    end: Ints
    low: Ints
    high: Ints
    nic: Ints
    error: Ints
    slack: Ints
    inflation: npt.NDArray[np.float64]
    large_inflation: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.first)

    def take(self, chosen: Bools) -> Pairs:
        """The chosen pairs, in their order."""
        return Pairs(*(getattr(self, name)[chosen] for name in self.__slots__))

    @property
    def bursts(self) -> tuple[Ints, Ints, Ints]:
        """All of their bursts: the pair, which of the pair's it is, and its number."""
        count = self.high - self.low
        pair = np.repeat(np.arange(len(self)), count)
        place = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
        return pair, place, self.low[pair] + place


def in_turn(ports: Ports, bursts: Bursts, transfers: Transfers, pairs: Pairs) -> Bools:
    """Which pairs' bursts are one transfer each, in their order, as a walk would have it; shape (pairs,)."""
    enough = pairs.high - pairs.low <= pairs.end - pairs.first
    simple = np.zeros(len(pairs), dtype=np.bool_)
    if not enough.any():
        return simple
    few = pairs.take(enough)
    pair, place, burst = few.bursts
    transfer = few.first[pair] + place
    error, slack = few.error[pair], few.slack[pair]
    size, last = bursts.size[burst], bursts.last_ns[burst]
    launch, expected = transfers.launch_ns[transfer], transfers.expected[transfer]
    following = np.minimum(transfer + 1, len(transfers) - 1)
    called = (transfer + 1 < few.end[pair]) & (transfers.launch_ns[following] - error <= last)
    inflation = np.where(expected >= LARGE_BYTES, few.large_inflation[pair], few.inflation[pair])
    usual = expected * inflation * EXACT + slack
    # what is usual is known from those that stand alone: before the first of these it is what the pair sends in all
    learned = (place > 0) & np.append(False, ~called[:-1])
    plain = (
        (launch >= ports.covered_since(few.nic[pair], bursts.start_ns[burst]))
        & (last >= launch - error)
        & (size >= expected - slack)
        & (~called | ((size <= usual) & ~learned))
    )
    simple[enough] = np.logical_and.reduceat(plain, np.flatnonzero(place == 0))
    return simple
