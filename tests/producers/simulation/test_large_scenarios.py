"""Random jobs of thousands of ranks: as large as they should be, fair, and each a function of its seed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from diagnosis.columns import integers
from diagnosis.iterations import infer_iterations
from producers.simulation import HARD, Kind, LazyLog, LazyRun, Pattern, Scenario
from producers.simulation.large_scenarios import FLUCTUATIONS, OPERATORS, Trouble, large_scenario
from producers.simulation.lazy_truth import LazyTruth
from producers.simulation.schedule import programs
from producers.simulation.truth import Truth
from schemas.errors import SettingsError


@cache
def many() -> list[Scenario]:
    return [large_scenario(seed, (Trouble(),), ranks=2048) for seed in range(40)]


def truth_of(scenario: Scenario) -> Truth:
    return LazyTruth(LazyRun(scenario)).whole()


def test_a_scenario_is_a_function_of_its_seed() -> None:
    assert [large_scenario(seed, (Trouble(),), ranks=2048) for seed in range(5)] == many()[:5]
    healthy = large_scenario(3, ranks=2048)
    assert replace(many()[3], faults=()) == healthy


def test_ranks_log_thousands_of_operators() -> None:
    for scenario in many()[:2]:
        counts = {len(program.operators) for program in programs(scenario)}
        assert OPERATORS[0] * 0.9 <= min(counts) <= max(counts) <= OPERATORS[1]


def test_jobs_differ() -> None:
    assert {scenario.world for scenario in many()} == {2048}
    assert 0.3 < np.mean([scenario.ep > 1 for scenario in many()]) < 0.7
    assert len({(s.tp, s.pp, s.cp, s.dp, s.ep) for s in many()}) > 12
    assert 0.15 < np.mean([s.omissions.labels for s in many()]) < 0.5
    assert {scenario.faults[0].kind for scenario in many()} == set(Kind)
    assert {scenario.faults[0].pattern for scenario in many()} == set(Pattern)


@pytest.mark.parametrize("dimensions", [3, 4, 6])
def test_what_agents_number_is_found_where_rows_carry_no_iteration(dimensions: int) -> None:
    """A lazy log numbers iterations in any case, as an agent does that sees all of its ranks' rows."""
    log = LazyLog(LazyRun(large_scenario(11, ranks=1024, iterations=12, dimensions=dimensions, noise=HARD)))
    rows, lacking = log.rows([700], range(12))
    assert lacking, "no line is lost"
    found = infer_iterations(rows.drop_columns(["iteration", "position", "call_order", "phase", "microbatch"]))
    np.testing.assert_array_equal(found, integers(rows, "iteration"))


@pytest.mark.parametrize("dimensions", [3, 4, 6])
def test_dimensions_are_kept(dimensions: int) -> None:
    for seed in range(4):
        s = large_scenario(seed, ranks=1024, dimensions=dimensions)
        assert (s.cp > 1, s.ep > 1, s.sequence_parallel) == (dimensions == 6, dimensions > 3, dimensions == 6)


@pytest.mark.parametrize("pattern", Pattern)
@pytest.mark.parametrize("kind", Kind)
def test_what_is_asked_for_is_drawn(kind: Kind, pattern: Pattern) -> None:
    scenario = large_scenario(7, (Trouble(kind, pattern),), ranks=1024, noise=HARD)
    [fault] = scenario.faults
    assert (fault.kind, fault.pattern, scenario.noise) == (kind, pattern, HARD)
    assert fault.slowdown is not None
    low, high = FLUCTUATIONS if pattern is Pattern.FLUCTUATION else (1.1, 2.0)
    assert low <= fault.slowdown <= high


@pytest.mark.parametrize("kind", [Kind.CPU_SLOW, Kind.NVLINK_SLOW, Kind.TOR_SLOW, Kind.SPINE_SLOW])
def test_faults_act_as_drawn(kind: Kind) -> None:
    scenario = large_scenario(7, (Trouble(kind, Pattern.PERSISTENT),), ranks=256, iterations=30)
    truth = truth_of(scenario)
    assert np.median(truth.faults[0].slowdowns) == pytest.approx(scenario.faults[0].slowdown, rel=0.06)
    assert truth.faults[0].factor > 1
    assert set(truth.positives) <= {*scenario.faults[0].iterations, scenario.faults[0].iterations[-1] + 1}


def test_bubbles_absorb_what_they_shall() -> None:
    scenario = large_scenario(2, (Trouble(pattern=Pattern.PERSISTENT, absorbed=True),), ranks=256, iterations=30)
    truth = truth_of(scenario)
    assert truth.positives == ()
    assert truth.faults[0].factor > 1


def test_several_faults_each_have_their_own_truth() -> None:
    troubles = (Trouble(Kind.GPU_SLOW, Pattern.PERSISTENT), Trouble(Kind.NIC_SLOW, Pattern.PERSISTENT))
    truth = truth_of(large_scenario(5, troubles, ranks=256, iterations=30))
    assert [fault.kind for fault in truth.faults] == ["gpu_slow", "nic_slow"]
    assert all(np.median(fault.slowdowns) > 1.05 for fault in truth.faults)
    assert max(truth.slowdowns) > max(max(fault.slowdowns) for fault in truth.faults) * 0.99


@pytest.mark.parametrize(("ranks", "iterations"), [(100, 100), (1024, 14)])
def test_what_cannot_be(ranks: int, iterations: int) -> None:
    with pytest.raises(SettingsError, match="give"):
        large_scenario(1, (Trouble(pattern=Pattern.PERSISTENT),), ranks=ranks, iterations=iterations)


def test_a_month_drifts() -> None:
    """The same job, a month on: 5.9 to 7.0 % slower, with other noise."""
    young = large_scenario(4, ranks=256, iterations=40)
    lengths = [LazyTruth(LazyRun(replace(young, age_days=days))).lengths[6:, 0] for days in (0, 30)]
    assert 1.04 < np.mean(lengths[1]) / np.mean(lengths[0]) < 1.09
    assert not np.allclose(lengths[0] / lengths[0].mean(), lengths[1] / lengths[1].mean(), rtol=0.005)
