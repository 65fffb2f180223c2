"""`offbeat simulate`: a recording whose truth lies elsewhere."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offbeat.commands.parameters import NIC_SCENARIO
from producers.simulation.nic import Setup
from tests.offbeat.command_line import EXAMPLE, offbeat, refusal

SCENARIO = "seed=5,tp=2,pp=2,dp=2,iterations=30"
TINY = "tp=2,pp=1,dp=1,iterations=2"
FAULT = "kind=gpu_slow,rank=6,iterations=15-29,slowdown=1.4"


def test_help_names_every_setup() -> None:
    assert all(setup in NIC_SCENARIO for setup in Setup)


def test_what_was_injected_is_found(tmp_path: Path) -> None:
    run, truth = tmp_path / "run", tmp_path / "truth.json"
    made = offbeat("simulate", "--out", run, "--scenario", SCENARIO, "--fault", FAULT, "--truth", truth, "--json")
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert (told["job"], told["ranks"], told["folder"]) == ("sim-5", 8, str(run))
    assert sorted(file.name for file in run.iterdir()) == ["job.json", *(f"rank{rank}.jsonl.gz" for rank in range(8))]
    [fault] = json.loads(truth.read_text())["faults"]
    answer = json.loads(offbeat("diagnose", run, "--json").stdout)
    assert answer["coverage"]["ranks_expected"] == 8
    assert [incident["devices"] for incident in answer["incidents"]] == [[fault["device"]]]


def test_a_slow_link_is_found_with_the_nic_that_carries_the_same_traffic(tmp_path: Path) -> None:
    run, truth = tmp_path / "run", tmp_path / "truth.json"
    scenario = "seed=5,tp=2,pp=2,dp=4,gpus_per_host=4,iterations=24,hosts_per_pod=2,spines=2"
    fault = "kind=link_slow,rank=5,iterations=15-23,slowdown=1.4"
    assert offbeat("simulate", "--out", run, "--scenario", scenario, "--fault", fault, "--truth", truth).exit_code == 0
    kinds = {device["kind"] for device in json.loads((run / "job.json").read_text())["devices"]}
    assert kinds == {"gpu", "cpu", "nvlink", "nic", "link", "tor", "spine"}
    [told] = json.loads(truth.read_text())["faults"]
    assert (told["kind"], told["device"]) == ("link_slow", "link:h1/mlx5_1")
    [incident] = json.loads(offbeat("diagnose", run, "--json").stdout)["incidents"]
    assert (incident["cause"], incident["ranks"]) == ("communication_slow", [5])
    assert set(incident["devices"]) == set(told["inseparable"]) == {"nic:h1/mlx5_1", "link:h1/mlx5_1"}


def test_a_spine_that_carries_nothing_is_said(tmp_path: Path) -> None:
    scenario = "tp=2,pp=2,dp=4,gpus_per_host=4,iterations=20,spines=2"
    fault = "kind=spine_slow,spine=0,iterations=15-19,slowdown=1.4"
    result = offbeat("simulate", "--out", tmp_path, "--scenario", scenario, "--fault", fault)
    assert refusal(result) == "spine:0: no slowness of it makes iterations 1.4 times as long"


def test_people_are_told_where_it_is(tmp_path: Path) -> None:
    result = offbeat("simulate", "--out", tmp_path, "--scenario", TINY)
    assert result.exit_code == 0
    assert result.stdout.startswith("sim-0: ")
    where, gaps = result.stdout.splitlines()
    assert where.endswith(f" operators of 2 ranks in {tmp_path}")
    stretch = "and by some seeds a stretch of one rank's,"
    assert gaps == f"0.1% of the lines, {stretch} are left out on purpose, as logs have gaps: lost lines"


@pytest.mark.parametrize(
    ("function", "left"),
    [
        ("producers.simulation.simulate", "nothing was written"),
        ("producers.simulation.recording._lines", "what was written to {run} is removed again"),
    ],
)
def test_a_simulation_that_is_stopped_leaves_no_part_of_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, left: str
) -> None:
    run = tmp_path / "run"

    def stopped(*_: object) -> None:
        assert function.endswith("simulate") != run.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(function, stopped)
    result = offbeat("simulate", "--out", run, "--scenario", TINY)
    assert result.exit_code == 130
    assert f"stopped: {left.format(run=run)}" in result.stderr.splitlines()
    assert not run.exists()


def test_the_truth_never_lies_beside_the_recording(tmp_path: Path) -> None:
    result = offbeat("simulate", "--out", tmp_path, "--scenario", TINY, "--truth", tmp_path / "t")
    assert "keep the truth elsewhere" in refusal(result)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = offbeat("simulate", "--out", tmp_path / "file" / "run", "--scenario", TINY)
    assert refusal(result).endswith("Not a directory; give a folder to write to")


IMPOSSIBLE = ("--scenario", "tp=2,pp=2,dp=4,spines=2", "--fault", "kind=spine_slow,spine=0,iterations=9,slowdown=1.4")
"""What only the simulation itself refuses."""


def test_where_it_cannot_be_written_is_said_before_it_is_simulated(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "file", tmp_path / "nowhere" / "truth.json"
    file.touch()
    said = f"{file}: Not a directory; give a folder to write to"
    assert refusal(offbeat("simulate", "--out", file / "run", *IMPOSSIBLE)) == said
    run = ("simulate", "--out", tmp_path / "run", *IMPOSSIBLE, "--truth")
    said = f"{elsewhere}: No such file or directory; give a file to write"
    assert refusal(offbeat(*run, elsewhere)) == said
    assert refusal(offbeat(*run, tmp_path)) == f"{tmp_path}: Is a directory; give a file to write"
    assert refusal(offbeat(*run, file / "t")) == f"{file / 't'}: Not a directory; give a file to write"
    assert sorted(tmp_path.iterdir()) == [file]


def test_folders_and_files_of_others_are_refused_before_it_is_simulated(tmp_path: Path) -> None:
    locked, truth = tmp_path / "locked", tmp_path / "truth.json"
    locked.mkdir()
    truth.touch()
    with denied(locked, truth):
        said = f"{locked}: Permission denied; give a folder to write to"
        assert refusal(offbeat("simulate", "--out", locked / "run", *IMPOSSIBLE)) == said
        said = f"{truth}: Permission denied; give a file to write"
        assert refusal(offbeat("simulate", "--out", tmp_path / "run", *IMPOSSIBLE, "--truth", truth)) == said


@contextmanager
def denied(*paths: Path) -> Iterator[None]:
    """As whoever may not write there is told; root, whom a mode does not stop, as well."""
    with pytest.MonkeyPatch.context() as patched:
        access = os.access
        patched.setattr(
            os, "access", lambda path, mode: access(path, mode) and not (mode & os.W_OK and Path(path) in paths)
        )
        yield


def test_a_job_that_is_too_large_is_refused_by_every_command_that_takes_one(tmp_path: Path) -> None:
    large = "tp=2,pp=2,dp=100000"
    said = "scenario: 400000 ranks x 60 iterations x about 214 operators are more than the 10000000"
    assert refusal(offbeat("simulate", "--out", tmp_path / "run", "--scenario", large)).startswith(said)
    assert refusal(offbeat("produce", "--simulate", large)).startswith(said)
    trained = offbeat("train", "--simulated", "--scenario", large, "--out", tmp_path / "model")
    assert refusal(trained).startswith("scenario: 400000 ranks are more than the 16384 of which some can be simulated")
    assert not list(tmp_path.iterdir())


def test_a_fault_that_cannot_be_is_said(tmp_path: Path) -> None:
    result = offbeat(
        "simulate", "--out", tmp_path, "--scenario", SCENARIO, "--fault", FAULT.replace("rank=6", "rank=9")
    )
    assert refusal(result) == "scenario: the job has no rank 9; it has 8"


def test_a_kind_that_there_is_not_is_said(tmp_path: Path) -> None:
    result = offbeat("simulate", "--out", tmp_path, "--scenario", TINY, "--fault", "kind=zzz,rank=1,iterations=1")
    assert refusal(result).startswith("--fault: there is no kind 'zzz'; give one of gpu_slow, nic_slow")


def test_a_recording_is_never_mixed_with_another(tmp_path: Path) -> None:
    assert offbeat("simulate", "--out", tmp_path, "--scenario", "tp=4,pp=1,dp=1,iterations=2").exit_code == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    smaller = ("simulate", "--out", tmp_path, "--scenario", TINY)
    said = f"{tmp_path} holds a recording already; give another folder, or replace it with --force"
    assert refusal(offbeat(*smaller)) == said
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert offbeat(*smaller, "--force").exit_code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["job.json", "rank0.jsonl.gz", "rank1.jsonl.gz"]


def test_force_removes_nothing_of_anyone_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    result = offbeat("simulate", "--out", tmp_path, "--scenario", TINY, "--force")
    assert refusal(result) == f"{tmp_path} holds thesis.tex, which is no part of a simulation; give another folder"
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("described", [None, "[]", "none", '{"job": "sim-0"}', '{"job": "sim-0", "simulated": false}'])
def test_force_replaces_no_recording_of_a_real_job(tmp_path: Path, described: str | None) -> None:
    run = shutil.copytree(EXAMPLE, tmp_path / "run")
    if described is not None:
        (run / "job.json").write_text(described)
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    for options in ((), ("--force",), ("--nic", "--force")):
        said = f"{run} holds a recording, and no job.json that calls it simulated; give another folder"
        assert refusal(offbeat("simulate", "--out", run, *options)) == said
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before


def test_force_replaces_what_was_simulated_down_to_nics(tmp_path: Path) -> None:
    made = ("simulate", "--nic", "--scenario", "setup=gpt2_70b,tp=2,pp=1,dp=2,iterations=1", "--out", tmp_path)
    assert offbeat(*made).exit_code == 0
    assert offbeat(*made, "--force").exit_code == 0
