"""Forests that are tuned while their job drifts: once in an interval, and at each search."""

from __future__ import annotations

from benchmarks.detectors.drifting import DAY_NS, EACH_SEARCH, TUNING
from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.tuning import TunedForest
from tests.diagnosis.irregularity.drawn_samples import drawn
from tests.diagnosis.irregularity.test_tuning import fitted


def test_a_search_does_not_wait_for_the_week_to_end() -> None:
    forest, tomorrow = fitted(), Levels.of(drawn(200, scale=1.05)[0])
    levels = {how: TunedForest(forest, 0, settings).at(DAY_NS, tomorrow).levels for how, settings in TUNING.items()}
    assert {how for how, of in levels.items() if of == tomorrow} == {EACH_SEARCH}
