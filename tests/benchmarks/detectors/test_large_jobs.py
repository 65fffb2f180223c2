"""Labelled operators of jobs of thousands of ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.detectors import large_jobs
from benchmarks.detectors.large_jobs import FIRST_FAULTY, labelled, periods
from diagnosis.irregularity.features import IN_NS
from diagnosis.job import pivots
from producers.simulation import LazyLog, LazyRun, Pattern
from tests.benchmarks.detectors.jobs import period


def test_ages_of_a_job_differ_in_noise_and_devices_alone() -> None:
    early, late = periods(3198, [3, 2], [0, 7], ranks=256)
    assert (len(early.faults), len(late.faults)) == (3, 2)
    assert (early.scenario.seed, late.scenario.seed) == (3198, 3198)
    assert (early.scenario.age_days, late.scenario.age_days) == (0, 7)
    assert replace(early.scenario, age_days=7, iterations=1) == replace(late.scenario, iterations=1)
    ranks = [fault.rank for one in (early, late) for fault in one.faults]
    assert len(set(ranks)) == len(ranks)
    for one in (early, late):
        assert one.scenario.world == 256
        assert not one.scenario.faults
        assert all(fault.pattern is Pattern.SPIKES for fault in one.faults)
        whiles = [i for fault in one.faults for i in fault.iterations]
        assert whiles == sorted(set(whiles))
        assert whiles[0] >= FIRST_FAULTY
        assert whiles[-1] < one.scenario.iterations + 2


def test_the_log_is_the_same_until_a_device_becomes_slow() -> None:
    asked = period()
    healthy, faulty = LazyLog(LazyRun(asked.scenario)), LazyLog(large_jobs.run_with(asked, asked.faults[0]))
    first = asked.faults[0].iterations[0]
    before = [log.rows([0, 3], range(first - 3, first))[0] for log in (healthy, faulty)]
    assert before[0].num_rows > 0
    assert before[0].equals(before[1])
    assert not healthy.rows([0], [first])[0].equals(faulty.rows([0], [first])[0])


def test_operators_of_irregular_iterations_bear_their_truth() -> None:
    asked = period(faults=2)
    told = labelled(asked)
    assert [[part.iteration for part in parts] for parts in told.of_faults] == [
        list(fault.iterations) for fault in asked.faults
    ]
    world = LazyRun(asked.scenario)
    judged = len(pivots(world.job)) + large_jobs.OTHER_RANKS
    for part in (part for parts in told.of_faults for part in parts):
        operators = len(world.programs[0].operators)
        assert 0.9 * operators * judged < len(part.samples) < 1.3 * operators * (judged + 1)
        assert len(part.abnormal) == len(part.samples)
        assert part.abnormal.any()
        assert part.samples.count.max() == large_jobs.MONITOR.window
        share = (part.samples.duration_ns - part.samples.mean) / (
            part.samples.iteration_ns - part.samples.usual_iteration_ns
        )
        assert np.nanmin(share[part.abnormal]) > 0.03
        assert np.nanmedian(share[~part.abnormal]) < 0.02


def test_levels_are_those_of_the_age() -> None:
    now, then = labelled(period(28, 1)).levels, labelled(period(0, 1)).levels
    assert set(now.mean) == set(IN_NS)
    assert 1.03 < now.mean["iteration_mean"] / then.mean["iteration_mean"] < 1.1
