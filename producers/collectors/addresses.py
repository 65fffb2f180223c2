"""Which rank is met at a place in a communicator, and at the other end of a queue pair (Pulse 5.1).

A process knows its own places and queue pairs alone. The paper gathers them within the training job; here each host
tells the others of its own (control.addresses).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int64]
"""Global ranks; -1: not known."""

Address = tuple[str, str, int]
"""As a row of control.addresses: kind, name, number."""


class Addresses:
    """The addresses of one job, of this host and of those that have told of theirs."""

    def __init__(self) -> None:
        self._rank: dict[Address, int] = {}
        self._of_host: dict[str, frozenset[Address]] = {}

    def tell(self, host: str, ranks: Mapping[Address, int]) -> None:
        """All addresses of a host, in the place of those that it had."""
        for gone in self._of_host.get(host, frozenset()) - ranks.keys():
            self._rank.pop(gone, None)
        self._rank.update(ranks)
        self._of_host[host] = frozenset(ranks)

    def ranks_at(self, communicators: Iterable[str], places: Iterable[int]) -> Ranks:
        """The members at these places of communicators."""
        asked = zip(communicators, places, strict=True)
        return np.fromiter((self._rank.get(("communicator", *place), -1) for place in asked), dtype=np.int64)

    def rank_at(self, gid: str, qpn: int) -> int | None:
        """Whose queue pair this is."""
        return self._rank.get(("queue_pair", gid, qpn))
