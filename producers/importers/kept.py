"""What a log agent keeps on its host, read beside it or after it: closed iterations, and what is in the rings yet.

Nothing is changed by it. An agent may be writing, or have been killed: what is damaged, or goes while it is read, is
told and passed over, and ends the reading only where nothing else is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from diagnosis.job import Communicator, Job, Layout, Place
from producers import kept_iterations
from producers.importers.about import About, described
from producers.importers.columns import SCHEMA
from producers.importers.files import Limits, common_folder
from producers.importers.job_of_rows import read_job_file
from producers.live.rank_log import table_of
from producers.live.registration import REGISTRATION, RING, Registration, told_groups
from producers.live.ring import MAGIC
from producers.live.ring_reader import RECORD, RingReader
from producers.segments import MAGIC as FRAMES_MAGIC
from producers.segments import SUFFIX, begins_with, read_frames
from schemas.errors import ImpossibleValue, InputError
from schemas.topic import ID

MOST_TOLD = 20
"""Faults that are told one by one."""

_DEPTH = 4
"""Folders below the one that is named: a host's, its agent's, the ``jobs`` in it, a job's."""


class Kept:
    """What ``offbeat agent`` keeps of a job on one host or several."""

    name = "kept"
    what = "*.frames that an agent keeps of a job, ring-* of its processes"

    def matches(self, path: Path) -> bool:
        """Whether a file is of this format, by its name; what waits for Kafka lies in files of the same name."""
        if path.suffix != SUFFIX:
            return _is_ring(path)
        try:
            return path.is_file() and begins_with(path, 1) != b"{"
        except OSError:  # to be refused by name
            return True

    def begins(self, path: Path) -> bool:
        """Whether a file begins as kept iterations and rings do."""
        try:
            with path.open("rb") as file:
                return file.read(8).startswith((FRAMES_MAGIC, MAGIC))
        except OSError:
            return False

    def read(self, files: Sequence[Path], limits: Limits) -> pa.Table:
        """All rows of the files, in the files' order; what is gone is in the metadata (about.py).

        Raises ``InputError`` where files are larger than the limits, belong to several jobs, or none can be read.
        """
        found = _Found(limits)
        for path in files:
            if not _is_ring(path):
                found.take_iterations(path)
        for folder in dict.fromkeys(path.parent for path in files if _is_ring(path)):
            found.take_process(folder, [path for path in files if path.parent == folder])
        if found.faults and not any(table.num_rows for table in found.tables):
            raise InputError(found.faults[0])
        table = pa.concat_tables([SCHEMA.empty_table(), *found.tables]).unify_dictionaries().combine_chunks()
        job = _job(files, found.processes)
        return described(table, About(job=None if job is None else job.to_row(), gone=tuple(found.gone())))


def folders(paths: Sequence[Path]) -> list[Path]:
    """The folders of one job within others: an agent's, those with what was copied from several hosts, or the rings.

    A folder itself where there are none. Of the jobs in one it is that which the others are of: those first that hold
    the logs of a job themselves. Raises ``InputError`` where that does not tell.
    """
    found = [(path, folders_by_job(path)) for path in paths]
    named = {job for path, jobs in found if holds_any(path) for job in jobs}
    certain = named or {job for _, jobs in found if len(jobs) == 1 for job in jobs}
    return [folder for path, jobs in found for folder in _of_one(path, jobs, certain)]


def _of_one(path: Path, jobs: Mapping[str, list[Path]], certain: Collection[str]) -> list[Path]:
    if not jobs or holds_any(path):
        return [path]
    if len(certain) == 1:
        return next((own for job, own in jobs.items() if job in certain), [])
    if len(jobs) == 1:
        return next(iter(jobs.values()))
    names, [example, *_] = ", ".join(sorted(jobs)[:MOST_TOLD]), next(iter(jobs.values()))
    raise InputError(f"{path}: holds logs of several jobs ({names}); name the folders of one, as {example}")


def folders_by_job(path: Path) -> dict[str, list[Path]]:
    """The folder itself, or those within it, that hold what agents keep, by job."""
    jobs: dict[str, list[Path]] = {}
    for folder in [path] if holds_any(path) else _below(path, _DEPTH):
        jobs.setdefault(_name(folder), []).append(folder)
    return jobs


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """Folders in a folder that hold files of this format; links, and what others have shut, are left aside."""
    try:
        children = sorted(child for child in folder.iterdir() if child.is_dir() and not child.is_symlink())
    except PermissionError:
        return
    for child in children:
        if holds_any(child):
            yield child
        elif depth > 1:
            yield from _below(child, depth - 1)


def holds_any(folder: Path) -> bool:
    """Whether files of this format lie in a folder itself."""
    return any(KEPT.matches(file) for pattern in (f"*{SUFFIX}", f"{RING}*") for file in folder.glob(pattern))


def _name(folder: Path) -> str:
    """The job whose logs a folder holds."""
    if (folder / REGISTRATION).is_file():
        try:
            return Registration.read(folder).job
        except (OSError, ValueError):  # reading it tells
            return ""
    told = read_job_file(folder)
    return unquote(folder.name) if told is None else told.job


def _is_ring(path: Path) -> bool:
    return path.name.startswith(RING) and (path.parent / REGISTRATION).is_file()


@dataclass
class _Found:
    """What was read so far; ``first`` and ``oldest`` are the iterations by which each folder began, and begins now."""

    limits: Limits
    tables: list[pa.Table] = field(default_factory=list)
    processes: list[Registration] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    first: dict[Path, int] = field(default_factory=dict)
    oldest: dict[Path, int] = field(default_factory=dict)
    decoded_bytes: int = 0

    def take_iterations(self, path: Path) -> None:
        """Take the iterations of a file that can be read."""
        try:
            self._require_size(path)
            for frame, payload in read_frames(path):
                try:
                    self._take_iteration(path, frame.number, payload)
                except ImpossibleValue as error:
                    self.faults.append(f"{path}: iteration {frame.number}: {error}")
                except kept_iterations.TooLarge as error:
                    raise self._too_large(path) from error
                except kept_iterations.UNREADABLE as error:
                    self.faults.append(f"{path}: iteration {frame.number} cannot be read: {_first_line(error)}")
        except ValueError as error:
            self.faults.append(str(error))
        except OSError as error:
            self.faults.append(f"{path}: {error.strerror or error}")

    def take_process(self, folder: Path, rings: Sequence[Path]) -> None:
        """Take what the rings of a process hold of iterations that its agent has not closed."""
        try:
            who = Registration.read(folder)
        except (OSError, ValueError) as error:
            self.faults.append(f"{folder}: {_first_line(error)}")
            return
        records = [np.zeros(0, dtype=RECORD)]
        for ring in rings:
            try:
                self._require_size(ring)
                records.append(RingReader(ring, for_reading=True).snapshot())
            except OSError as error:
                self.faults.append(f"{ring}: {error.strerror or error}")
            except _TooLarge:
                raise
            except InputError as error:
                self.faults.append(str(error))
        joined = np.concatenate(records)
        table = table_of(joined[np.argsort(joined["call_ns"], kind="stable")], who)
        self.processes.append(who)
        self._add(folder, table.append_column("host", pa.array([who.host] * table.num_rows, pa.string()).cast(ID)))

    def gone(self) -> Iterator[str]:
        """What is missing, in words."""
        lost: dict[tuple[int, int], list[Path]] = defaultdict(list)
        for folder, oldest in self.oldest.items():
            if self.first[folder] < oldest:
                lost[self.first[folder], oldest - 1].append(folder)
        for (first, last), folders in sorted(lost.items()):
            where = f"{folders[0]}" + (f" and {len(folders) - 1} more" if len(folders) > 1 else "")
            yield f"iterations {first}-{last} are no longer kept in {where}"
        yield from self.faults[:MOST_TOLD]
        if len(self.faults) > MOST_TOLD:
            yield f"and {len(self.faults) - MOST_TOLD} more places that cannot be read"

    def _take_iteration(self, path: Path, number: int, payload: bytes) -> None:
        _, about, table = kept_iterations.decode(payload, self.limits.decoded_bytes - self.decoded_bytes)
        first = int(about["first"])
        kept_iterations.require_possible(table, number)
        self._add(path, table.append_column("host", pa.nulls(table.num_rows, ID)))
        self.first[path.parent] = min(first, self.first.get(path.parent, first))
        self.oldest[path.parent] = min(number, self.oldest.get(path.parent, number))

    def _add(self, path: Path, table: pa.Table) -> None:
        self.decoded_bytes += table.nbytes
        if self.decoded_bytes > self.limits.decoded_bytes:
            raise self._too_large(path)
        self.tables.append(table.cast(SCHEMA))

    def _require_size(self, path: Path) -> None:
        size = path.stat().st_size
        if size > self.limits.file_bytes:
            raise _TooLarge(f"{path}: {size} bytes, at most {self.limits.file_bytes} are read")

    def _too_large(self, path: Path) -> InputError:
        return _TooLarge(
            f"{path}: the recording holds more than {self.limits.decoded_bytes} bytes once decompressed; read the "
            "folders of fewer hosts"
        )


class _TooLarge(InputError):
    """Ends the reading."""


def _job(files: Sequence[Path], processes: Sequence[Registration]) -> Job | None:
    """The job as a job.json above or beside the files describes it, else as its processes do, else by its name."""
    folders = dict.fromkeys([common_folder(files), *(path.parent for path in files)])
    told = [job for folder in folders if (job := read_job_file(folder)) is not None]
    names = {job.job for job in told} | {who.job for who in processes}
    if len(names) > 1:
        raise InputError(f"{files[0]}: beside the logs of others: {', '.join(sorted(names))}; name one job's folders")
    if told:
        return told[0]
    if processes:
        return _registered(processes)
    kept_as = {unquote(path.parent.name) for path in files}
    return Job(kept_as.pop(), (), ()) if len(kept_as) == 1 else None


def _registered(processes: Sequence[Registration]) -> Job:
    """What processes told of their job; whoever is not here has no place but its number."""
    groups = told_groups(processes)
    given = next((who.layout for who in processes if who.layout), None)
    known = {who.rank: Place(who.rank, who.host, who.gpu) for who in processes}
    others = {rank for group in groups for rank in group.ranks}
    others |= {rank for who in processes for rank in range(who.world or 0)}
    places: Mapping[int, Place] = {rank: known.get(rank, Place(rank)) for rank in others | set(known)}
    return Job(
        processes[0].job,
        tuple(places[rank] for rank in sorted(places)),
        tuple(Communicator(group.communicator, group.ranks, group.kind) for group in groups),
        layout=None if given is None else Layout(**given, source="given"),
        started_ns=min((who.started_ns for who in processes if who.started_ns is not None), default=None),
    )


KEPT = Kept()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
