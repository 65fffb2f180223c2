"""A recording: rows of recorded telemetry in order and labelled, and the job that they tell of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from diagnosis.iterations import OperatorPattern
from diagnosis.job import Job, Layout
from producers.importers.about import about
from producers.importers.files import Limits, common_folder
from producers.importers.formats import recognise
from producers.importers.job_of_rows import complete_job, read_job_file
from producers.importers.tidy import tidy
from producers.importers.unnamed import label_and_name, name_streams
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
    recognised = recognise(paths, format_name)
    raw = recognised.format.read(recognised.files, limits or Limits())
    if not raw.num_rows:
        raise InputError(f"{paths[0]}: holds no operator")
    folder = common_folder(recognised.files)
    try:
        said = about(raw.schema)
        described = read_job_file(folder) if said.job is None else Job.from_row(said.job)
        ends_with = None if iteration_end is None else OperatorPattern.parse(iteration_end)
        tidied = tidy(name_streams(raw))
        given = layout or (None if described is None else described.layout)
        completed = label_and_name(tidied.table, given, ends_with)
        labelled = completed.labelled
        job = complete_job(labelled.table, folder.name or "recording", described, layout, completed.layout)
    except ValueError as error:
        raise InputError(f"{paths[0]}: {error}") from error
    return Recording(
        job=job,
        table=labelled.table.select(COMM_OPS.schema.names).cast(COMM_OPS.schema),
        lost_lines=tidied.lost_lines + said.lost_lines + completed.lost_lines,
        duplicates=tidied.duplicates + said.duplicates,
        iterations_source=said.iterations_source or labelled.iterations_source,
        files=recognised.files,
    )
