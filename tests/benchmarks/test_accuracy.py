"""The accuracy benchmark as a command, on the smallest seeded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated.rankings import detectors
from tests.offbeat.command_line import offbeat, refusal

SEEDS = 3116
"""A slow NIC among 32 ranks whose logs carry no iterations, and a healthy job of 32 ranks."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("accuracy") / "finished.jsonl"


def accuracy(file: Path, *arguments: object) -> tuple[dict[str, Any], str]:
    """The figures of one faulty and one healthy run under default noise, and what was told meanwhile."""
    options = ("--noise", "default", "--seeds", SEEDS, "--resume", file, "--json")
    result = offbeat("bench", "accuracy", "--runs", 1, "--healthy", 1, *options, *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def test_a_seeded_subset_and_taking_it_up_again(file: Path) -> None:
    told, progress = accuracy(file, "--processes", 1)
    assert "2 of 2 runs to do" in progress
    figures = told["noise"]["default"]
    assert figures["runs"] == {"faulty": 1, "healthy": 1, "ranks": {"32": 2}}
    assert figures["faults"]["named"]["share"] == 1.0
    assert figures["incidents"]["verdicts"] == {"right": 1}
    assert figures["healthy_without_incident"]["share"] == 1.0
    assert figures["iterations"]["recall"]["share"] == 1.0
    assert figures["by"]["iterations"].keys() == {"inferred"}
    assert figures["failures"] == []
    methods = figures["top_k"]
    assert list(methods) == ["delay attribution", *(f"algorithm 1, {name}" for name in detectors())]
    assert methods["delay attribution"]["first"]["share"] == 1.0
    assert 0 < methods["delay attribution"]["fetched_rows_share"] < 1

    again, progress = accuracy(file)
    assert again == told
    assert "0 of 2 runs to do" in progress


def test_a_file_of_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("not a score\n")
    result = offbeat("bench", "accuracy", "--runs", 1, "--healthy", 0, "--resume", other)
    assert "other.jsonl: line 1 is not a finished run; name another file" in refusal(result)
