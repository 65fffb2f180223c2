"""Proxy threads: one a rank, on the host's CPUs; they hand slices to the NIC and offer buffers to the other end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from producers.simulation.nic.slices import Ints

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Service:
    """How a proxy is served by its CPUs.

    Each thing it does takes ``factor`` times as long as usual, and in ``stall_share`` of the cases the thread does
    not run for a while afterwards: Pareto-distributed from ``stall_s`` on with exponent ``tail``, at most
    ``longest_s``.
    """

    factor: float = 1.0
    stall_share: float = 4e-4
    stall_s: float = 20e-6
    tail: float = 2.0
    longest_s: float = 500e-6


class Proxies:
    """The proxies of all ranks: what their services take, and until when they do not run."""

    def __init__(self, ranks: int, service_s: float, draws: np.random.Generator, usual: Service) -> None:
        self._draws = draws
        self._service_s = service_s
        self.away_until = np.zeros(ranks)
        self._factor, self._share, self._from, self._tail, self._longest = (np.zeros(ranks) for _ in range(5))
        for rank in range(ranks):
            self.serve(rank, usual)

    def serve(self, rank: int, service: Service) -> None:
        """Change how a rank's proxy is served."""
        self._factor[rank], self._share[rank] = service.factor, service.stall_share
        self._from[rank], self._tail[rank], self._longest[rank] = service.stall_s, service.tail, service.longest_s

    def begins(self, rank: Ints, ready: Floats) -> Floats:
        """When proxies turn to what is ready."""
        return np.maximum(ready, self.away_until[rank])

    def noticed(self, rank: Ints, ready: Floats) -> Floats:
        """When proxies are through with what has come to its end; nothing is handed on."""
        return np.asarray(self.begins(rank, ready) + self._service_s * self._factor[rank])

    def handled(self, rank: Ints, begins: Floats) -> Floats:
        """When proxies are through with what they begin; now and then one does not run afterwards."""
        done = begins + self._service_s * self._factor[rank]
        chance = self._draws.random(len(rank))
        stalled = (chance < self._share[rank]).nonzero()[0]
        if len(stalled):
            who = rank[stalled]
            # What was below the share is uniform once more when divided by it.
            length = self._from[who] * (chance[stalled] / self._share[who]) ** (-1 / self._tail[who])
            np.maximum.at(self.away_until, who, done[stalled] + np.minimum(length, self._longest[who]))
        return done
