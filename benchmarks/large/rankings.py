"""Rankings of devices by all findings of a run (Holmes 4.4, D), as ``device_ranking`` makes them in SQL."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.simulated.rankings import ALL_PLACES
from diagnosis.ranking.devices import RankingSettings

WHOLE = "prior and decay"
"""The ranking as it is by default."""

VARIANTS: Mapping[str, RankingSettings] = {
    WHOLE: ALL_PLACES,
    "without prior": RankingSettings(top=0, prior=False),
    "without decay": RankingSettings(top=0, decay=False),
    "without both": RankingSettings(top=0, prior=False, decay=False),
    "decay by all NICs": RankingSettings(top=0, coverage=False),
}
"""The rankings that are compared."""
