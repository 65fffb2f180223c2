"""What ranks run between network namespaces, and over which lines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from random import Random

PORT = 7000
"""Where every rank is met."""

MTU = 4096 + 52
"""4 KB of data a packet, as RoCE has it, after the headers of IP and TCP."""

STRETCHED = 1000
"""What takes microseconds between NICs of 200 Gb/s takes milliseconds here."""

_ELEMENT = 4


@dataclass(frozen=True)
class Plan:
    """One run: ``iterations`` of an all-reduce and an all-to-all, with a pause before each.

    Around the ring go ``chunk_bytes`` of each rank and channel; to each peer go ``exchanged_bytes``.

    Time is stretched a thousandfold: a slice of 1 MB takes 40 ms of a line of 200 Mb/s, and epochs last 32 ms. What
    rank ``throttled`` sends has ``throttle`` of its line. Ranks meet in a ring whose order ``seed`` draws.
    """

    ranks: int = 4
    channels: int = 2
    slice_bytes: int = 1 << 20
    slots: int = 4
    line_mbps: float = 200.0
    throttled: int | None = None
    throttle: float = 0.5
    iterations: int = 4
    chunk_bytes: int = 4 << 20
    exchanged_bytes: int = 9 << 20
    pause_s: float = 0.4
    epoch_ns: int = 32_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.chunk_bytes % _ELEMENT or self.exchanged_bytes % (self.channels * _ELEMENT):
            raise ValueError("chunk_bytes and a channel's part of exchanged_bytes are multiples of 4")
        if self.throttled is not None and not 0 <= self.throttled < self.ranks:
            raise ValueError(f"rank {self.throttled} of {self.ranks} is to be throttled")

    @property
    def reduced_bytes(self) -> int:
        """What is reduced."""
        return self.chunk_bytes * self.ranks * self.channels

    @cached_property
    def ring(self) -> tuple[int, ...]:
        """Ranks in the order of the ring, unlike the order of their numbers."""
        order = list(range(self.ranks))
        Random(self.seed).shuffle(order)
        return tuple(order)

    def successor(self, rank: int) -> int:
        """Whom a rank sends to around the ring."""
        return self.ring[(self.ring.index(rank) + 1) % self.ranks]

    def predecessor(self, rank: int) -> int:
        """Who sends to a rank around the ring."""
        return self.ring[self.ring.index(rank) - 1]

    def peers(self, rank: int) -> tuple[int, ...]:
        """All others."""
        return tuple(other for other in range(self.ranks) if other != rank)

    def sending_mbps(self, rank: int) -> float:
        """What a rank's line takes from it."""
        return self.line_mbps * (self.throttle if rank == self.throttled else 1.0)

    @property
    def longest_s(self) -> float:
        """How long a run may take before something must be wrong."""
        sent = (self.ranks - 1) * (2 * self.channels * self.chunk_bytes + self.exchanged_bytes)
        slowest = self.line_mbps * (self.throttle if self.throttled is not None else 1.0) * 1e6 / 8
        return 30.0 + self.iterations * (4 * sent / slowest + 2 * self.pause_s)

    def to_json(self) -> str:
        """The plan as a line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Plan:
        """The plan of a line."""
        return cls(**json.loads(line))
