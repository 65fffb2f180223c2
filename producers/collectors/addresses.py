"""Which rank is met at a place in a communicator, and at the other end of a queue pair (Pulse 5.1).

A process knows its own places and queue pairs alone. The paper gathers them within the training job; here each host
tells the others of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int64]
"""Global ranks; -1: not known."""


class Addresses:
    """The places and queue pairs of one job, of this host and of those that have told of theirs."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def place(self, communicator: str, place: int, rank: int) -> None:
        """A rank is a communicator's member."""
        self._places[communicator, place] = rank

    def end(self, gid: str, qpn: int, rank: int) -> None:
        """A rank has a queue pair; of a number that is used again the newest user counts."""
        self._ends[gid, qpn] = rank

    def ranks_at(self, communicators: Iterable[str], places: Iterable[int]) -> Ranks:
        """The members at these places."""
        found = (self._places.get(at, -1) for at in zip(communicators, places, strict=True))
        return np.fromiter(found, dtype=np.int64)

    def rank_at(self, gid: str, qpn: int) -> int | None:
        """Whose queue pair this is."""
        return self._ends.get((gid, qpn))
