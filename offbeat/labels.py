"""Labels of recorded logs: which operators a person found abnormal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json

from diagnosis.irregularity.drift import Levels
from diagnosis.job import Layout
from offbeat.training import LABEL_COLUMNS, Labelled, Log, labelled
from producers.importers.recording import load
from schemas.errors import InputError

MOST_BYTES = 256 << 20

_TYPES = {"rank": pa.int64(), "communicator": pa.string(), "iteration": pa.int64(), "position": pa.int64()}


def labelled_recording(
    paths: Sequence[Path],
    labels: Path,
    format_name: str | None = None,
    layout: Layout | None = None,
    iteration_end: str | None = None,
) -> tuple[list[Labelled], Levels | None]:
    """The labelled irregular iterations of a recording, and where its features stand.

    Iterations without any label are left out, nobody looked at them.
    Raises ``InputError`` for files that cannot be read.
    """
    recording = load(paths, format_name=format_name, layout=layout, iteration_end=iteration_end)
    table = read(labels)
    known = pc.unique(recording.table.column("communicator").cast(pa.string()))
    strangers = table.filter(pc.invert(pc.is_in(table.column("communicator"), known)))
    if strangers.num_rows:
        name = strangers.column("communicator")[0].as_py()
        raise InputError(f"{labels}: communicator {name!r} is not in the recording")
    log = Log.of(recording.job, recording.table)
    parts = [part for part in labelled(log, table) if part.abnormal.any()]
    if not parts:
        raise InputError(
            f"{labels}: none of the labels is an operator of an irregular iteration of {paths[0]}: "
            "rank, communicator, iteration and position together name one"
        )
    return parts, log.levels()


def read(path: Path) -> pa.Table:
    """The labels of a file, JSON lines or CSV (``.csv``): a row an abnormal operator.

    A column ``abnormal``, where there is one, must be true. Raises ``InputError``.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: more than {MOST_BYTES >> 20} MiB; label fewer iterations")
        table = csv.read_csv(path) if path.suffix == ".csv" else json.read_json(path)
        names = table.column_names
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: neither JSON lines nor CSV: {error}") from error
    missing = [name for name in LABEL_COLUMNS if name not in names]
    if missing:
        raise InputError(f"{path}: the column {missing[0]} is missing; labels have {', '.join(LABEL_COLUMNS)}")
    if "abnormal" in table.column_names:
        table = table.filter(table.column("abnormal"))
    for name, kind in _TYPES.items():
        if table.column(name).null_count:
            raise InputError(f"{path}: {name} is missing in a row")
        try:
            table = table.set_column(table.column_names.index(name), name, table.column(name).cast(kind))
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: {name}: {error}") from error
    return table.select(LABEL_COLUMNS)
