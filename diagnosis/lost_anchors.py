"""Iterations of which a log without sequence numbers lost so much that counting passes over them.

An anchor's number is counted there. A ring that was overwritten takes an anchor and about an iteration's lines with
it, so that everything after it seems an iteration early. Ranks train in lockstep, and others have their anchors
meanwhile: what they passed between two anchors of one rank tells how many of its own are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from diagnosis.anchor_clocks import far_ahead
from diagnosis.anchors import FEW_ANCHORS, Anchors, RankLog
from diagnosis.arrays import Floats, Ints
from diagnosis.robust import running_median

_WITNESSES = 16
"""Ranks that one rank is compared with, at most."""

_AGREEING = 0.6
"""Share of them that must have passed as many more: of three two, as one may have lost as many itself."""

_BLUR = 0.25
"""How far from a whole number of iterations that may be: less moves where another part of the iteration is slow."""

_FILTER = 2 * FEW_ANCHORS + 1
"""Anchors over whose median a difference must show."""

_BEYOND = 2
"""Iterations by which a log's beginning and end are drawn out."""


def recounted(logs: Mapping[int, RankLog], anchors: Mapping[int, Anchors]) -> dict[int, Anchors]:
    """The anchors of all ranks, by rank, numbered so that those that a rank's log lost leave holes in its numbers.

    Anchors whose numbers are sequence numbers are as they were. Ranks that share the communicator of their anchors
    leave each one together; where a rank shares it with nobody, it is compared with others at large.
    """
    found = dict(anchors)
    counted = {rank: own for rank, own in anchors.items() if own.communicator in logs[rank].counted}
    if not counted:
        return found
    passed = _on_one_clock({rank: _Passed.of(logs[rank], own) for rank, own in anchors.items()})
    for rank, own in counted.items():
        lost = _lost_before(passed[rank], [passed[other] for other in _witnesses(rank, anchors)])
        if lost.any():
            number = own.number + np.cumsum(lost)
            found[rank] = replace(own, number=number, last=own.last + int(lost.sum()))
    return found


@dataclass(frozen=True)
class _Passed:
    """When a rank went on from its anchors, in ns, and their numbers."""

    ns: Ints
    number: Ints

    @classmethod
    def of(cls, log: RankLog, anchors: Anchors) -> _Passed:
        return cls(log.left_ns[anchors.rows], anchors.number)

    def at(self, ns: Ints) -> Floats:
        """The number reached at each time, with fractions; NaN where the log is far from it."""
        length = _BEYOND * np.median(np.diff(self.ns) / np.diff(self.number))
        times = np.concatenate([[self.ns[0] - length], self.ns, [self.ns[-1] + length]])
        numbers = np.concatenate([[self.number[0] - _BEYOND], self.number, [self.number[-1] + _BEYOND]])
        found: Floats = np.interp(ns, times, numbers, left=np.nan, right=np.nan)
        return found


def _on_one_clock(passed: Mapping[int, _Passed]) -> dict[int, _Passed]:
    """The same by clocks that are less than iterations apart."""
    first = next(iter(passed.values()))
    return {rank: replace(own, ns=own.ns - far_ahead(first.ns, own.ns).ns) for rank, own in passed.items()}


def _witnesses(rank: int, anchors: Mapping[int, Anchors]) -> list[int]:
    others = [other for other in anchors if other != rank]
    mates = [other for other in others if anchors[other].communicator == anchors[rank].communicator]
    chosen = mates or others
    return chosen[:: -(-len(chosen) // _WITNESSES) or 1]


def _lost_before(own: _Passed, witnesses: list[_Passed]) -> Ints:
    """How many anchors are lost before each one of a rank."""
    if not witnesses or len(own.ns) < 2:
        return np.zeros(len(own.ns), dtype=np.int64)
    ahead = np.stack([running_median(witness.at(own.ns) - own.number, _FILTER) for witness in witnesses])
    gained = np.diff(ahead, axis=1, prepend=ahead[:, :1])
    seen = np.isfinite(gained)
    gained = np.where(seen, gained, 0.0)
    whole = np.rint(gained).astype(np.int64)
    usual = np.sort(np.where(seen, whole, np.iinfo(np.int64).max), axis=0)
    usual = np.take_along_axis(usual, np.maximum(seen.sum(axis=0) - 1, 0)[None] // 2, axis=0)[0]
    agree = seen & (whole == usual) & (np.abs(gained - whole) <= _BLUR)
    told = seen.any(axis=0) & (usual > 0) & (agree.sum(axis=0) >= _AGREEING * seen.sum(axis=0))
    return np.where(told, usual, 0)
