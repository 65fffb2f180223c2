"""Settings of the diagnosis in a file that a worker looks at again and again."""

import logging
import os
import re
from itertools import count
from pathlib import Path

import pytest

from diagnosis.irregularity.monitor_settings import MonitorSettings
from offbeat.setting_groups import WorkerGroup
from offbeat.settings import Settings
from offbeat.tuning import Tuning
from schemas.errors import SettingsError
from streams.monitor import Monitor

ENVIRONMENT = MonitorSettings(delta=1.3, window=15)
_instants = count(1_700_000_000)


class Told(Monitor):
    """A monitor that notes how it is tuned."""

    def __init__(self) -> None:
        super().__init__({})
        self.heard: list[MonitorSettings] = []

    def tune(self, settings: MonitorSettings) -> None:
        self.heard.append(settings)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OFFBEAT_MONITOR__DELTA", "1.3")
    monkeypatch.setenv("OFFBEAT_MONITOR__WINDOW", "15")
    return written(tmp_path / "tuning.env", "")


def written(file: Path, text: str) -> Path:
    """The file with this text, by a clock that tells every two apart."""
    file.write_text(text)
    at = next(_instants)
    os.utime(file, (at, at))
    return file


def tuning(file: Path | None) -> Tuning:
    return Tuning("monitor", Settings.load(worker=WorkerGroup(tuning=file)))


def test_steps_hear_of_each_change_once_and_of_no_other_steps_settings(file: Path) -> None:
    tuned, step = tuning(file), Told()
    assert tuned.following(step) is step
    tuned.look()
    assert (step.heard, tuned.settings.monitor.delta) == ([], 1.3)
    written(file, "# stricter\nexport OFFBEAT_MONITOR__DELTA=1.2\nOFFBEAT_SEARCH__ANSWER_WITHIN_NS=7\n")
    for _ in range(3):
        tuned.look()
    [heard] = step.heard
    assert (heard.delta, heard.window) == (1.2, 15)
    assert tuned.settings.search.answer_within_ns == 7
    written(file, "")
    tuned.look()
    assert (step.heard[-1].delta, step.heard[-1].window) == (1.3, 15)


def test_what_is_there_at_the_start_counts_from_the_start(file: Path) -> None:
    assert tuning(written(file, "OFFBEAT_MONITOR__DELTA=1.2")).settings.monitor.delta == 1.2
    assert tuning(None).settings.monitor.delta == 1.3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("OFFBEAT_MONITOR__DELTA=0.5", "give more than 1"),
        ("OFFBEAT_MONITOR__DELTA=much", "MONITOR__DELTA"),
        ("OFFBEAT_MONITOR__DELTA=1e309", "MONITOR__DELTA: input should be a finite number"),
        ("OFFBEAT_PIVOTS=8", "pivots cannot be set here"),
        ("OFFBEAT_KAFKA__PASSWORD=secret", "kafka.password cannot be set here"),
        ("delta=2", "tuning.env:1: give lines as"),
    ],
)
def test_what_cannot_be_used_is_told_and_changes_nothing(
    file: Path, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    tuned, step = tuning(written(file, "OFFBEAT_MONITOR__DELTA=1.2")), Told()
    tuned.following(step)
    written(file, text)
    with caplog.at_level(logging.WARNING):
        tuned.look()
        tuned.look()
    assert (step.heard, tuned.settings.monitor.delta) == ([], 1.2)
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert said in record.getMessage()
    assert "secret" not in record.getMessage()
    with pytest.raises(SettingsError, match=re.escape(str(file))):
        tuning(file)


def test_a_file_that_goes_away_changes_nothing_and_counts_again_once_it_is_back(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tuned, step = tuning(written(file, "OFFBEAT_MONITOR__DELTA=1.2")), Told()
    tuned.following(step)
    file.unlink()
    tuned.look()
    assert (step.heard, tuned.settings.monitor.delta) == ([], 1.2)
    assert "No such file" in caplog.text
    written(file, "OFFBEAT_MONITOR__DELTA=1.4")
    tuned.look()
    assert [heard.delta for heard in step.heard] == [1.4]
