"""From the files and folders that a person names to a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnosis.job import Layout
from offbeat import terminal
from producers.importers import kept
from producers.importers.files import expand
from producers.importers.formats import FORMATS
from producers.importers.recording import Recording, load
from schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class Reading:
    """What a person says of the recording: its format, its layout, the operator that ends an iteration.

    None: to be told from the recording.
    """

    format_name: str | None = None
    layout: Layout | None = None
    iteration_end: str | None = None


def read(paths: Sequence[Path], reading: Reading, *, noting: bool = True) -> Recording:
    """Read one recording; where others lie in folders of a folder it is said that these are not read.

    What agents keep is found in the folders of a folder: it lies so. ``noting`` tells what of it is gone, for a caller
    that does not. Raises ``InputError`` where the recording cannot be read.
    """
    plain = [path for path in paths if not path.is_dir() or (_holds_telemetry(path) and not kept.holds_any(path))]
    paths = [*plain, *kept.folders([path for path in paths if path not in plain])]
    for folder in paths:
        inner = _recordings_in(folder) if folder.is_dir() else []
        if not inner:
            continue
        if not _holds_telemetry(folder):
            raise InputError(f"{folder}: folders in a folder are not read; name one of them, as {inner[0]}")
        terminal.note(f"{folder}: folders in a folder are not read: {', '.join(each.name for each in inner)}")
    end, layout = reading.iteration_end, reading.layout
    with terminal.progress("reading"):
        recording = load(paths, format_name=reading.format_name, layout=layout, iteration_end=end)
    for line in recording.gone if noting else ():
        terminal.note(f"gone: {line}")
    return recording


def _recordings_in(folder: Path) -> list[Path]:
    """Folders in a folder that hold telemetry of their own, not a partition's."""
    return [
        child
        for child in sorted(folder.iterdir())
        if child.is_dir() and "=" not in child.name and _holds_telemetry(child)
    ]


def _holds_telemetry(folder: Path) -> bool:
    return any(format_.matches(file) for file in expand([folder]) for format_ in FORMATS.values())
