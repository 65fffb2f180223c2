"""When an incident is the consequence of a known one, so that nobody is woken for it.

A wrong answer here hides a fault. One incident explains another of the same job only where all of this holds:

- its cause brings about the other's: a slow host slow compute on it, a faulty path slow communication over it;
- it leaves no doubt about the culprit itself (no candidates), and the other lies within it: fewer ranks, all of them
  among its own, or no device that it does not name as well;
- the other began while it went on, not before;
- the other costs the job no more than it does: what costs more has more behind it.

What is not known (an iteration, a cost) explains nothing, and a hang is never explained away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

CONSEQUENCES = {
    "host_slow": frozenset({"compute_slow", "mixed_slow"}),
    "network_path": frozenset({"communication_slow"}),
}
"""The causes that a cause can bring about by itself."""

_LASTING = "persistent_degradation"


@dataclass(frozen=True, slots=True)
class Extent:
    """The iterations that an incident has affected so far, and the time that it cost; None: not known."""

    first: int | None
    last: int | None
    lost_ns: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """What a row of analysis.incidents says."""
        return cls(row["first_iteration"], row["last_iteration"], row["lost_ns"])

    def widened(self, other: Extent) -> Extent:
        """Both together: an incident only grows, whichever of its records comes first."""
        return Extent(
            _chosen(min, self.first, other.first),
            _chosen(max, self.last, other.last),
            _chosen(max, self.lost_ns, other.lost_ns),
        )


def explains(cause: Mapping[str, Any], reach: Extent, other: Mapping[str, Any], extent: Extent) -> bool:
    """Whether an open incident (``reach`` is its extent) explains another one of its job.

    Both are rows of analysis.incidents.
    """
    return (
        cause["id"] != other["id"]
        and other["cause"] in CONSEQUENCES.get(cause["cause"], ())
        and not cause["candidates"]
        and _within(cause, other)
        and _began_during(cause, reach, extent)
        and None not in {reach.lost_ns, extent.lost_ns}
        and (extent.lost_ns or 0) <= (reach.lost_ns or 0)
    )


def _within(cause: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    ranks = set(other["ranks"])
    devices = {device["device"] for device in other["devices"]}
    return (bool(ranks) and ranks < set(cause["ranks"])) or (
        bool(devices) and devices <= {device["device"] for device in cause["devices"]}
    )


def _began_during(cause: Mapping[str, Any], reach: Extent, extent: Extent) -> bool:
    if reach.first is None or extent.first is None:
        return False
    lasts = math.inf if cause["pattern"] == _LASTING else reach.last
    return lasts is not None and reach.first <= extent.first <= lasts


def _chosen(choose: Any, one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return choose(known) if known else None
