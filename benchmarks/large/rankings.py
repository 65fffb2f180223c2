"""Devices ranked by all findings of a run (Holmes 4.4, D), as ``device_ranking`` does in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.simulated.detection import Row
from diagnosis.ranking.devices import Implication, RankingSettings, rank
from diagnosis.ranking.irregularity_rate import rate_told
from diagnosis.topology import Device

WHOLE = "prior and decay"
"""The ranking as it is by default."""

VARIANTS: Mapping[str, RankingSettings] = {
    WHOLE: RankingSettings(top=0),
    "without prior": RankingSettings(top=0, prior=False),
    "without decay": RankingSettings(top=0, decay=False),
    "without both": RankingSettings(top=0, prior=False, decay=False),
    "decay by all NICs": RankingSettings(top=0, coverage=False),
}
"""The rankings that are compared."""


def implications(findings: Iterable[Row]) -> list[Implication]:
    """What findings implicate; those that name nobody, and those that end something, implicate nothing."""
    told = []
    for row in findings:
        if row["active"] and row["ranks"]:
            evidence = row["evidence"] or {}
            series = evidence.get("operator_ns") or (), evidence.get("iteration_ns") or ()
            rate = rate_told(*series, evidence.get("irregularity_rate"))
            told.append(Implication(rate, tuple(Device(**device) for device in row["devices"])))
    return told


def scores(evidence: Iterable[Implication], settings: RankingSettings) -> dict[str, float]:
    """The score of each device; 0 for one that nothing but its prior speaks against."""
    ranked = rank(evidence, settings)
    return {device.device: device.score if device.irregularity_rate > 0 else 0.0 for device in ranked}
