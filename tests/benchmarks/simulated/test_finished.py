"""A long series is taken up again where it was ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.simulated.finished import Finished, version
from benchmarks.simulated.plan import Case
from benchmarks.simulated.scoring import FaultScore, IterationScore, Said
from benchmarks.simulated.trial import Layout, Score, Traffic
from diagnosis.irregularity.like_ranks import LikeRanksSettings
from diagnosis.irregularity.monitor_settings import MonitorSettings
from offbeat.settings import Settings
from producers.simulation.scenarios import Story
from schemas.errors import InputError

FAULT = FaultScore(
    kind="nic_slow",
    pattern="spikes",
    part="all",
    rank=5,
    inseparable=("nic:h0/mlx5_5",),
    iterations=(20, 33),
    slowdown=1.31,
    positives=4,
    weight="required",
    outcome="named",
    cause_right=True,
    named_ranks=1,
    shadowed=False,
    places={"delay attribution": 1, "algorithm 1": None},
)
SCORE = Score(
    seed=7,
    story="one",
    noise="hard",
    layout=Layout(32, 2, 4, 4, 1, 8, without_labels=True, without_ends=False),
    faults=(FAULT,),
    said=(Said("communication_slow", "device", (5,), ("nic:h0/mlx5_5",), (20, 33), 0.97, "right"),),
    iterations=IterationScore(4, 0, 0, 56),
    searched=3,
    traffic=Traffic(1000, 100, 50, {"delay attribution": 0.25}),
    detect_s=1.5,
)


def test_a_score_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "finished.jsonl"
    Finished(file, "1", Score).add(SCORE)
    again = Finished(file, "1", Score)
    assert again.scores == {Case(7, Story.ONE, "hard"): SCORE}
    again.add(replace(SCORE, seed=8))
    assert [score.seed for score in Finished(file, "1", Score).of([SCORE.case, Case(8, Story.ONE, "hard")])] == [7, 8]


def test_a_line_that_was_being_written_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "finished.jsonl"
    Finished(file, "1", Score).add(SCORE)
    whole = file.read_text()
    file.write_text(whole + whole[:100])
    Finished(file, "1", Score).add(replace(SCORE, seed=8))
    assert {score.seed for score in Finished(file, "1", Score).scores.values()} == {7, 8}


def test_who_only_reads_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "finished.jsonl"
    Finished(file, "1", Score).add(SCORE)
    Finished(file, "2", Score).add(replace(SCORE, seed=8))
    torn = file.read_text() + "{"
    file.write_text(torn)
    found = Finished(file, None, Score)
    assert (len(found.scores), found.versions) == (2, {"1", "2"})
    assert file.read_text() == torn


def test_scores_of_other_code_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "finished.jsonl"
    Finished(file, "1", Score).add(SCORE)
    other = Finished(file, "2", Score)
    assert (other.scores, other.outdated) == ({}, 1)


@pytest.mark.parametrize("text", ["hello\n", "{}\n", '{"version": "1", "score": {"seed": 1}}\n'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other"
    file.write_text(text)
    with pytest.raises(InputError, match="other: line 1 is not a finished run"):
        Finished(file, "1", Score)


def test_without_a_file_scores_are_kept_all_the_same() -> None:
    finished = Finished(None, "1", Score)
    finished.add(SCORE)
    assert finished.of([SCORE.case]) == [SCORE]


def test_the_version_follows_the_settings() -> None:
    assert version(Settings()) == version(Settings())
    assert version(Settings()) != version(Settings(monitor=MonitorSettings(delta=1.2)))
    assert version(Settings()) != version(Settings(like_ranks=LikeRanksSettings(iterations=0)))
