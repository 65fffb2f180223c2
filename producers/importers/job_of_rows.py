"""The job that a recording tells of: from a ``job.json`` beside the rows, and from the rows themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers, joint_codes
from diagnosis.communicator_use import communicator_uses, membership
from diagnosis.job import MOST_RANKS, Communicator, Job, Layout, Place
from diagnosis.layout import check_layout, communicator_kinds, infer_layout
from diagnosis.shared_names import shared_name
from diagnosis.unseen_members import in_doubt
from producers.importers.columns import shown
from producers.importers.files import common_folder
from producers.segments import private
from producers.whole_files import replacing
from schemas.catalogue import JOBS
from schemas.errors import InputError, MessageError
from schemas.message import decode, encode

JOB_FILE = "job.json"
_MAX_BYTES = 256 << 20
_KINDS = {
    pa.types.is_integer: "a whole number",
    pa.types.is_floating: "a number",
    pa.types.is_boolean: "true or false",
    pa.types.is_string: "text",
    pa.types.is_list: "a list",
    pa.types.is_struct: "an object",
}
"""What a field takes, in words."""


def read_job_file(folder: Path, named: str | None = None) -> Job | None:
    """The job that a folder's job.json describes (a row of control.jobs); None where there is none.

    That of a recording (``named``: what it is called else) may leave out ``job``, and ``communicators``, which its rows
    tell. Raises ``InputError``.
    """
    path = folder / JOB_FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: more than {_MAX_BYTES} bytes")
        row = json.loads(path.read_text())
        if not isinstance(row, dict):
            raise InputError(f"{path}: not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a row of control.jobs: {error}") from error
    left_out = {} if named is None else {"job": named, "communicators": []}
    try:
        return job_of_row(left_out | row)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def recorded_job(folder: Path, name: str) -> Job | None:
    """The job that is described beside a recording that is called ``name`` otherwise; raises ``InputError``.

    Each rank has a GPU of its own: ranks that were given one GPU of a host would be taken for one device. (What agents
    describe is not asked for that: where each process sees its GPU alone, all of them may tell index 0.)
    """
    job = read_job_file(folder, name)
    ranks: dict[tuple[str, int], int] = {}
    for place in () if job is None else job.places:
        if place.host is not None and place.gpu is not None:
            other = ranks.setdefault((place.host, place.gpu), place.rank)
            if other != place.rank:
                both = f"ranks {other} and {place.rank} are both on GPU {place.gpu} of host {place.host}"
                raise InputError(f"{folder / JOB_FILE}: {both}; leave out what is not known")
    return job


def recording_name(folder: Path) -> str:
    """What a recording is called where nothing names its job."""
    return folder.name or "recording"


def described_folder(files: Sequence[Path]) -> Path:
    """The folder of the one job that files are of: one with its job.json, or else the innermost that holds them all.

    Raises ``InputError`` where there are several jobs.
    """
    described = {
        folder: job.job
        for folder in sorted({file.parent for file in files})
        if (job := read_job_file(folder, recording_name(folder)))
    }
    if len(set(described.values())) > 1:
        several = ", ".join(f"{folder}: {job}" for folder, job in described.items())
        raise InputError(f"several jobs, {several}; diagnose one at a time")
    return next(iter(described), None) or common_folder(files)


def write_job_file(folder: Path, job: Job) -> None:
    """Describe a folder's job for ``read_job_file``; nobody but this user may read it. Raises ``OSError``."""
    with replacing(folder / JOB_FILE, private) as file:
        file.write(json.dumps(job.to_row()).encode())


def job_of_row(row: Mapping[str, Any]) -> Job:
    """The job of a row of control.jobs as JSON holds it; fields that are not known are left out.

    Raises ``ValueError`` for what cannot be.
    """
    known = {name: value for name, value in row.items() if name in JOBS.schema.names}
    of = pa.struct(list(JOBS.schema))
    try:
        _check_lists(known, of, JOB_FILE)
        record = encode(JOBS, JOBS.from_rows([known]), job=str(known.get("job")))
        return Job.from_row(decode(record, JOBS).to_pylist()[0])
    except (ValueError, TypeError, OverflowError, pa.ArrowException, MessageError) as error:
        raise ValueError(f"not a row of control.jobs: {_misfit(known, of) or error}") from error


def _check_lists(value: Any, of: pa.DataType, name: str) -> None:
    """Raises ``TypeError`` for a text where a list belongs, of which Arrow would take the letters."""
    if pa.types.is_list(of) and isinstance(value, str):
        raise TypeError(f"{name} is the text {value!r}; give a list")
    if pa.types.is_list(of):
        for element in value or ():
            _check_lists(element, of.value_type, name)
    elif pa.types.is_struct(of) and isinstance(value, Mapping):
        for field in of:
            _check_lists(value.get(field.name), field.type, field.name)


def _misfit(value: Any, of: pa.DataType, name: str = "") -> str | None:
    """Which field is not of its type, and what belongs there; None where all are.

    The slow way, taken once Arrow has refused the row, which tells the value alone.
    """
    parts: Iterable[tuple[object, Any, pa.DataType]]
    if pa.types.is_struct(of) and isinstance(value, Mapping):
        parts = ((field.name, value.get(field.name), field.type) for field in of)
    elif pa.types.is_list(of) and isinstance(value, list):
        parts = ((at, element, of.value_type) for at, element in enumerate(value))
    else:
        try:
            pa.scalar(value, of)
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            kind = next((words for is_kind, words in _KINDS.items() if is_kind(of)), f"a value of {of}")
            return f"field {name} is {shown(value)}; give {kind}"
        return None
    faults = (_misfit(part, type_, f"{name}.{key}" if name else str(key)) for key, part, type_ in parts)
    return next(filter(None, faults), None)


def complete_job(
    table: pa.Table,
    name: str,
    described: Job | None,
    layout: Layout | None,
    matched: Layout | None = None,
    matched_members: Mapping[str, tuple[int, ...]] | None = None,
) -> Job:
    """The job of rows, with what is given by hand and what is described of it taken first, the rest inferred.

    Ranks are those that logged something or were met as peers, and what lacks between these, or of the layout where the
    job's ranks are not described; hosts come from the description, else from the column ``host``, and are never made
    up. Who takes part in a communicator that a missing rank may belong to is unknown. ``matched`` is the layout by
    which streams were matched, ``matched_members`` the ranks of the communicators that this gave.
    Raises ``ValueError`` for a contradiction.
    """
    rank, peer = integers(table, "rank"), integers(table, "peer")
    communicator, names = codes(table, "communicator")
    seen = {names[code]: ranks for code, ranks in membership(rank, communicator, peer).items()}
    job = described or Job(name, (), ())
    layout = layout or job.layout or matched
    matched_members = dict(matched_members or {})
    members = _members(job, seen) | matched_members
    uses = communicator_uses(table, members)
    pairs = _distinct(rank[peer >= 0], peer[peer >= 0])
    job = replace(
        job,
        places=_places(job, table, rank, peer, layout),
        started_ns=job.started_ns if job.started_ns is not None else int(integers(table, "call_ns").min()),
    )
    logged = set(np.unique(rank).tolist())
    missing = set(job.ranks) - logged
    if layout is None:
        layout = infer_layout(uses, pairs, job.ranks)
    else:
        check_layout(layout, pairs, job.ranks, () if missing else uses)
    kinds = {} if layout is None else communicator_kinds(uses, layout)
    described_kinds = {c.communicator: c.kind for c in job.communicators}
    doubtful = in_doubt(uses, logged, missing, layout)
    doubtful -= {*matched_members, *(c.communicator for c in job.communicators if c.ranks)}
    communicators = tuple(
        Communicator(of, () if of in doubtful else ranks, described_kinds.get(of) or kinds.get(of))
        for of, ranks in members.items()
    )
    return replace(job, layout=layout, communicators=communicators)


def refuse_shared_name(table: pa.Table) -> None:
    """Raise ``ValueError`` where groups certainly share a communicator's name (``shared_name``)."""
    shared = shared_name(table)
    if shared is not None:
        raise ValueError(
            f"ranks {shared.one} and {shared.other} call the operators of communicator {shared.communicator} at times "
            "that cannot be those of one group, though each of them fits another rank: give each group of ranks a name "
            "of its own, or if they are one group, an operator the same seq on all ranks"
        )


def _members(job: Job, seen: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Ranks of each communicator: as described, else as seen."""
    members = {c.communicator: c.ranks or seen.get(c.communicator, ()) for c in job.communicators}
    for name, ranks in seen.items():
        strangers = set(ranks) - set(members.setdefault(name, ranks))
        if strangers:
            raise ValueError(f"rank {min(strangers)} uses communicator {name}, which {JOB_FILE} gives to others")
    return members


def _places(job: Job, table: pa.Table, rank: Ints, peer: Ints, layout: Layout | None) -> tuple[Place, ...]:
    places = dict(job.place)
    world = 0 if layout is None else layout.world or 0
    if not places and world <= MOST_RANKS:  # else it is refused
        places = {of_rank: Place(of_rank) for of_rank in range(world)}
    met = np.unique(np.concatenate([rank, peer[peer >= 0]]))
    between = np.arange(met[0], met[-1] + 1)
    for of_rank in (between if len(between) < 2 * len(met) else met).tolist():
        places.setdefault(of_rank, Place(of_rank))
    for of_rank, host in _hosts(table, rank):
        if places[of_rank].host is None:
            places[of_rank] = replace(places[of_rank], host=host)
    return tuple(places[of_rank] for of_rank in sorted(places))


def _hosts(table: pa.Table, rank: Ints) -> list[tuple[int, str]]:
    host, names = codes(table, "host")
    found = sorted(_distinct(rank[host >= 0], host[host >= 0]))
    for (of_rank, one), (next_rank, other) in pairwise(found):
        if of_rank == next_rank:
            raise ValueError(f"rank {of_rank} is on two hosts, {names[one]} and {names[other]}")
    return [(of_rank, names[code]) for of_rank, code in found]


def _distinct(one: Ints, other: Ints) -> list[tuple[int, int]]:
    """The pairs that occur, each once."""
    code = joint_codes(one, other)
    example = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64)
    example[code] = np.arange(len(code))
    return list(zip(one[example].tolist(), other[example].tolist(), strict=True))
