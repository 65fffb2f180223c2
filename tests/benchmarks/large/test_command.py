"""The accuracy benchmark of large jobs as a command: what it asks for and resumes; the runs are made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy import REPORTED_SEEDS
from benchmarks.large import trial
from benchmarks.large.plan import LargeCase
from benchmarks.large.trial import LargeScore
from offbeat.settings import Settings
from tests.benchmarks.large.runs import FAULT, SCORE
from tests.offbeat.command_line import offbeat, refusal


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[LargeCase]:
    """The runs that were done."""
    cases: list[LargeCase] = []

    def run_case(case: LargeCase, settings: Settings) -> LargeScore:
        cases.append(case)
        faults = (replace(FAULT, kind=case.kind, pattern=case.pattern),) if case.kind else ()
        return replace(SCORE, seed=case.seed, story=case.story.value, noise=case.noise, faults=faults, asked=case)

    monkeypatch.setattr(trial, "run_case", run_case)
    return cases


FIRST = REPORTED_SEEDS["holmes"]


def test_a_series_is_taken_up_where_it_was_ended(done: list[LargeCase], tmp_path: Path) -> None:
    options = ("--system", "holmes", "--noise", "default", "--processes", 1, "--resume", tmp_path / "f.jsonl", "--json")
    offbeat("bench", "accuracy", "--runs", 3, "--healthy", 1, *options)
    assert [case.seed for case in done] == [FIRST, FIRST + 1, FIRST + 2, FIRST + 4]
    assert {(case.ranks, case.iterations) for case in done} == {(2048, 160)}
    told = json.loads(offbeat("bench", "accuracy", "--runs", 4, "--healthy", 1, *options).stdout)
    assert [case.seed for case in done[4:]] == [FIRST + 6]
    assert (told["system"], told["seeds"]) == ("holmes", {"from": FIRST, "reported": True})
    assert told["noise"]["default"]["top_k"]["in_top_k"]["of"] == 4


def test_another_size_and_all_logs_are_other_runs(done: list[LargeCase], tmp_path: Path) -> None:
    options = ("--runs", 2, "--healthy", 0, "--noise", "default", "--processes", 1, "--resume", tmp_path / "f.jsonl")
    for more in ((), ("--ranks", 8192), ("--all-logs", 1), ("--iterations", 80), ("--seeds", 20_000)):
        result = offbeat("bench", "accuracy", "--system", "holmes", *options, *more, "--json")
        assert result.exit_code == 0, result.output
    assert [case.all_logs for case in done] == [False] * 4 + [True] + [False] * 4


def test_figures_of_finished_runs_are_told_whatever_code_made_them(done: list[LargeCase], tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    options = ("--system", "holmes", "--runs", 2, "--healthy", 1, "--processes", 1, "--resume", file, "--json")
    told = json.loads(offbeat("bench", "accuracy", *options).stdout)
    rows = [{**json.loads(line), "version": "another"} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    finished = offbeat("bench", "accuracy", "--system", "holmes", "--finished", "--resume", file, "--json")
    assert json.loads(finished.stdout) == {"system": "holmes", "noise": told["noise"]}
    assert len(done) == 6


def test_of_no_finished_runs_no_figures_are_told(tmp_path: Path) -> None:
    for options in ((), ("--resume", tmp_path / "none.jsonl")):
        result = offbeat("bench", "accuracy", "--system", "holmes", "--finished", *options)
        assert "name one that has some with --resume" in refusal(result)
