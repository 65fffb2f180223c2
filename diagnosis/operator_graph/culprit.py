"""Who lost how much of an irregular iteration, and why."""

from __future__ import annotations

from dataclasses import dataclass

from diagnosis.operator_graph.leaf import OperatorRef
from diagnosis.topology import Device

COMPUTE = "compute_slow"
NETWORK = "communication_slow"
MIXED = "mixed_slow"
HOST = "host_slow"


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who lost how much of an iteration's excess.

    ``ranks`` are the culprits; with several ``candidates`` (sets) the evidence cannot tell which, and ``ranks``
    is their union. ``operator_ns`` and ``iteration_ns`` are the series that ``irregularity_rate`` correlates.
    """

    cause: str
    level: str
    ranks: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]
    devices: tuple[Device, ...]
    operator: OperatorRef
    excess_ns: int
    share: float
    path: tuple[int, ...]
    operator_ns: tuple[int, ...] = ()
    iteration_ns: tuple[int, ...] = ()
    irregularity_rate: float = 0.0
