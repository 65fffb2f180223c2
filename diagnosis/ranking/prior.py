"""How often each kind of device is at fault: the prior of the ranking (Holmes D, table 1)."""

from __future__ import annotations

BAD_DEVICES = {"gpu": 74, "nic": 23, "link": 12, "nvlink": 12, "tor": 6, "spine": 6, "cpu": 4}
"""Devices found at fault in three months of training, by kind. NVLinks count as links, ToRs and spines as switches."""

OTHERS = 7
"""Devices at fault that were none of these."""

ALL = 126


def share(kind: str) -> float:
    """Part that a kind of device has in all that were at fault: of the kind, not of each of its devices."""
    return BAD_DEVICES.get(kind, OTHERS) / ALL
