"""What comparing ranks ends in: who is at fault, of what, and how far the evidence reaches (Pulse 6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Cause = Literal["compute_slow", "communication_slow", "host_slow", "hang_not_entered", "hang_hardware", "imbalance"]
Level = Literal["device", "machine", "group"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer.

    ``ranks`` are the culprits: of ``level`` machine all ranks of the host, of group all members, since the evidence
    reaches no further; of ``imbalance`` those that had more to do, and no device is at fault. ``candidates``: sets
    that the evidence cannot tell apart, whose union ``ranks`` is; empty where there is one. ``method`` names the rule,
    ``communicator`` and ``instance`` the operator that showed it, ``evidence`` its numbers. ``coverage``: share of the
    ranks compared whose telemetry was there. ``weaker``: what else showed the same, less clearly.
    """

    cause: Cause
    level: Level
    ranks: tuple[int, ...]
    method: str
    communicator: str | None = None
    instance: int | None = None
    candidates: tuple[tuple[int, ...], ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)
    coverage: float = 1.0
    weaker: tuple[Verdict, ...] = ()
