"""The benchmark of detectors: small runs, through all of it."""

from __future__ import annotations

import json

import pytest

from benchmarks.detectors import comparison, drifting, figures, large_jobs, large_trial, small_jobs, speed
from offbeat.training import Counts
from producers.simulation import Scenario
from producers.simulation.noise import PROFILES, PROFILES_LARGE, NoiseProfile
from tests.benchmarks.detectors.jobs import period
from tests.offbeat.command_line import EXAMPLE, offbeat

FEW = ("forest, gini", "3 sigma")


@pytest.fixture
def few_detectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "DETECTORS", {name: comparison.DETECTORS[name] for name in FEW})


def test_figures_are_of_all_jobs_and_of_each() -> None:
    said = figures.figures([Counts(8, 1, 1), Counts(2, 1, 1), Counts()])
    assert said["f1"] == pytest.approx(20 / 24, abs=1e-4)
    low, high = said["interval_95"]
    assert 0.6 < low < said["f1"] < high < 0.96
    assert said["f1_of_jobs"] == [0.889, 0.667, 0.0]
    assert figures.figures([])["interval_95"] == [0.0, 1.0]


def test_runs_to_judge_are_others_than_those_to_learn_from() -> None:
    jobs = [small_jobs.small_job(7_000_000, at, 4) for at in range(2)]
    seeds = [scenario.seed for job in jobs for scenario in (job.scenario, *job.learned, *job.judged)]
    assert len(set(seeds)) == len(seeds) == 14
    assert [(len(job.learned), len(job.judged)) for job in jobs] == [(4, 2)] * 2


def test_judging_is_measured_beside_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "OPERATORS", 2000)
    monkeypatch.setattr(speed, "WINDOW_ITERATIONS", 10)
    monkeypatch.setattr(speed, "REPEATED", 3)
    said = speed.measured()
    assert said["largest_difference"] < 1e-12
    took = [value for name, value in said.items() if name.endswith("_ms")]
    assert all(0 < one["least"] <= one["median"] for one in took)
    assert any(one["least"] < one["median"] for one in took)


@pytest.mark.usefixtures("few_detectors")
def test_small_jobs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Scenario(1, tp=2, pp=2, dp=2, microbatches=4, layers=4, hidden=4096, iterations=24)
    monkeypatch.setattr(small_jobs, "job_of", lambda seeds, job, noise: small)
    said = comparison.told([small_jobs.compared_on(small_jobs.small_job(7_000_000, 0, 4))])
    of_forest, of_sigma = (said["by_detector"][name]["f1"] for name in FEW)
    assert of_forest > of_sigma
    assert said["by_detector"]["generic forest"]["f1"] > of_sigma
    assert said["jobs"] == ["tp=2,pp=2,cp=1,dp=2,ep=1"]
    assert said["iterations"]["judged"] * small_jobs.JUDGED >= said["operators_judged"] > said["of_these_abnormal"] > 0


def test_jobs_have_the_noise_that_is_asked_for() -> None:
    [large] = large_jobs.periods(3, [1], [0], 256, PROFILES_LARGE["hard"])
    assert large.scenario.noise == PROFILES_LARGE["hard"]
    small = small_jobs.small_job(7_000_000, 0, 2, PROFILES["hard"])
    assert [run.noise for run in (*small.learned, *small.judged)] == [PROFILES["hard"]] * 3


@pytest.mark.usefixtures("few_detectors")
def test_a_large_job_is_followed_and_recordings_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def periods(
        seed: int, faults: list[int], ages_days: list[int], ranks: int, noise: NoiseProfile
    ) -> list[large_jobs.Period]:
        asked.append(noise)
        return [period(age, count) for age, count in zip(ages_days, faults, strict=True)]

    asked: list[NoiseProfile] = []
    monkeypatch.setattr(large_trial, "periods", periods)
    for module in (large_trial, drifting):
        monkeypatch.setattr(module, "DAYS", (1, 28))
    monkeypatch.setattr(large_jobs, "OTHER_RANKS", 2)
    options = ("--jobs", 1, "--drifting", 1, "--faults", 2, "--small-jobs", 0, "--ranks", 64, "--processes", 1)
    result = offbeat(
        "bench", "detection", *options, "--seeds", 3199, "--noise", "hard", "--recordings", EXAMPLE, "--json"
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    large = said["large"]
    assert large["by_detector"]["forest, gini"]["f1"] > large["by_detector"]["3 sigma"]["f1"]
    drift = large["drift"]["f1"]
    assert set(drift["scale-free features"]) == set(drifting.TUNING)
    assert all(len(f1) == 2 for f1 in drift["the paper's features"].values())
    assert sum(large["importances"]["scale-free features"].values()) == pytest.approx(1, abs=1e-3)
    assert said["recordings"]["irregular_iterations"] == {EXAMPLE.name: 30}
    assert said["recordings"]["known_faults"]["by_detector"]["forest, gini"]["f1"] > 0.9
    assert said["recordings"]["other_faults"] == {}
    assert said["small"] is None
    assert (said["noise"], asked) == ("hard", [PROFILES_LARGE["hard"]])
    assert not said["seeds"]["reported"]
