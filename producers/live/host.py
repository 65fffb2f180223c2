"""All jobs whose processes log on this host: found by their rings, told iteration by iteration, kept, and let go."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import quote, unquote

from diagnosis.job import Job
from producers.live import live_job
from producers.live.live_job import JobFigures, LiveJob, Pivots
from producers.live.rank_log import RankLog
from producers.live.registration import folders, is_ours
from producers.live.turns import Turns
from schemas.message import Message

log = logging.getLogger(__name__)

Described = Callable[[str], Job | None]

_LONGEST_NAME = 255
"""Of a folder, in bytes."""


def folder_name(job: str) -> str:
    """The name of a job's folder; ``unquote`` gives the job again.

    A training process names its job: whatever it says, the folder lies within the agent's own. Raises ``ValueError``
    for a name that no folder can have.
    """
    name = quote(job, safe="")
    if not name.strip("."):  # "." and ".." are other folders
        name = name.replace(".", "%2E")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"a job's name takes {len(name)} bytes, at most {_LONGEST_NAME} can be kept: {job[:40]!r}...")
    return name


class Host:
    """The agent of a host but for the bus: ``step`` yields what to publish, ``process`` and ``late`` answer requests.

    ``rings`` is where the processes log, ``folder`` where iterations are kept, up to ``keep_bytes`` a job.
    ``described`` gives the jobs that somebody else describes; others must run on this host alone. ``pivots`` names the
    ranks of a job whose rows are published unasked. One thread may step while another answers: it waits for the
    look-up of one rank at most.
    """

    def __init__(
        self,
        rings: Path,
        folder: Path,
        keep_bytes: int,
        described: Described,
        pivots: Pivots,
        *,
        name: str | None = None,
    ) -> None:
        self._rings = rings
        self._folder = folder
        self._keep_bytes = keep_bytes
        self._described = described
        self._pivots = pivots
        self._name = name or os.uname().nodename
        self._turns = Turns()
        self._seen: set[Path] = set()
        self._jobs: dict[str, LiveJob] = {}
        self._tidied = False

    @property
    def jobs(self) -> Sequence[JobFigures]:
        """Figures of each job."""
        return [job.figures() for job in list(self._jobs.values())]

    @property
    def ended(self) -> bool:
        """Whether there was a job, and all are over, told, and whoever waited has an answer."""
        return bool(self._jobs) and all(job.is_done for job in self._jobs.values())

    def step(self) -> Iterator[Message]:
        """Look for processes and at their rings; what there is to tell.

        Whoever asks for the next message has made the last one safe. Raises ``StoreError`` where a disk is full.
        """
        with self._turns:
            self._discover()
            if not self._tidied:
                self._tidied = True
                self._tidy()
            jobs = list(self._jobs.items())
        for name, job in jobs:
            told = job.step(self._described(name), self._pivots, self._name)
            while (message := self._next(told)) is not None:
                yield message
            if job.over_since is not None and time.monotonic() - job.over_since > live_job.ANSWERED_FOR_S:
                with self._turns:
                    job.forget()
                    del self._jobs[name]

    def _next(self, told: Iterator[Message]) -> Message | None:
        with self._turns:
            return next(told, None)

    def process(self, message: Message) -> Iterable[Message]:
        """Answer a request for logs, now or with ``late``. Raises ``MessageError`` for a bad one."""
        with self._turns:
            answers = [job.process(message) for job in self._jobs.values()]
        return chain.from_iterable(answers)

    def late(self) -> Iterable[Message]:
        """Answers to requests that waited for iterations to be closed."""
        with self._turns:
            answers = [job.late() for job in self._jobs.values()]
        return chain.from_iterable(answers)

    def _tidy(self) -> None:
        """Let go of what an agent before this one kept of jobs that are over."""
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if not folder.is_dir():
                continue
            newest = max((path.stat().st_mtime for path in folder.iterdir()), default=0)
            if time.time() - newest > live_job.ANSWERED_FOR_S and unquote(folder.name) not in self._jobs:
                shutil.rmtree(folder, ignore_errors=True)

    def _discover(self) -> None:
        """Take the processes that have appeared, in the order of their start."""
        found = [folder for folder in folders(self._rings) if folder not in self._seen]
        self._seen.intersection_update(folders(self._rings))
        appeared: list[tuple[RankLog, Path]] = []
        for folder in found:
            self._seen.add(folder)
            try:
                rank_log = _rank_log(folder)
                appeared.append((rank_log, self._folder / folder_name(rank_log.registration.job)))
            except (OSError, ValueError) as error:
                log.warning("the training process that logs in %s is passed over: %s", folder, error)
        for rank_log, kept in sorted(appeared, key=lambda each: each[0].started_ns):
            name = rank_log.registration.job
            if name not in self._jobs:
                self._jobs[name] = LiveJob(name, kept, self._keep_bytes, self._turns)
            self._jobs[name].add(rank_log)


def _rank_log(folder: Path) -> RankLog:
    """A process's log. Only root opens what others put among the rings; raises ``PermissionError`` otherwise."""
    if os.geteuid() != 0 and not is_ours(folder):
        raise PermissionError(f"{folder} is another user's: an agent that is to read it runs as that user, or as root")
    return RankLog(folder)
