"""Random scenarios: varied, fair, and each a function of its seed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from producers.simulation import HARD, Kind, Part, Pattern, Scenario, simulate
from producers.simulation.scenarios import FEWEST_ITERATIONS, FIRST_FAULTY, Story, random_scenario
from schemas.errors import SettingsError


@cache
def many() -> list[Scenario]:
    return [random_scenario(seed, Story.ONE) for seed in range(400)]


def share(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def test_a_scenario_is_a_function_of_its_seed() -> None:
    assert [random_scenario(seed, Story.ONE) for seed in range(20)] == many()[:20]
    assert len({scenario.faults for scenario in many()}) == len(many())


def test_faults_are_placed_fairly() -> None:
    faults = [scenario.faults[0] for scenario in many()]
    relative = [f.rank / s.world for f, s in zip(faults, many(), strict=True)]
    assert np.histogram(relative, 4, (0, 1))[0] == pytest.approx([100] * 4, abs=40)
    assert share([f.kind is Kind.GPU_SLOW for f in faults]) == pytest.approx(0.5, abs=0.1)
    assert share([f.pattern is Pattern.PERSISTENT for f in faults]) == pytest.approx(0.5, abs=0.1)
    gpus = [f for f in faults if f.kind is Kind.GPU_SLOW]
    for part in Part:
        assert share([f.part is part for f in gpus]) == pytest.approx(1 / 3, abs=0.1)
    sizes = np.log([f.slowdown or 0 for f in faults]) / np.log(2.0)
    assert 0.13 < sizes.min() < 0.2
    assert np.median(sizes) == pytest.approx((np.log(1.1) / np.log(2.0) + 1) / 2, abs=0.08)
    starts = [f.iterations[0] for f in faults if f.pattern is Pattern.PERSISTENT]
    assert min(starts) >= FIRST_FAULTY
    assert len(set(starts)) > 30
    ends = [f.iterations[-1] == 59 for f in faults if f.pattern is Pattern.PERSISTENT]
    assert 0.4 < share(ends) < 0.75


def test_jobs_differ() -> None:
    assert {s.world for s in many()} == {32, 64, 128}
    assert len({(s.tp, s.pp, s.dp) for s in many()}) > 15
    assert share([s.omissions.labels for s in many()]) == pytest.approx(1 / 3, abs=0.1)
    assert share([s.omissions.ends for s in many()]) == pytest.approx(1 / 3, abs=0.1)
    assert share([s.ep > 1 for s in many()]) == pytest.approx(1 / 2, abs=0.1)
    assert share([len(set(s.layers_of_stage)) > 1 for s in many()]) > 0.5


def test_what_is_given_is_kept() -> None:
    scenario = random_scenario(1, Story.HEALTHY, noise=HARD, iterations=30, ranks=16, experts=False)
    assert (scenario.noise, scenario.iterations, scenario.world, scenario.ep) == (HARD, 30, 16, 1)
    assert scenario.faults == ()


def test_several_faults_are_on_several_ranks() -> None:
    scenarios = [random_scenario(seed, Story.SEVERAL) for seed in range(50)]
    assert {len(s.faults) for s in scenarios} == {2, 3}
    assert all(len({f.rank for f in s.faults}) == len(s.faults) for s in scenarios)


@pytest.mark.parametrize("seed", range(4))
def test_bubbles_absorb_what_they_shall(seed: int) -> None:
    scenario = random_scenario(seed, Story.ABSORBED, ranks=16, iterations=30)
    truth = simulate(scenario).truth
    assert truth.positives == ()
    assert len(truth.absorbed) >= len(scenario.faults[0].iterations) / 2
    assert truth.faults[0].factor > 1


@pytest.mark.parametrize("seed", range(4))
def test_faults_act_as_drawn(seed: int) -> None:
    scenario = random_scenario(seed, Story.ONE, ranks=16, iterations=30)
    truth = simulate(scenario).truth
    assert np.median(truth.faults[0].slowdowns) == pytest.approx(scenario.faults[0].slowdown, rel=0.05)


def test_iterations_that_leave_no_room_for_a_fault_are_refused() -> None:
    for iterations in (1, 12, 17, FEWEST_ITERATIONS - 1):
        for story in set(Story) - {Story.HEALTHY}:
            with pytest.raises(SettingsError, match=f"^{iterations} iterations leave no room .*; give 20 or more$"):
                random_scenario(1, story, iterations=iterations)
    assert random_scenario(1, Story.HEALTHY, iterations=1).iterations == 1
    for seed in range(100):
        for fault in random_scenario(seed, Story.SEVERAL, iterations=FEWEST_ITERATIONS).faults:
            assert max(fault.iterations) < FEWEST_ITERATIONS
