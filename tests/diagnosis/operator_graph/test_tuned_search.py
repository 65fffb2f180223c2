"""Algorithm 1 with a forest that looks at nanoseconds, in a job that has drifted since it learned."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.features import AS_PUBLISHED, SCALE_FREE
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.tuning import is_tunable
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.job import pivots
from diagnosis.operator_graph.locate import LocateSettings, locate
from diagnosis.operators import Operators
from offbeat import training
from tests.diagnosis.answering import answered
from tests.diagnosis.operator_graph import small_jobs

SLOW = 3


@cache
def learned(features: tuple[str, ...]) -> ForestDetector:
    """A forest that knows the job as it is now."""
    runs = [
        training.labelled_run(training.LabelledLog.of(small_jobs.run(small_jobs.gpu_slow(rank))))
        for rank in (1, SLOW, 6)
    ]
    forest = training.fitted(runs, ForestDetector(ForestSettings(features=features)))
    assert isinstance(forest, ForestDetector)
    return replace(forest, levels=levels_now())


def levels_now() -> Levels:
    """What the pivots' operators last in the iterations that the search compares with."""
    run = small_jobs.run(small_jobs.gpu_slow(SLOW))
    operators = Operators.from_arrow(run.table)
    those = np.isin(operators.rank, pivots(run.job)) & np.isin(operators.iteration, small_jobs.BASELINE)
    past = operators.take(those)
    usual = WindowStatistics.of_operators(past, (past.end_ns - past.call_ns).astype(float))
    return Levels.of_usual(usual, usual_ns())


def usual_ns() -> int:
    durations = small_jobs.run(small_jobs.gpu_slow(SLOW)).truth.durations_ns
    return int(np.mean([durations[i] for i in small_jobs.BASELINE]))


def of_before(forest: ForestDetector) -> ForestDetector:
    """The forest as it would have been when everything took far longer."""
    assert forest.levels is not None
    then = {key: 50 * value for key, value in forest.levels.mean.items()}
    return forest.tuned(replace(forest.levels, mean=then))


UsualFrom = Literal["statistics", "rows"]


def named_by(
    forest: ForestDetector,
    usual_from: UsualFrom,
    tuning: Literal["mean", "p75", "p99", "none"] = "mean",
    missing: tuple[int, ...] = (),
    unheard: int | None = None,
) -> set[tuple[str, str, tuple[int, ...]]]:
    run = small_jobs.run(small_jobs.gpu_slow(SLOW))
    starts = [pivot for pivot in pivots(run.job) if pivot != unheard]
    irregularity = replace(small_jobs.irregularity(run, 15, starts), expected_ns=usual_ns())
    settings = LocateSettings(search="algorithm_1", usual_from=usual_from, tuning=tuning)
    return small_jobs.named(answered(locate(run.job, irregularity, settings, forest), run.table, missing)[0])


@pytest.mark.parametrize("usual_from", ["statistics", "rows"])
def test_a_forest_that_learned_before_the_drift_is_tuned_as_it_searches(usual_from: UsualFrom) -> None:
    forest = learned(AS_PUBLISHED)
    told = named_by(forest, usual_from)
    assert any(SLOW in ranks for _, _, ranks in told)
    assert named_by(of_before(forest), usual_from) == told
    assert named_by(replace(of_before(forest), levels=None), usual_from) != told
    assert named_by(of_before(forest), usual_from, "none") != told


def test_what_some_of_the_pivots_last_is_no_drift_of_the_job() -> None:
    forest = of_before(learned(AS_PUBLISHED))
    [silent, *_] = (pivot for pivot in pivots(small_jobs.run(small_jobs.gpu_slow(SLOW)).job) if pivot != SLOW)
    told = named_by(forest, "statistics", missing=(silent,))
    assert told == named_by(forest, "statistics", "none", missing=(silent,))
    assert told != named_by(forest, "statistics")
    unheard = named_by(forest, "statistics", unheard=silent)  # it told nothing of the iteration
    assert unheard == named_by(forest, "statistics", "none", unheard=silent)
    assert forest.levels is not None
    of_any = replace(forest, levels=replace(forest.levels, ranks=()))
    assert unheard != named_by(of_any, "statistics", unheard=silent)


@pytest.mark.parametrize("statistic", ["mean", "p75", "p99"])
def test_it_is_tuned_by_the_statistic_that_is_set(statistic: Literal["mean", "p75", "p99"]) -> None:
    forest = learned(AS_PUBLISHED)
    assert forest.levels is not None
    then: dict[str, Any] = {statistic: {name: 50 * ns for name, ns in getattr(forest.levels, statistic).items()}}
    before = forest.tuned(replace(forest.levels, **then), statistic)
    assert named_by(before, "statistics", statistic) == named_by(forest, "statistics", "none")


def test_what_looks_at_no_nanoseconds_or_knows_no_levels_is_never_tuned() -> None:
    assert is_tunable(learned(AS_PUBLISHED))
    assert not is_tunable(replace(learned(AS_PUBLISHED), levels=None))
    assert not is_tunable(learned(SCALE_FREE))
