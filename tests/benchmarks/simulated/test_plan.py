"""Which runs a figure is made of."""

from __future__ import annotations

from benchmarks.simulated.plan import FROM_THE_BEGINNING, cases
from producers.simulation.scenarios import Story


def test_more_runs_leave_the_others_as_they_are() -> None:
    few, many = cases(5, 2, ["default"], 100), cases(20, 10, ["default", "hard"], 100)
    assert set(few) < set(many)
    assert len(set(many)) == 60


def test_profiles_of_noise_meet_the_same_jobs_and_faults() -> None:
    for default, hard in zip(*[iter(cases(5, 5, ["default", "hard"], 7))] * 2, strict=True):
        assert (default.noise, hard.noise) == ("default", "hard")
        one, other = default.scenario(), hard.scenario()
        assert one.faults == other.faults
        assert (one.world, one.pp, one.omissions) == (other.world, other.pp, other.omissions)


def test_seeds_begin_where_they_are_told_to_and_are_used_once() -> None:
    seeds = [case.seed for case in cases(10, 10, ["default"], 5000)]
    assert seeds == list(range(5000, 5020))


def test_healthy_runs_have_no_fault_and_the_others_all_stories() -> None:
    planned = cases(5, 5, ["default"], 0)
    assert {case.story for case in planned} == set(Story) - {Story.BEGINNING}
    assert all((case.story == Story.HEALTHY) == (not case.scenario().faults) for case in planned)


def test_what_is_slow_from_the_beginning_is_so_to_the_end() -> None:
    for case in cases(3, 0, ["default"], 0, FROM_THE_BEGINNING):
        scenario = case.scenario()
        assert [fault.iterations for fault in scenario.faults] == [tuple(range(scenario.iterations))]
