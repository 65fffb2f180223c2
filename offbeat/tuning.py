"""Settings of the diagnosis that change while a worker runs: those of a file that is looked at again and again."""

from __future__ import annotations

import logging
from pathlib import Path
from weakref import WeakSet

from offbeat.overrides import overridden
from offbeat.settings import Settings
from schemas.errors import SettingsError
from schemas.processor import Processor, Tunable

log = logging.getLogger(__name__)

GROUPS = ("monitor", "search", "segment", "compare", "incidents")
"""What may change between two messages; how many ranks are pivots, how like ranks are compared, and which model judges
may not."""


class Tuning:
    """The settings of one step as they are by now; ``settings`` are those of the environment under those of the file.

    The file (``settings.worker.tuning``) holds variables, ``OFFBEAT_MONITOR__DELTA=1.2`` a line. Where none is set
    nothing changes. Raises ``SettingsError`` for one that cannot be used; later that is logged, and what was valid
    stays.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        self.settings = settings
        self._name = name
        self._given = settings
        self._file = settings.worker.tuning
        self._seen: object = None
        self._steps: WeakSet[Tunable] = WeakSet()
        if self._file is not None:
            self._seen = _stamp(self._file)
            self._read(self._file)

    def following(self, step: Processor) -> Processor:
        """The step, which is told of every change from now on."""
        if isinstance(step, Tunable):
            self._steps.add(step)
        return step

    def look(self) -> None:
        """Where the file has changed, let the steps go on with what it says."""
        if self._file is None or (stamp := _stamp(self._file)) == self._seen:
            return
        self._seen = stamp
        try:
            self._read(self._file)
        except SettingsError as error:
            log.warning("the settings stay as they were: %s", error)
            return
        for step in self._steps:
            step.tune(getattr(self.settings, self._name))

    def _read(self, file: Path) -> None:
        self.settings, texts = tuned(self._given, file)
        told = ", ".join(f"{name}={text}" for name, text in sorted(texts.items()))
        log.info("%s sets %s", file, told or "nothing: all is as the environment says")


def tuned(settings: Settings, file: Path) -> tuple[Settings, dict[str, str]]:
    """The settings under those of a file, and what it sets: text by dotted name.

    Raises ``SettingsError`` where it cannot be read, or sets what may not change while a step runs.
    """
    try:
        return overridden(settings, file=file, groups=GROUPS)
    except SettingsError as error:
        told = str(error) if str(file) in str(error) else f"{file}: {error}"
        raise SettingsError(f"OFFBEAT_WORKER__TUNING: {told}") from error


def _stamp(file: Path) -> object:
    """What changes with a file's content; None where it is not there."""
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
