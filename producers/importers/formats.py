"""The formats that recordings come in. A new one is a module with a ``Format`` and its line in ``FORMATS``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from producers.importers.files import Limits, expand
from producers.importers.jsonl import JsonLines
from producers.importers.kept import KEPT
from producers.importers.megatrace import Megatrace
from producers.importers.parquet import Parquet
from producers.importers.traffic import TRAFFIC
from schemas.errors import InputError


class Format(Protocol):
    """Reads the files of one format."""

    name: str
    what: str
    """Which files it takes, in words."""

    def matches(self, path: Path) -> bool:
        """Whether a file's name is one of this format."""
        ...

    def begins(self, path: Path) -> bool:
        """Whether a file begins like one of this format, whatever its name."""
        ...

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order, in the columns of telemetry.comm_ops and a column host."""
        ...


FORMATS: dict[str, Format] = {format_.name: format_ for format_ in (JsonLines(), Parquet(), Megatrace(), KEPT)}


@dataclass(frozen=True, slots=True)
class Recognised:
    """Files of one recording and the format that reads them; what lies beside them and begins like it, but is none of
    it by its name, is ``left`` alone.
    """

    format: Format
    files: tuple[Path, ...]
    left: tuple[Path, ...] = ()


_ONE = "name the files of one recording"


def recognise(paths: Sequence[Path], name: str | None = None) -> Recognised:
    """Find the format of a recording, or take the one named.

    Files that were named themselves must be of the format, and so must something in each folder; what else lies there
    is left alone.
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
    if name is not None:
        _check(FORMATS[name], fitting[0].files if fitting else found)
        if not fitting:
            raise InputError(f"{paths[0]}: no telemetry as {name}, which is {FORMATS[name].what}")
    if not fitting:
        strange = next((file for file in given if not any(f.matches(file) for f in FORMATS.values())), None)
        if strange is None and len(given) > 1:
            raise InputError(f"{given[0]}: of another format than others that are named; {_ONE}")
        strange = strange or paths[0]
        if (alike := _alike(strange)) is not None:
            known = f"{alike.name}, but is none by its name ({alike.what})"
            raise InputError(f"{strange}:1: begins like {known}: give --format {alike.name}")
        known = f"{_known()}; of NIC traffic, by their names: {_traffic()}"
        raise InputError(f"{strange}: no telemetry in a known format; known are {known}")
    if len(fitting) > 1:
        names = ", ".join(f.format.name for f in fitting)
        raise InputError(f"{paths[0]}: holds files of several formats ({names}); name one with --format")
    [recognised] = fitting
    for folder in (path for path in paths if path.is_dir()):
        if not any(folder in file.parents for file in recognised.files):
            others = f"{recognised.format.name}, as which {recognised.files[0]} is read"
            raise InputError(f"{folder}: holds no {others}; {_ONE}")
    read = set(recognised.files)
    beside = (file for file in found if file not in read and not any(of.matches(file) for of in TRAFFIC.values()))
    return replace(recognised, left=tuple(file for file in beside if recognised.format.begins(file)))


def _check(named: Format, files: Sequence[Path]) -> None:
    """Raises ``InputError`` where files are in another format than the one that was named."""
    for file in files:
        alike = None if named.begins(file) else _alike(file)
        if alike is not None:
            raise InputError(f"{file}:1: begins like {alike.name}, not like {named.name}: give --format {alike.name}")


def _alike(path: Path) -> Format | None:
    return next((format_ for format_ in FORMATS.values() if path.is_file() and format_.begins(path)), None)


def _traffic() -> str:
    return "; ".join(format_.what for format_ in TRAFFIC.values())


def _known() -> str:
    return "; ".join(f"{format_.name} ({format_.what})" for format_ in FORMATS.values())
