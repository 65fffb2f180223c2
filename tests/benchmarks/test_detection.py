"""Figures of the detectors: small runs, through all of it."""

import pytest

from benchmarks import detection
from benchmarks.detectors import drifting, per_job, speed
from benchmarks.detectors.figures import figures
from offbeat.training import Counts
from producers.simulation import Scenario


def test_figures_are_of_all_jobs_and_of_each() -> None:
    said = figures([Counts(8, 1, 1), Counts(2, 1, 1), Counts()])
    assert said["f1"] == pytest.approx(20 / 24, abs=1e-4)
    low, high = said["interval_95"]
    assert 0.6 < low < said["f1"] < high < 0.96
    assert said["f1_of_jobs"] == [0.889, 0.667, 0.0]
    assert figures([])["interval_95"] == [0.0, 1.0]


def test_runs_to_judge_are_others_than_those_to_learn_from() -> None:
    tasks = per_job.runs_of(7_000_000, 0, 4) + per_job.runs_of(7_000_000, 1, 4) + drifting.weeks_of(7_000_000, 0, 4)
    seeds = [task.scenario.seed for task in tasks]
    assert len(set(seeds)) == len(seeds)
    assert [task.learn for task in tasks[:6]] == [True] * 4 + [False] * 2
    weeks = {task.week: task.scenario.compute_ms for task in tasks[12:]}
    assert weeks[4] / weeks[0] == pytest.approx(1 + drifting.DRIFT)


def test_judging_is_measured_beside_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "OPERATORS", 2000)
    monkeypatch.setattr(speed, "WINDOW_ITERATIONS", 10)
    monkeypatch.setattr(speed, "REPEATED", 1)
    said = speed.measured()
    assert said["largest_difference"] < 1e-12
    assert all(value > 0 for name, value in said.items() if name.endswith("_ms"))


def test_a_small_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_job, "ITERATIONS", 24)
    kept = ("forest, gini", "3 sigma")
    monkeypatch.setattr(per_job, "DETECTORS", {name: per_job.DETECTORS[name] for name in kept})
    small = Scenario(1, tp=2, pp=2, dp=2, microbatches=4, layers=4, hidden=4096, iterations=per_job.ITERATIONS)
    monkeypatch.setattr(per_job, "job_of", lambda seeds, job: small)
    said = detection.run(jobs=1, runs=4, drifting=0, seeds=7_000_000, processes=1)["detection"]
    of_forest, of_sigma = (said["by_detector"][name]["f1"] for name in kept)
    assert of_forest > of_sigma
    assert said["by_detector"]["generic forest"]["f1"] > of_sigma
