"""How many operators a run has is told from its scenario alone, and too many are refused."""

from dataclasses import replace
from itertools import product

import pytest

from producers.simulation import Scenario, simulate
from producers.simulation.extent import MOST_OPERATORS, most_operators, require_extent
from producers.simulation.schedule import programs
from schemas.errors import SettingsError

DEGREES = list(product((1, 2), (1, 3), (1, 2), (1, 4), (False, True), (False, True), (1, 5)))


@pytest.mark.parametrize(("tp", "pp", "cp", "dp", "experts", "sequence_parallel", "microbatches"), DEGREES)
def test_the_estimate_is_that_of_the_programs(
    *, tp: int, pp: int, cp: int, dp: int, experts: bool, sequence_parallel: bool, microbatches: int
) -> None:
    if tp * pp * cp * dp == 1:
        return
    for fold, sharded in product((False, True) if experts else (False,), (False, True)):
        scenario = Scenario(
            seed=0,
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            ep=(tp * cp * dp if fold else dp) if experts else 1,
            fold_experts=fold,
            sequence_parallel=sequence_parallel,
            distributed_optimizer=sharded,
            microbatches=microbatches,
            layers=7,
            iterations=3,
        )
        there_are = sum(len(program.operators) for program in programs(scenario)) * scenario.world // pp * 3
        over = most_operators(scenario) - there_are
        assert 0 <= over <= 4 * scenario.world * scenario.iterations


@pytest.mark.parametrize("more", ["dp", "iterations", "microbatches", "layers", "hidden"])
def test_too_many_are_refused_before_anything_is_simulated(more: str) -> None:
    scenario = replace(Scenario(seed=0), **{more: 10**12})  # type: ignore[arg-type]  # all of them are whole numbers
    with pytest.raises(SettingsError, match=f"are more than the {MOST_OPERATORS} that can be simulated whole; give"):
        simulate(scenario)


def test_jobs_of_the_usual_size_are_not_refused() -> None:
    require_extent(Scenario(seed=0, tp=8, pp=4, dp=4, iterations=200))
