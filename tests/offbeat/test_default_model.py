"""The model that ships."""

from dataclasses import replace

import numpy as np
import pytest

from diagnosis.irregularity.forest import ForestDetector
from diagnosis.operator_graph.locate import LocateSettings, locate
from offbeat import models, wiring
from offbeat.settings import Settings
from producers.simulation import SimulatedRun
from schemas.errors import ModelError
from tests.diagnosis.answering import answered
from tests.diagnosis.irregularity.drawn_samples import drawn
from tests.diagnosis.operator_graph import small_jobs


def test_the_model_that_ships_is_small_and_says_what_it_is() -> None:
    assert models.default_path().stat().st_size < 1 << 20
    shipped = models.load("default")
    assert "simulated runs of many jobs" in shipped.source
    assert shipped.figures["f1"] > 0.85
    assert shipped.figures["held_out"]["runs"] >= 10
    samples, abnormal = drawn()
    assert (shipped.detector.predict(samples) == abnormal).mean() > 0.95


@pytest.mark.parametrize(("rank", "named"), [(3, {3}), (4, {4}), (6, {6, 7})])
def test_algorithm_1_names_who_computes_slowly_by_the_model_that_ships(rank: int, named: set[int]) -> None:
    """Each of the many waits within a tensor group is too short to be abnormal: its members are not told apart always.

    With statistics of the baseline in place of its rows, as it is set by default, or with these.
    """
    run = small_jobs.run(small_jobs.gpu_slow(rank))
    irregularity = replace(small_jobs.irregularity(run, 15), expected_ns=_usual_ns(run))
    detector = models.load("default").detector
    by_statistics, by_rows = (
        small_jobs.named(answered(locate(run.job, irregularity, settings, detector), run.table)[0])
        for settings in (LocateSettings(search="algorithm_1"), LocateSettings(search="algorithm_1", usual_from="rows"))
    )
    assert by_statistics == by_rows
    assert {cause for cause, _, _ in by_rows} == {"compute_slow"}
    assert {rank for _, _, ranks in by_rows for rank in ranks} <= named


def _usual_ns(run: SimulatedRun) -> int:
    return int(np.mean([run.truth.durations_ns[i] for i in small_jobs.BASELINE]))


def test_a_model_is_wired_into_the_search() -> None:
    chosen = Settings.load(model="default", search={"locate": {"search": "algorithm_1"}})
    assert isinstance(wiring.trained_detector(chosen), ForestDetector)
    assert wiring.trained_detector(Settings.load()) is None
    with pytest.raises(ModelError, match="No such file"):
        wiring.trained_detector(chosen.model_copy(update={"model": "/no/such.skops"}))
