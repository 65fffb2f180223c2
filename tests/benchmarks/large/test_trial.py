"""A run that is expanded lazily, from its telemetry to its score."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.large.baselines import SIGMA, TRADITIONAL, WALK
from benchmarks.large.rankings import SETS, VARIANTS
from benchmarks.large.trial import Alone, LargeScore, judged
from benchmarks.large.volume import operators_an_iteration, volume
from benchmarks.simulated.finished import Finished
from benchmarks.telemetry_bytes import TelemetryBytes
from offbeat.settings import Settings
from producers.simulated_store import simulated_agents
from producers.simulation import LazyLog
from tests.benchmarks.large.runs import CASE, SCORE, slow_nic


@pytest.fixture(scope="module")
def score() -> LargeScore:
    return judged(CASE, slow_nic(), Settings(), 1.0)


def test_the_slow_nic_is_named_and_ranked_first(score: LargeScore) -> None:
    [fault] = score.faults
    assert set(fault.inseparable) == {"nic:h2/mlx5_5", "link:h2/mlx5_5"}
    assert (fault.weight, fault.outcome, fault.cause_right) == ("required", "named", True)
    assert fault.places["prior and decay"] == fault.places[SETS] == 1
    assert score.set_sizes == (2,)
    assert [said.verdict for said in score.said] == ["right"]
    assert score.alone == Alone(2, 2)
    assert (score.iterations.missed, score.iterations.false) == (0, 0)


def test_simpler_methods_are_ranked_beside(score: LargeScore) -> None:
    places = score.faults[0].places
    assert set(places) == {SETS, *VARIANTS, SIGMA, WALK, TRADITIONAL}
    assert all(places[name] is not None for name in (SIGMA, WALK, TRADITIONAL))
    assert score.cost.traditional_s is not None


def test_simulation_is_no_part_of_diagnosis(score: LargeScore) -> None:
    assert score.cost.simulate_s > 1.0
    assert score.detect_s > 0
    assert len(score.cost.fetched_rows) == score.searched > 0
    assert min(score.cost.fetched_rows) > 0


def test_a_score_survives_its_file(score: LargeScore, tmp_path: Path) -> None:
    file = tmp_path / "finished.jsonl"
    Finished(file, "1", LargeScore).add(score)
    Finished(file, "1", LargeScore).add(SCORE)
    again = Finished(file, "1", LargeScore)
    assert again.scores == {CASE: SCORE}, "the same run, done again"


def test_a_few_hosts_tell_how_much_all_ranks_log() -> None:
    log = LazyLog(slow_nic())
    counted = TelemetryBytes()
    for agent in simulated_agents(log, log.run.job.ranks, hosts_an_agent=1):
        for _ in range(2):
            for message in agent.advance() or ():
                counted.process(message)
    told, iterations = volume(log), CASE.iterations
    assert told.everything * 2 / iterations == pytest.approx(counted.unasked, rel=0.05)
    assert told.summaries * 2 / iterations == pytest.approx(counted.summaries, rel=0.05)
    assert operators_an_iteration(log) == sum(len(log.run.operators(rank, 0)) for rank in log.run.job.ranks)
