"""The scores of finished runs, kept in a file of JSON lines so that a long series can be taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from offbeat import terminal
from offbeat.settings import DECISIVE as GROUPS
from offbeat.settings import Settings
from schemas.errors import InputError, SettingsError

ROOT = Path(__file__).parents[2]
DECISIVE = (
    "benchmarks/large",
    "benchmarks/simulated",
    "benchmarks/telemetry_bytes.py",
    "benchmarks/traffic",
    "diagnosis",
    "offbeat/default_model.skops",
    "offbeat/models.py",
    "offbeat/wiring.py",
    "producers",
    "requirements.lock",
    "schemas",
    "streams",
)
"""The code that a score depends on."""


class Score(Protocol):
    """What a finished run counts for: under which noise, the run itself, and how it is written down."""

    @property
    def noise(self) -> str: ...
    @property
    def case(self) -> Hashable: ...
    def to_json(self) -> dict[str, Any]: ...
    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self: ...


_Score = TypeVar("_Score", bound=Score)


class Finished(Generic[_Score]):
    """Scores by run; with a file also those of earlier calls, as far as the same code and settings made them.

    ``version`` tells these, None: whoever made them. ``kind`` is what scores of these runs are.

    Raises ``InputError`` for a file that holds anything else.
    """

    def __init__(self, file: Path | None, version: str | None, kind: type[_Score]) -> None:
        self.scores: dict[Hashable, _Score] = {}
        self.outdated = 0
        """Scores in the file that other code or settings made."""
        self.versions: set[str] = set()
        """Those of the scores taken from the file."""
        self._file, self._version, self._kind = file, version, kind
        if file is not None and file.exists():
            self._read(file)

    def add(self, score: _Score) -> None:
        """Keep a score; it is in the file when this returns."""
        self.scores[score.case] = score
        if self._file is not None:
            line = json.dumps({"version": self._version, "score": score.to_json()})
            with self._file.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    def of(self, cases: Iterable[Hashable]) -> list[_Score]:
        """The scores of the runs that are finished."""
        return [self.scores[case] for case in cases if case in self.scores]

    def _read(self, file: Path) -> None:
        text = file.read_text("utf-8")
        if text and not text.endswith("\n"):  # the call that wrote it was ended within a line
            text = text[: text.rfind("\n") + 1]
            if self._version is not None:
                os.truncate(file, len(text.encode()))
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                row = json.loads(line)
                if self._version not in (None, row["version"]):
                    self.outdated += 1
                    continue
                score = self._kind.from_json(row["score"])
                self.versions.add(str(row["version"]))
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{file}: line {number} is not a finished run; name another file") from error
            self.scores[score.case] = score


def kept(file: Path | None, kind: type[_Score]) -> list[_Score]:
    """All scores in a file, whoever made them; raises ``SettingsError`` where there are none."""
    found = Finished(file, None, kind)
    if len(found.versions) > 1:
        terminal.note(f"runs of {len(found.versions)} versions of code or settings are in these figures")
    if not found.scores:
        raise SettingsError(f"--finished: no runs in {file or 'no file'}: name one that has some with --resume")
    return list(found.scores.values())


def version(settings: Settings) -> str:
    """A digest of the code and the settings that scores depend on. A model of one's own counts by its name."""
    digest = blake2b(digest_size=8)
    for name in DECISIVE:
        path = ROOT / name
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(module.read_bytes())
    relevant = {name: asdict(getattr(settings, name)) for name in GROUPS}
    digest.update(
        json.dumps([relevant, settings.pivots, settings.publish_all, settings.model], sort_keys=True).encode()
    )
    return digest.hexdigest()
