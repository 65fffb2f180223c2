"""The job that a recording tells of: from a ``job.json`` beside the rows, and from the rows themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagnosis.columns import codes, integers
from diagnosis.job import Communicator, Job, Layout, Place
from diagnosis.layout import membership
from schemas.catalogue import JOBS
from schemas.errors import InputError

JOB_FILE = "job.json"
_MAX_BYTES = 256 << 20


def read_job_file(folder: Path) -> Job | None:
    """The job that a folder's job.json describes (a row of control.jobs); None where there is none."""
    path = folder / JOB_FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: more than {_MAX_BYTES} bytes")
        row = json.loads(path.read_text())
        if not isinstance(row, dict):
            raise InputError(f"{path}: not a JSON object")
        known = {name: value for name, value in row.items() if name in JOBS.schema.names}
        batch = JOBS.from_rows([known])
        missing = [c.name for c in JOBS.columns if not c.nullable and batch.column(c.name).null_count]
        if missing:
            raise InputError(f"{path}: field {missing[0]} is missing")
        return Job.from_row(batch.to_pylist()[0])
    except (OSError, ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a row of control.jobs: {error}") from error


def complete_job(table: pa.Table, name: str, described: Job | None, layout: Layout | None) -> Job:
    """The job of rows, with what is described of it taken first.

    Ranks are those that logged something or were met as peers; hosts come from the description, else from the
    column ``host``, and are never made up. Raises ``ValueError`` for a contradiction.
    """
    rank, peer = integers(table, "rank"), integers(table, "peer")
    communicator, names = codes(table, "communicator")
    seen = membership(rank, communicator, peer)
    places = {place.rank: place for place in described.places} if described else {}
    for host_rank, host in _hosts(table, rank):
        place = places.get(host_rank)
        if place is None or place.host is None:
            places[host_rank] = Place(host_rank, host) if place is None else replace(place, host=host)
    for member in np.unique(np.concatenate([rank, peer[peer >= 0]])).tolist():
        places.setdefault(member, Place(member))
    communicators = {c.communicator: c for c in described.communicators} if described else {}
    for code, ranks in seen.items():
        known = communicators.get(names[code])
        if known is None or not known.ranks:
            communicators[names[code]] = Communicator(names[code], ranks, known.kind if known else None)
        elif strangers := set(ranks) - set(known.ranks):
            raise ValueError(f"rank {min(strangers)} uses communicator {names[code]}, whose {JOB_FILE} leaves it out")
    job = described or Job(name, (), ())
    started_ns = job.started_ns if job.started_ns is not None else int(integers(table, "call_ns").min())
    return replace(
        job,
        places=tuple(places[r] for r in sorted(places)),
        communicators=tuple(communicators.values()),
        layout=layout or job.layout,
        started_ns=started_ns,
    )


def _hosts(table: pa.Table, rank: np.ndarray) -> Iterable[tuple[int, str]]:
    host, names = codes(table, "host")
    found = np.unique(np.stack([rank, host], axis=1)[host >= 0], axis=0)
    twice = np.flatnonzero(np.diff(found[:, 0]) == 0)
    if len(twice):
        (of_rank, one), (_, other) = found[twice[0]], found[twice[0] + 1]
        raise ValueError(f"rank {of_rank} is on two hosts, {names[one]} and {names[other]}")
    return [(int(of_rank), names[code]) for of_rank, code in found.tolist()]
