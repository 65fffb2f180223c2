"""`offbeat train` from beginning to end, and diagnosing with the model that it made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from diagnosis.irregularity.drift import Levels, Statistic
from diagnosis.irregularity.features import AS_PUBLISHED
from diagnosis.irregularity.forest import ForestDetector
from offbeat import models
from offbeat.commands import train
from producers.simulation import Fault, Kind, Scenario, scenarios, simulate, write
from tests.offbeat.command_line import offbeat, refusal
from tests.offbeat.model_files import of_other_features

JOB = "tp=2,pp=2,dp=2,microbatches=4,layers=4,hidden=4096,iterations=24"
RUNS = 5
FAULTY = tuple(range(14, 20))


@pytest.fixture(scope="module")
def of_a_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a simulated job that looks at what the paper's does."""
    path = tmp_path_factory.mktemp("model") / "job.skops"
    options = ("--scenario", JOB, "--runs", RUNS, "--features", "published", "--criterion", "entropy")
    made = offbeat("train", "--simulated", *options, "--out", path, "--json")
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert told["source"] == f"{RUNS} simulated runs of a job of 8 ranks"
    assert (told["learned_from"]["runs"], told["held_out"]["runs"]) == (RUNS - 1, 1)
    assert told["f1"] > 0.5
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job on another day, with a slow GPU."""
    folder = tmp_path_factory.mktemp("recording")
    slow = Fault(Kind.GPU_SLOW, 5, FAULTY, slowdown=1.6)
    job = Scenario(9, tp=2, pp=2, dp=2, microbatches=4, layers=4, hidden=4096, iterations=20, faults=(slow,))
    write(simulate(job), folder)
    return folder


def asking(model: Path | str) -> dict[str, str]:
    """Settings under which Algorithm 1 asks a model."""
    return {"OFFBEAT_MODEL": str(model), "OFFBEAT_SEARCH__LOCATE__SEARCH": "algorithm_1"}


def test_searches_ask_the_model_of_a_job_and_tune_it(
    of_a_job: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.load(str(of_a_job))
    assert model.detector.settings.criterion == "entropy"
    assert model.detector.settings.features == AS_PUBLISHED
    levels, tuned = [], ForestDetector.tuned

    def noted(self: ForestDetector, now: Levels, statistic: Statistic = "mean") -> ForestDetector:
        levels.append(now)
        return tuned(self, now, statistic)

    monkeypatch.setattr(ForestDetector, "tuned", noted)
    said = offbeat("diagnose", recording, "--json", settings=asking(of_a_job))
    assert said.exit_code == 0, said.output
    iterations = json.loads(said.stdout)["iterations"]
    assert iterations["irregular"] == list(FAULTY)
    usual_ms = levels[0].mean["iteration_mean"] / 1e6
    assert levels[0].mean["iteration"] == levels[0].mean["iteration_mean"]
    assert 0.5 * iterations["median_ms"] < usual_ms < 1.05 * iterations["median_ms"]


def test_the_model_that_ships_is_made_of_many_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scenarios, "WORLDS", (16,))
    monkeypatch.setattr(scenarios, "MOST_LAYER_PASSES", 8)
    monkeypatch.setattr(train, "ITERATIONS", 20)
    made = offbeat("train", "--default", "--runs", RUNS, "--out", tmp_path / "m.skops")
    assert made.exit_code == 0, made.output
    assert f"trained on {RUNS} simulated runs of many jobs; on what was held out F1 0." in made.stdout
    model = models.load(str(tmp_path / "m.skops"))
    assert model.detector.levels is None
    assert model.detector.settings.features == models.load("default").detector.settings.features


def test_too_few_runs_leave_nothing_to_measure_on(tmp_path: Path) -> None:
    made = offbeat("train", "--simulated", "--scenario", JOB, "--runs", 2, "--out", tmp_path / "m.skops")
    assert made.exit_code == 0, made.output
    assert "nothing was held out to measure it on: that takes 5 runs or iterations" in made.stdout
    assert models.load(str(tmp_path / "m.skops")).figures["f1"] is None


def test_too_few_iterations_are_refused(tmp_path: Path) -> None:
    made = offbeat("train", "--simulated", "--scenario", "iterations=17", "--runs", 2, "--out", tmp_path / "m.skops")
    assert refusal(made) == "17 iterations leave no room for a fault; give 20 or more"


def test_a_model_of_other_features_is_refused(of_a_job: Path, recording: Path, tmp_path: Path) -> None:
    other = of_other_features(of_a_job, tmp_path)
    said = refusal(offbeat("diagnose", recording, settings=asking(other)))
    assert "was made for the feature 'phase_of_the_moon', which this version" in said
    assert "train it anew with offbeat train" in said


def test_a_model_that_cannot_be_read_is_refused_by_the_name_of_its_setting(recording: Path, tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.skops", "No such file or directory"), (tmp_path, "Is a directory")):
        said = refusal(offbeat("diagnose", recording, settings=asking(path)))
        assert said == f"OFFBEAT_MODEL: {path}: {why}; give a file that offbeat train made, or default"


def test_features_are_one_of_the_lists() -> None:
    said = refusal(offbeat("train", "--default", "--features", "all"))
    assert "--features all: give one of scale_free, published, every" in said


def test_where_no_model_can_be_written_nothing_is_simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def simulated(*_: object) -> NoReturn:
        raise AssertionError("simulated in vain")

    monkeypatch.setattr("offbeat.training.simulated_run", simulated)
    for out, why in ((tmp_path / "none" / "m.skops", "No such file or directory"), (tmp_path, "Is a directory")):
        line = refusal(offbeat("train", "--simulated", "--scenario", JOB, "--runs", 2, "--out", out))
        assert line == f"{out}: {why}; give a file to write"


def test_a_file_that_is_there_is_replaced_with_force_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "m.skops"
    out.write_text("the only copy")
    given = ("train", "--simulated", "--scenario", JOB, "--runs", 2, "--out", out)
    with monkeypatch.context() as patched:
        patched.setattr("offbeat.training.simulated_run", None)  # refused before anything is simulated
        said = refusal(offbeat(*given))
    assert said == f"{out} is there already; give another file, or replace it with --force"
    assert out.read_text() == "the only copy"
    made = offbeat(*given, "--force")
    assert made.exit_code == 0, made.output
    assert models.load(str(out)).source == "2 simulated runs of a job of 8 ranks"
