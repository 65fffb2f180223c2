"""Rankings of devices by all findings of a run (Holmes 4.4, D), as ``device_ranking`` makes them in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from benchmarks.simulated.rankings import ALL_PLACES
from diagnosis.ranking.devices import Implication, RankingSettings, rank

WHOLE = "prior and decay"
"""The ranking as it is by default; a place is one set of devices that carry identical traffic, and of sets with equal
evidence all take the last place."""

SETS = "ambiguity sets"
"""Places as the ranking tells them: what nothing in the evidence tells apart shares one, however many it is."""

VARIANTS: Mapping[str, RankingSettings] = {
    WHOLE: ALL_PLACES,
    "without prior": RankingSettings(top=0, prior=False),
    "without decay": RankingSettings(top=0, decay=False),
    "without both": RankingSettings(top=0, prior=False, decay=False),
    "decay by all NICs": RankingSettings(top=0, coverage=False),
}
"""The rankings that are compared."""


class SetPlace(NamedTuple):
    """The place of an ambiguity set, and how many devices it has."""

    place: int
    devices: int


def shared_place(devices: Collection[str], scores: Mapping[str, float]) -> int | None:
    """The best place of some devices where equal scores share one; None: nothing speaks against any of them."""
    own = max((scores.get(device, 0.0) for device in devices), default=0.0)
    return 1 + len({score for score in scores.values() if score > own}) if own > 0 else None


def place_of_set(devices: Collection[str], evidence: Iterable[Implication]) -> SetPlace | None:
    """Where the ranking puts the best of some devices, with what it cannot tell from it; None: none is implicated."""
    ranked = [r for r in rank(evidence, ALL_PLACES) if r.device in devices and r.irregularity_rate > 0]
    best = min(ranked, key=lambda device: device.place, default=None)
    return None if best is None else SetPlace(best.place, len(best.ambiguity_set))
