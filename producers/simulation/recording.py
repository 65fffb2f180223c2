"""Writes a simulated run as a recording: Offbeat JSON lines and job.json; the truth elsewhere."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job
from schemas.errors import SettingsError

_COMPRESSION = 4
_OURS = re.compile(r"(rank\d+|h\d+\.(op_calls|queue_pairs|nic_epochs))\.jsonl\.gz|job\.json")
_JOB = "job.json"
_MARK = {"simulated": True}
"""What ``job.json`` says beside the job: a recording that does not say it may be a real one, and is never replaced."""


class Truth(Protocol):
    """What really happened in a run."""

    def to_json(self) -> dict[str, Any]: ...


class Recordable(Protocol):
    """A simulated run, of whichever level."""

    @property
    def job(self) -> Job: ...

    @property
    def truth(self) -> Truth: ...

    def recorded(self) -> Iterator[tuple[str, pa.Table]]:
        """What its hosts tell, as rows with a column ``host``; each table with the name of the file that it goes to."""
        ...


def write(run: Recordable, folder: Path, truth_file: Path | None = None, *, replace: bool = False) -> None:
    """Write ``job.json`` and a ``NAME.jsonl.gz`` for each table of a run into ``folder``, and the truth to a file
    outside of it.

    A line is a row without its nulls. ``replace`` removes a recording that was simulated before. What is not
    written to its end goes again. Raises ``SettingsError`` where ``require_room`` does, ``OSError`` where it cannot be
    written.
    """
    require_room(folder, truth_file, replace=replace)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    try:
        _fill(run, folder)
        if truth_file is not None:
            truth_file.write_text(json.dumps(run.truth.to_json(), indent=1) + "\n", encoding="utf-8")
    except BaseException:  # a part would be read as a recording that lacks logs
        _clear(folder)
        if made:
            folder.rmdir()
        raise


def _clear(folder: Path) -> None:
    for file in _held(folder):
        file.unlink()


def _fill(run: Recordable, folder: Path) -> None:
    (folder / _JOB).write_text(json.dumps(_MARK | run.job.to_row(), indent=1) + "\n", encoding="utf-8")
    for name, rows in run.recorded():
        # No file name and no time in the header: equal runs give equal bytes.
        with (
            (folder / f"{name}.jsonl.gz").open("wb") as raw,
            gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as file,
        ):
            file.write("".join(_lines(rows)).encode())


def require_room(folder: Path, truth_file: Path | None = None, *, replace: bool = False) -> None:
    """Raise ``SettingsError`` where a run cannot be written, to be known before it is simulated.

    A folder that holds anything is refused, as the next reader would take it for part of the recording; with
    ``replace`` what ``write`` wrote may be there, and nothing else. The truth lies elsewhere, in a folder that there
    is.
    """
    if truth_file is not None and truth_file.resolve().is_relative_to(folder.resolve()):
        raise SettingsError(f"{truth_file} lies in the recording {folder}; keep the truth elsewhere")
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if refused := _unwritable(there):
        raise SettingsError(f"{there}: {refused}; give a folder to write to")
    if truth_file is not None:
        require_writable(truth_file)
    held = _held(folder)
    others = [path for path in held if not _OURS.fullmatch(path.name)]
    if others:
        raise SettingsError(f"{folder} holds {others[0].name}, which is no part of a simulation; give another folder")
    if held and not _is_simulated(folder):
        raise SettingsError(f"{folder} holds a recording, and no {_JOB} that calls it simulated; give another folder")
    if held and not replace:
        raise SettingsError(f"{folder} holds a recording already; give another folder, or replace it with --force")


def _is_simulated(folder: Path) -> bool:
    """Whether a folder's job.json says that ``write`` wrote it."""
    try:
        said = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and _MARK.items() <= said.items()


def require_writable(file: Path) -> None:
    """Raise ``SettingsError`` where a file cannot be written, to be known before there is anything to write."""
    if refused := os.strerror(errno.EISDIR) if file.is_dir() else _unwritable(file.parent, file):
        raise SettingsError(f"{file}: {refused}; give a file to write")


def _unwritable(folder: Path, file: Path | None = None) -> str:
    """Why nothing can be written into a folder, or over the file in it where it is there; empty: something can."""
    if not folder.exists():
        return os.strerror(errno.ENOENT)
    if not folder.is_dir():
        return os.strerror(errno.ENOTDIR)
    if file is not None and file.exists():
        return "" if os.access(file, os.W_OK) else os.strerror(errno.EACCES)
    return "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


def _held(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _lines(rows: pa.Table) -> list[str]:
    """A JSON object a row, its nulls left out."""
    fields = [
        pc.binary_join_element_wise(f'"{name}": ', _as_json(rows.column(name)), "")
        for name in rows.column_names
        if rows.column(name).null_count < len(rows)
    ]
    objects = pc.binary_join_element_wise(*fields, ", ", null_handling="skip")
    return [str(line) for line in pc.binary_join_element_wise("{", objects, "}\n", "").to_pylist()]


def _as_json(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each value as JSON; the columns hold whole numbers, strings, and lists of whole numbers only."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if pa.types.is_list(values.type):
        return pa.chunked_array([[None if own is None else json.dumps(own) for own in values.to_pylist()]], pa.string())
    texts = values.combine_chunks().cast(pa.string()).dictionary_encode()
    escaped = pa.array([json.dumps(text) for text in texts.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([escaped.take(texts.indices)])
