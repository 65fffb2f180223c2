"""Which runs Pulse's accuracy is made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.traffic.plan import HEALTHY, Case, cases
from producers.simulation.nic import Class, Hardware

FIRST = 30_000


def test_where_all_send_to_one_or_one_to_all_faults_fall_on_all_others_alike() -> None:
    for what in ("all_to_one/pcie_downgrade/0.7", "one_to_all/congestion/0.5"):
        (faults,) = zip(*(Case(seed, what, "default").scenario().faults for seed in range(600)), strict=True)
        times = Counter(fault.peer if fault.peer is not None else fault.rank for fault in faults)
        assert set(times) == {1, 2, 3}
        assert max(times.values()) < 1.3 * min(times.values())


def test_every_combination_comes_as_often_and_more_runs_leave_the_others_as_they_are() -> None:
    some = cases(2, 40, ("default",), FIRST)
    many = cases(5, 51, ("default",), FIRST)
    assert set(some) < set(many)
    assert len({case.seed for case in many}) == len(many)
    times = Counter(case.what for case in many if case.combination is not None)
    assert len(times) == 67
    assert set(times.values()) == {5}
    assert sum(case.what.startswith(HEALTHY) for case in many) == 56


def test_more_noise_comes_in_the_first_repeat_of_the_same_jobs_and_faults() -> None:
    both = cases(5, 51, ("default", "hard"), FIRST)
    default, hard = ({(case.seed, case.what) for case in both if case.noise == noise} for noise in ("default", "hard"))
    assert len(both) == len(default) + len(hard)
    assert {(case.seed, case.what) for case in cases(5, 51, ("hard",), FIRST)} == default > hard
    assert Counter(what for _, what in hard if not what.startswith(HEALTHY)).most_common(1)[0][1] == 1
    assert {what for _, what in hard} == {what for _, what in default}


@pytest.mark.parametrize(
    ("only", "count"),
    [(Class.COMPUTATION_STOP, 5), (Class.COMMUNICATION_STOP, 4), ("neighbours/nic_down", 1), (HEALTHY, 4)],
)
def test_a_part_can_be_chosen_by_class_setup_and_injection(only: str, count: int) -> None:
    assert len(cases(1, 3, ("default",), FIRST, (only,))) == count


def test_the_table_has_as_many_combinations_of_each_class_as_the_paper() -> None:
    told = [case.scenario().faults[0] for case in cases(1, 0, ("default",), FIRST)[:58]]
    classes = Counter(fault.kind for fault in told)
    assert [classes[kind] for kind in Class] == [4, 14, 3, 37]


def test_untuned_settings_are_others_and_hang_on_the_seed_alone() -> None:
    tuned = Case(FIRST + 21, "gpt2_70b/pcie_downgrade/0.5", "default")
    one, again = (replace(tuned, untuned=True).scenario() for _ in range(2))
    assert one == again
    assert one.hardware.line_gbps != tuned.scenario().hardware.line_gbps == Hardware().line_gbps
    assert one.faults[0].rank == tuned.scenario().faults[0].rank
    assert 0.2 < one.faults[0].severity < 0.5
    slower = one.hardware.line_gbps < tuned.scenario().hardware.line_gbps
    assert (one.faults[0].at_s > tuned.scenario().faults[0].at_s) == slower, "as far into iterations that last longer"
