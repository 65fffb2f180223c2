"""The formats that recordings come in. A new one is a module with a ``Format`` and its line in ``FORMATS``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from producers.importers.files import Limits, expand
from producers.importers.jsonl import JsonLines
from producers.importers.megatrace import Megatrace
from producers.importers.parquet import Parquet
from schemas.errors import InputError


class Format(Protocol):
    """Reads the files of one format."""

    name: str
    what: str
    """Which files it takes, in words."""

    def matches(self, path: Path) -> bool:
        """Whether a file's name is one of this format."""
        ...

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order, in the columns of telemetry.comm_ops and a column host."""
        ...


FORMATS: dict[str, Format] = {format_.name: format_ for format_ in (JsonLines(), Parquet(), Megatrace())}


@dataclass(frozen=True, slots=True)
class Recognised:
    """Files of one recording and the format that reads them."""

    format: Format
    files: tuple[Path, ...]


def recognise(paths: Sequence[Path], name: str | None = None) -> Recognised:
    """Find the format of a recording, or take the one named.

    Files that were named themselves must be of the format; what else lies in a folder is left alone.
    Raises ``InputError`` where no format, or more than one, fits.
    """
    if not paths:
        raise InputError("no file or folder to read")
    if name is not None and name not in FORMATS:
        raise InputError(f"unknown format {name!r}; known are {_known()}")
    given = [path for path in paths if not path.is_dir()]
    found = expand(paths)
    fitting = []
    for format_ in FORMATS.values() if name is None else (FORMATS[name],):
        files = tuple(file for file in found if format_.matches(file) or (name is not None and file in given))
        if files and all(file in files for file in given):
            fitting.append(Recognised(format_, files))
    if not fitting:
        strange = next((file for file in given if not any(f.matches(file) for f in FORMATS.values())), paths[0])
        raise InputError(f"{strange}: no telemetry in a known format; known are {_known()}")
    if len(fitting) > 1:
        names = ", ".join(f.format.name for f in fitting)
        raise InputError(f"{paths[0]}: holds files of several formats ({names}); name one with --format")
    return fitting[0]


def _known() -> str:
    return "; ".join(f"{format_.name} ({format_.what})" for format_ in FORMATS.values())
