"""Which runs of thousands of ranks a figure is made of."""

from __future__ import annotations

from collections import Counter
from itertools import product

from benchmarks.large.plan import LargeCase, cases
from producers.simulation.faults import Kind, Pattern
from producers.simulation.large_scenarios import DIMENSIONS
from producers.simulation.scenarios import Story


def planned(faulty: int, healthy: int, *noises: str) -> list[LargeCase]:
    return cases(faulty, healthy, noises or ("default",), 20_000, ranks=2048, iterations=60)


def test_every_kind_comes_in_every_pattern_and_every_layout_once() -> None:
    drawn = Counter((case.kind, case.pattern, case.dimensions) for case in planned(63, 0))
    assert drawn == Counter((k.value, p.value, d) for k, p, d in product(Kind, Pattern, DIMENSIONS))
    assert {(case.kind, case.pattern) for case in planned(21, 0)} == {(k, p) for k, p, _ in drawn}


def test_more_runs_leave_the_others_as_they_are_and_seeds_are_used_once() -> None:
    few, many = planned(4, 2), planned(30, 30, "default", "hard")
    assert set(few) < set(many)
    assert [case.seed for case in few] == [20_000, 20_001, 20_002, 20_003, 20_004, 20_006]
    assert len(set(many)) == 120


def test_half_of_the_healthy_jobs_are_mixtures_of_experts() -> None:
    healthy = [case.scenario() for case in planned(0, 4)]
    assert [scenario.ep > 1 for scenario in healthy] == [False, True, False, True]
    assert not any(scenario.faults for scenario in healthy)


def test_a_case_gets_the_fault_that_it_asks_for() -> None:
    for case in planned(7, 0):
        scenario = case.scenario()
        [fault] = scenario.faults
        assert (scenario.world, scenario.iterations, case.story) == (2048, 60, Story.ONE)
        assert (fault.kind, fault.pattern) == (case.kind, case.pattern)
