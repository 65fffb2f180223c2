"""From the files and folders that a person names to a recording, of operators, of NIC traffic, or of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc

from diagnosis.job import Job, Layout, Place
from diagnosis.partial_logs import PartialLog, partial_logs
from offbeat import terminal
from producers.importers import kept, traffic, traffic_job
from producers.importers.fabric_names import unlisted
from producers.importers.files import expand
from producers.importers.formats import FORMATS
from producers.importers.job_of_rows import described_folder, recorded_job, recording_name
from producers.importers.recording import Recording, load
from producers.importers.traffic import Traffic
from schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class Reading:
    """What a person says of the recording: its format, its layout, the operator that ends an iteration.

    None: to be told from the recording.
    """

    format_name: str | None = None
    layout: Layout | None = None
    iteration_end: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Everything that was recorded of one job: its operators, what its NICs sent, or both; and what hosts did not
    record of their NICs or lacks at files' ends, a line each."""

    job: Job
    operators: Recording | None
    traffic: Traffic | None
    untold: tuple[str, ...] = ()

    @property
    def ranks_seen(self) -> set[int]:
        """Ranks that logged operators, or called where it is told what their NICs sent."""
        logged = set() if self.operators is None else set(pc.unique(self.operators.table.column("rank")).to_pylist())
        return logged | (set() if self.traffic is None else traffic_job.compared(self.job, self.traffic))

    @property
    def partial(self) -> list[PartialLog]:
        """Ranks that logged operators of a part of the iterations alone."""
        return [] if self.operators is None else partial_logs(self.operators.table)

    @property
    def step(self) -> int:
        """By how much the numbers of iterations rise from one to the next that was recorded."""
        return 1 if self.operators is None else self.operators.step

    @property
    def silent_ns(self) -> int | None:
        """For how long NICs were polled after the last call, where nothing tells that the job was over."""
        return None if self.traffic is None or self.job.ended_ns is not None else self.traffic.silent_ns

    @property
    def lines_read(self) -> int:
        """Operators and calls that were read."""
        of_operators = 0 if self.operators is None else self.operators.table.num_rows
        return of_operators + (0 if self.traffic is None else self.traffic.op_calls.num_rows)

    @property
    def lost_lines(self) -> int:
        """Operators and calls that are known to be missing."""
        of_operators = 0 if self.operators is None else self.operators.lost_lines
        return of_operators + (0 if self.traffic is None else self.traffic.lost_calls)

    def ended(self, late_ns: int) -> Recorded:
        """The same, of a job that has ended: where only NIC traffic was recorded, nothing follows the last polls.

        ``late_ns``: how long after its end all of a job is told (``StepRules``).
        """
        job, traffic = self.job, self.traffic
        if traffic is None or self.operators is not None or job.ended_ns is not None or traffic.ended_ns is None:
            return self
        return replace(self, job=replace(job, ended_ns=traffic.ended_ns - late_ns))


def read_all(paths: Sequence[Path], reading: Reading, *, noting: bool = True) -> Recorded:
    """Read what there is of one job: operators where files hold any, NIC traffic where files are of it by their name.

    ``noting`` is that of ``read``. Raises ``InputError`` where it cannot be read.
    """
    if not any(traffic.holds_any(path) for path in paths):
        operators = read(paths, reading, noting=noting)
        return Recorded(operators.job, operators, None, operators.gone)
    of_operators = [path for path in paths if not traffic.holds_any(path) or (path.is_dir() and _holds_operators(path))]
    recording = read(of_operators, reading, noting=noting) if of_operators else None
    if recording is None and reading.format_name is not None:
        raise InputError(f"{paths[0]}: holds NIC traffic alone, which is known by its names; leave --format out")
    if recording is None and reading.iteration_end is not None:
        raise InputError(f"{paths[0]}: NIC traffic itself tells where its iterations end; leave --iteration-op out")
    with terminal.progress("reading what NICs sent"):
        sent = traffic.load(paths)
        folder = described_folder([file for file in expand(paths) if traffic.holds_any(file)])
        name = recording_name(folder)
        beside = recorded_job(folder, name)
        described = beside if recording is None else _with(recording.job, beside)
        job, placed = traffic_job.complete(sent, name, described, reading.layout)
    not_read = (f"{told}; those of hosts are named host=NAME" for path in paths if (told := _not_read(path)))
    untold = (*placed.gone, *traffic_job.untold(job, placed), *not_read)
    for line in (*untold, *(unlisted(job) if recording is None else ())):
        terminal.note(line)
    return Recorded(job, recording, placed, untold)


def _with(job: Job, beside: Job | None) -> Job:
    """The job that operators tell of, with what is given beside the traffic and not beside them."""
    if beside is None:
        return job
    given = job.layout if job.layout is not None and job.layout.source == "given" else beside.layout or job.layout
    named = {communicator.communicator for communicator in job.communicators}
    return replace(
        job,
        places=tuple(_placed(place, beside.place.get(place.rank)) for place in job.places),
        communicators=(*job.communicators, *(one for one in beside.communicators if one.communicator not in named)),
        layout=given,
        started_ns=beside.started_ns if job.started_ns is None else job.started_ns,
        ended_ns=beside.ended_ns if job.ended_ns is None else job.ended_ns,
    )


def _placed(place: Place, beside: Place | None) -> Place:
    if beside is None:
        return place
    gpu = beside.gpu if place.gpu is None else place.gpu
    return replace(place, host=place.host or beside.host, gpu=gpu, nics=place.nics or beside.nics)


def read(paths: Sequence[Path], reading: Reading, *, noting: bool = True) -> Recording:
    """Read one recording; where others lie in folders of a folder it is said that these are not read.

    What agents keep is found in the folders of a folder: it lies so. ``noting`` tells what of it is gone, for a caller
    that does not. Raises ``InputError`` where the recording cannot be read, and where it is of NIC traffic alone.
    """
    if paths and all(_holds_traffic_alone(path) for path in paths):
        raise InputError(
            f"{paths[0]}: holds NIC traffic alone, and this command takes operators; `offbeat diagnose` and "
            "`offbeat produce --recording` take either"
        )
    plain = [path for path in paths if not path.is_dir() or (_holds_telemetry(path) and not kept.holds_any(path))]
    paths = [*plain, *kept.folders([path for path in paths if path not in plain])]
    for folder in paths:
        inner = _recordings_in(folder)
        if inner and not _holds_telemetry(folder):
            of_hosts = f"; if they are of one job's hosts, name all of them, or call them host=NAME: {inner[0]} ..."
            advice = of_hosts if traffic.holds_any(inner[0]) else f"; name one of them, as {inner[0]}"
            raise InputError(f"{folder}: folders in a folder are not read{advice}")
        if told := _not_read(folder):
            terminal.note(told)
    end, layout = reading.iteration_end, reading.layout
    with terminal.progress("reading"):
        recording = load(paths, format_name=reading.format_name, layout=layout, iteration_end=end)
    if noting:
        for line in (*recording.gone, *unlisted(recording.job)):
            terminal.note(line)
    return recording


def _not_read(path: Path) -> str | None:
    """What is said of the folders in a folder that hold telemetry of their own."""
    inner = ", ".join(each.name for each in _recordings_in(path))
    return f"{path}: folders in a folder are not read: {inner}" if inner else None


def _recordings_in(folder: Path) -> list[Path]:
    """Folders in a folder that hold telemetry of their own, not a partition's."""
    if not folder.is_dir():
        return []
    return [
        child
        for child in sorted(folder.iterdir())
        if child.is_dir() and "=" not in child.name and _holds_telemetry(child)
    ]


def _holds_telemetry(folder: Path) -> bool:
    return _holds_operators(folder) or traffic.holds_any(folder)


def _holds_traffic_alone(path: Path) -> bool:
    beside = path.is_dir() and (_holds_operators(path) or kept.holds_any(path))
    return traffic.holds_any(path) and not beside


def _holds_operators(folder: Path) -> bool:
    return any(format_.matches(file) for file in expand([folder]) for format_ in FORMATS.values())
