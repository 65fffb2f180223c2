"""Targets: files of settings, the one that a running step goes by and the one that a replay takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from offbeat import wiring
from offbeat.overrides import overridden
from offbeat.settings import Settings
from offbeat.tuning import GROUPS, tuned
from schemas.catalogue import FINDINGS, ITERATION_SUMMARIES
from schemas.processor import Tunable
from tests.fuzz.published import SETTINGS, jobs_of_run, lines, messages_of, of
from tests.fuzz.target import Target, Trial

_TUNING = b"""# one is slow
OFFBEAT_MONITOR__DELTA=1.2
export OFFBEAT_SEARCH__LOCATE__SEARCH="algorithm_1"
OFFBEAT_INCIDENTS__CONFIRMATIONS=2
OFFBEAT_MONITOR__WINDOW=20"""
_REPLAYED = b"OFFBEAT_PIVOTS=3\nOFFBEAT_MODEL=default\nOFFBEAT_SEARCH__LOCATE__SEARCH=algorithm_1\n" + _TUNING


def targets() -> Iterator[Target]:
    """Both files."""
    yield Target("tuning file", _tuning)
    yield Target("settings file", weight=6, make=_settings)


def _tuning(folder: Path) -> Trial:
    """Steps go on with what the file says, if it says anything that they can."""
    path, jobs = folder / "tuning.env", jobs_of_run()
    told = list(messages_of(lines([of(ITERATION_SUMMARIES)[0], of(FINDINGS)[0]])))

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        settings, texts = tuned(SETTINGS, path)
        assert {name.partition(".")[0] for name in texts} <= set(GROUPS)
        steps = wiring.steps(jobs, SETTINGS)
        for name in GROUPS:
            step = steps[name]
            assert isinstance(step, Tunable)
            step.tune(getattr(settings, name))
            for message in told:
                if message.topic in {topic.name for topic in step.reads}:
                    list(step.process(message))

    return Trial([_TUNING], feed)


def _settings(folder: Path) -> Trial:
    path = folder / "settings.env"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        settings, _ = overridden(SETTINGS, file=path)
        assert isinstance(settings, Settings)

    return Trial([_REPLAYED], feed)
