"""What rows of analysis.findings have in common, whichever method speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from diagnosis.topology import Device
from streams.identity import identity


def cleared(job: str, method: str, what: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The row that ends what a method said: of one run, or (without ``first_iteration``) of everything; with ``ranks``
    only what it said of these, with the ``cause`` of a hang only what it said of hangs. ``what`` makes its id, beside
    the iteration that ended it.
    """
    return {
        "id": identity(job, method, what, columns["iteration"]),
        "method": method,
        "active": False,
        "ranks": [],
        "candidates": [],
        "devices": [],
        "waits": [],
        **columns,
    }


def device_rows(devices: Iterable[Device]) -> list[dict[str, Any]]:
    """The column ``devices``."""
    return [{"device": device.device, "kind": device.kind, "downside_nics": device.downside_nics} for device in devices]


def shared_evidence(share: float, coverage: float, devices: int) -> dict[str, Any]:
    """The evidence of a method that has no series of durations, which would say how much of the iteration is due to a
    device: one of these is at fault, as far as was seen.
    """
    return {"share": share, "irregularity_rate": share * coverage / devices if devices else None}
