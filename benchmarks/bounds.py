"""What a soak has to stay within, and whether it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

_TELL_NO_LAG = frozenset({"agent"})
"""Of requests alone, which are all that an agent reads, nobody is told how long they wait."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A figure beside its bound."""

    what: str
    figure: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the figure is not above its bound."""
        return self.figure <= self.bound

    def to_row(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "holds": self.holds}


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much more memory the last quarter of the time may have than the second, as a share, how far a role may be
    behind its inputs from the second quarter on, and how many pages may be lost. All but the agent
    tell their lag at each look from then on: of one that does not, nobody knows whether it is behind.
    """

    rss_grows: float
    lag_p50_s: float
    lag_most_s: float
    pages_lost: int

    def judge(self, roles: Mapping[str, Mapping[str, Any]], pages_lost: int) -> Iterator[Verdict]:
        """Of each role by name, what ``soak.quarters`` says of it; one that tells no lag is not judged by it."""
        for name, quarters in roles.items():
            yield Verdict(f"{name} rss_grows", quarters["rss_grows"], self.rss_grows)
            if name in _TELL_NO_LAG:
                continue
            yield Verdict(f"{name} lag_untold", sum(quarters["lag_untold"][1:]), 0)
            for figure, bound in (("lag_p50_s", self.lag_p50_s), ("lag_most_s", self.lag_most_s)):
                known = [lag for lag in quarters[figure][1:] if lag is not None]
                if known:
                    yield Verdict(f"{name} {figure}", max(known), bound)
        yield Verdict("pages_lost", pages_lost, self.pages_lost)
