"""Lazily expanded jobs vary as recorded ones do; `pytest -s` prints the figures of both."""

from __future__ import annotations

import numpy as np
import pytest

from producers.simulation import LazyRun
from producers.simulation.large_scenarios import large_scenario
from producers.simulation.lazy_truth import LazyTruth
from producers.simulation.noise import PROFILES_LARGE
from producers.simulation.schedule import Scope

WARM = 5


@pytest.mark.parametrize(
    ("profile", "stated", "bounds"), [("default", "1-2 %", (0.009, 0.02)), ("hard", "5-7 %", (0.047, 0.073))]
)
def test_iterations_vary_as_stated(profile: str, stated: str, bounds: tuple[float, float]) -> None:
    cvs = []
    for seed, ranks in enumerate((256, 512)):
        run = LazyRun(large_scenario(seed, ranks=ranks, iterations=60, dimensions=3, noise=PROFILES_LARGE[profile]))
        lengths = LazyTruth(run).lengths[WARM:, 0]
        cvs.append(lengths.std() / lengths.mean())
    print(f"\niterations of healthy jobs, {profile}: CV {np.mean(cvs):.2%}, stated {stated}")
    assert bounds[0] < np.mean(cvs) < bounds[1]


@pytest.mark.parametrize("dimensions", [3, 6])
def test_identical_operators_vary_as_recorded_ones(dimensions: int) -> None:
    run = LazyRun(large_scenario(2, ranks=512, iterations=8, dimensions=dimensions))
    identical: dict[tuple[int, int], list[float]] = {}
    for f, family in enumerate(run.plan.families):
        for k, kind in enumerate(family.kinds):
            if len(kind.microbatch) > 1 and kind.stages == (1,):
                durations, _ = run.expand(6, f, k, 0, (0,))
                for i, operator in enumerate(kind.operators):
                    if operator.scope is Scope.TENSOR:
                        identical.setdefault((k, operator.size), []).extend(durations.transfers[i, :, 0, 0])
    series = [np.array(values) for values in identical.values() if len(values) > 200]
    core = [values[values < 2 * np.median(values)] for values in series]
    spread = float(np.median([values.std() / values.mean() for values in core]))
    beyond = float(np.mean(np.concatenate([values > 2 * np.median(values) for values in series])))
    print(
        f"\nidentical operators: CV {spread:.1%}, recorded 5-9 %; beyond twice the median {beyond:.2%}, recorded 0.4 %"
    )
    assert 0.05 < spread < 0.10
    assert 0.001 < beyond < 0.008
