"""What may be wrong, and how near the evidence comes to it, as findings and incidents say."""

from __future__ import annotations

from typing import Literal

Cause = Literal[
    "compute_slow",
    "communication_slow",
    "mixed_slow",
    "host_slow",
    "hang_not_entered",
    "hang_hardware",
    "imbalance",
]
"""``host_slow``: a host's CPUs; ``imbalance``: no device is at fault, work is divided unevenly."""

Level = Literal["device", "machine", "group"]
"""A device of one rank, all ranks of a host, or a group within which the evidence does not reach further."""

GOES_ON_LATE = "goes_on_late"
"""The rule by which a rank computes slowly that goes on late after operators whose ends it did not log."""
