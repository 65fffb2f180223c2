"""The same runs under other settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.large import variations
from benchmarks.large.plan import LargeCase
from benchmarks.large.variations import Variation, VariedCase, VariedScore, under_each
from offbeat.settings import Settings
from tests.benchmarks.large.runs import CASE, FAULT, SCORE, slow_nic
from tests.offbeat.command_line import offbeat


def test_only_one_setting_varies_at_a_time() -> None:
    settings = Settings()
    varied = variations.variations(settings, [1.05], [1, 6])
    assert [(one.name, one.value) for one in varied] == [("delta", 1.05), ("pivots", 1), ("pivots", 6)]
    assert [one.settings.monitor.delta for one in varied] == [1.05, settings.monitor.delta, settings.monitor.delta]
    assert [one.settings.pivots for one in varied] == [settings.pivots, 1, 6]


def test_a_large_delta_passes_over_what_a_smaller_one_finds() -> None:
    """The NIC makes iterations half as long again."""
    case, run = replace(CASE, all_logs=False), slow_nic()
    varied = variations.variations(Settings(), [1.1, 3.0], [])
    found, passed_over = (one.score for one in under_each(case, run, varied))
    assert found.searched > 0
    assert found.iterations.hit > 0
    assert (passed_over.searched, passed_over.iterations.hit) == (0, 0)


OPTIONS = ("--runs", 3, "--healthy", 1, "--delta", 1.1, "--pivots", 2, "--pivots", 3, "--processes", 1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[VariedCase]:
    """What is judged: named with two pivots at most in default noise, with one in hard noise."""
    asked: list[VariedCase] = []

    def made(task: tuple[LargeCase, Sequence[Variation]]) -> list[VariedScore]:
        case, varied = task
        asked.extend(one.of(case) for one in varied)
        named = replace(SCORE, noise=case.noise, asked=case)
        missed = replace(named, faults=(replace(FAULT, places=dict.fromkeys(FAULT.places, 9)),))
        most = 2 if case.noise == "default" else 1
        return [VariedScore(one.name, one.value, named if one.value <= most else missed) for one in varied]

    monkeypatch.setattr(variations, "judge_each", made)
    return asked


def test_figures_are_told_by_setting_and_value(asked: list[VariedCase]) -> None:
    told = json.loads(offbeat("bench", "sensitivity", *OPTIONS, "--noise", "both", "--json").stdout)["noise"]
    seeds = [seed for seed in (55_000, 55_001, 55_002, 55_004) for _ in range(2)]
    assert [case.run.seed for case in asked] == [seed for seed in seeds for _ in range(3)]
    assert told["default"]["delta"]["1.1"]["top_k"]["in_top_k"]["share"] == 1.0
    assert [told["default"]["pivots"][value]["top_k"]["in_top_k"]["share"] for value in ("2", "3")] == [1.0, 0.0]
    assert told["hard"]["pivots"]["2"]["top_k"]["in_top_k"]["share"] == 0.0


def test_a_series_is_taken_up_where_it_ended(asked: list[VariedCase], tmp_path: Path) -> None:
    file = tmp_path / "finished.jsonl"
    whole = offbeat("bench", "sensitivity", *OPTIONS, "--resume", file, "--json").stdout
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:5]))
    first = asked.copy()
    asked.clear()
    assert offbeat("bench", "sensitivity", *OPTIONS, "--resume", file, "--json").stdout == whole
    assert asked == first[5:]
    assert file.read_text() == "".join(lines)


def test_figures_of_what_is_finished_need_no_more_runs(asked: list[VariedCase], tmp_path: Path) -> None:
    file = tmp_path / "finished.jsonl"
    whole = json.loads(offbeat("bench", "sensitivity", *OPTIONS, "--resume", file, "--json").stdout)
    asked.clear()
    told = json.loads(offbeat("bench", "sensitivity", "--finished", "--resume", file, "--json").stdout)
    assert told["noise"] == whole["noise"]
    assert not asked
    refused = offbeat("bench", "sensitivity", "--finished", "--resume", tmp_path / "none.jsonl", "--json")
    assert refused.exit_code == 2
    assert "no runs in" in refused.output
