"""A recording: rows of recorded telemetry in order and labelled, and the job that they tell of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.iterations import OperatorPattern
from diagnosis.job import Job, Layout
from diagnosis.layout import degrees
from producers.importers import parquet
from producers.importers.about import About, about
from producers.importers.files import Limits
from producers.importers.formats import Recognised, recognise
from producers.importers.host_ends import without_copied_ends, without_host_ends
from producers.importers.job_of_rows import (
    complete_job,
    described_folder,
    job_of_row,
    recorded_job,
    recording_name,
    refuse_shared_name,
)
from producers.importers.tidy import Tidied, tidy
from producers.importers.units import doubtful_unit, mistaken_unit, standing_clock
from producers.importers.unnamed import complete, name_streams
from schemas.catalogue import COMM_OPS
from schemas.errors import InputError


@dataclass(frozen=True)
class Recording:
    """What was read.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order, with ``position`` and
    ``call_order`` filled; ``iteration`` is null outside of iterations. ``lost_lines`` counts the holes in the
    sequence numbers of each rank and communicator, ``duplicates`` the rows that were dropped as copies of others.
    """

    job: Job
    table: pa.Table
    lost_lines: int
    duplicates: int
    iterations_source: str
    """"given" or "inferred"."""
    files: tuple[Path, ...]
    gone: tuple[str, ...] = ()
    """What is known to be missing beyond that, and what was not taken as it stands, in words."""
    step: int = 1
    """By how much the numbers of iterations rise."""

    @property
    def layout(self) -> Layout | None:
        """Degrees of parallelism and where they come from; None: not known."""
        return self.job.layout


def load(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    layout: Layout | None = None,
    iteration_end: str | None = None,
    limits: Limits | None = None,
) -> Recording:
    """Read a recording: a folder, several folders or files of one run.

    The job's id is the folder's name; a ``job.json`` in it (a row of control.jobs) tells what rows cannot: hosts,
    GPUs, NICs. What neither tells is inferred (iterations, communicators, layout) or left unknown (hosts).
    ``layout`` and ``iteration_end`` (``op=all_reduce,bytes=4``: the operator that ends an iteration) are taken
    instead of inference.

    Raises ``InputError`` that says what is wrong, where, and what to do.
    """
    limits = limits or Limits()
    recognised = recognise(paths, format_name)
    raw = recognised.format.read(recognised.files, limits)
    if not raw.num_rows:
        raise InputError(f"{paths[0]}: holds no operator; is it the folder of the run, and had logging begun?")
    folder = described_folder(recognised.files)
    name = recording_name(folder)
    try:
        said = about(raw.schema)
        described = recorded_job(folder, name) if said.job is None else job_of_row(said.job)
        ends_with = None if iteration_end is None else OperatorPattern.parse(iteration_end)
        tidied = tidy(name_streams(raw))
        _require_clocks(tidied.table, recognised, limits)
        timed, copied_ends = without_copied_ends(tidied.table)
        timed, host_ends = without_host_ends(timed)
        given = layout or (None if described is None else described.layout)
        completed = complete(timed, given, ends_with, said.iterations_source)
        rows = completed.labelled.table
        numbered = said.iterations_source is None and not tidied.table.column("seq").null_count
        if numbered or completed.labelled.iterations_source == "given":
            refuse_shared_name(rows)  # else lost lines may shift the numbers of a group's ranks
        job = complete_job(rows, name, described, layout, completed.layout, completed.members)
    except ValueError as error:
        raise InputError(f"{paths[0]}: {error}") from error
    given_numbers = completed.labelled.iterations_source == "given" and not said.iterations_source
    unrecorded = _unrecorded(replace(tidied, table=timed)) if given_numbers else ()
    doubts = (doubtful_unit(timed), copied_ends, host_ends, tidied.numbered_on, _contrary(given, completed.contrary))
    counted = 0 if said.iterations_source else tidied.lost_lines + completed.lost_lines  # else it is in what is said
    return Recording(
        job=job,
        table=rows.select(COMM_OPS.schema.names).cast(COMM_OPS.schema),
        lost_lines=said.lost_lines + counted,
        duplicates=said.duplicates + tidied.duplicates,
        iterations_source=completed.labelled.iterations_source,
        files=recognised.files,
        gone=tuple(dict.fromkeys((*said.gone, *filter(None, doubts), *unrecorded, *_left(recognised)))),
        step=tidied.numbering.step,
    )


def _require_clocks(table: pa.Table, recognised: Recognised, limits: Limits) -> None:
    """Raise ``InputError`` that names the file where times are in another unit, or all the same; the files are read
    again for that.
    """
    if (mistaken := mistaken_unit(table) or standing_clock(table)) is None:
        return
    for file in recognised.files:
        rows = recognised.format.read((file,), limits)
        at_fault = (pc.field("rank") == mistaken.rank) & (pc.field("call_ns") == mistaken.call_ns)
        if rows.filter(at_fault).num_rows:
            told = f"field call_ns of rank {mistaken.rank} is {mistaken.call_ns}"
            raise InputError(f"{file}: {told}, {mistaken.why}")


def _unrecorded(tidied: Tidied) -> Iterator[str]:
    """What is said of iterations between those that were recorded."""
    if tidied.numbering.sampled:
        every = f"one iteration in {tidied.numbering.step} was recorded, as far as their numbers tell"
        if tidied.table.column("end_ns").null_count < tidied.table.num_rows:
            yield f"{every}: each is taken to last until its last operator ends"
        else:
            yield f"{every}, and no ends of operators: how long an iteration took is not known"


def _contrary(given: Layout | None, shown: Layout | None) -> str | None:
    """What is said where calls show another layout than the one that is given."""
    if given is None or shown is None:
        return None
    those = f"the calls show {degrees(shown)}, not the layout {degrees(given)} that is given"
    return f"{those}: by a wrong one nobody is found, or somebody else"


def _left(recognised: Recognised) -> Iterator[str]:
    """What is said of files that are not read though they begin as those that are."""
    if recognised.left:
        first, *others = recognised.left
        more = f" (and {len(others)} more)" if others else ""
        of = recognised.format
        yield f"{first}{more}: not read: begins like {of.name}, but is none by its name ({of.what})"


def write(recording: Recording, path: Path) -> None:
    """Write a recording as Parquet that is read as the same recording: rows, job, and what was lost of it.

    Raises ``OSError`` where it cannot be written.
    """
    job, source = recording.job.to_row(), recording.iterations_source
    what = About(recording.lost_lines, recording.duplicates, job, source, recording.gone)
    parquet.write(recording.table, path, what)
