"""All jobs whose processes log on this host: found by their rings, told iteration by iteration, kept, and let go."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import quote, unquote

from diagnosis.job import Job
from producers.importers.job_of_rows import read_job_file, write_job_file
from producers.job_source import JobSource
from producers.live.description import describe, has_begun, is_whole, with_news
from producers.live.live_store import LiveStore
from producers.live.rank_log import RankLog
from producers.live.registration import folders, is_ours
from producers.live.shared_logs import SharedLogs
from producers.live.turns import Turns
from producers.log_agent import LogAgent, Request
from producers.segments import SUFFIX, Segments
from schemas.errors import InputError
from schemas.message import Message

log = logging.getLogger(__name__)

Described = Callable[[str], Job | None]
Pivots = Callable[[Job], Collection[int]]

ANSWERED_FOR_S = 3600.0
"""How long the logs of a job that is over are kept, for whoever still asks."""

ASKED_AGAIN_S = 60.0
"""How long it is known where these logs are on disk: a search asks several times."""

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


@dataclass(frozen=True, slots=True)
class JobFigures:
    """What is told of a job as metrics."""

    job: str
    operators: int
    dropped: int
    kept_iterations: int
    closed: int


@dataclass(frozen=True, slots=True)
class _Over:
    """What is at hand of a job that is over: where its logs are, and what was counted."""

    folder: Path
    keep_bytes: int
    ranks: tuple[int, ...]
    host: str
    figures: JobFigures

    def agent(self) -> LogAgent:
        """What answers from the logs on disk; raises ``OSError`` or ``InputError`` where they cannot be read."""
        job = read_job_file(self.folder)
        if job is None:
            raise InputError(f"{self.folder}: nothing describes the job")
        # Another job of this name may have begun meanwhile, and write there.
        segments = Segments(self.folder, self.keep_bytes, for_reading=True)
        return LogAgent(LiveStore(job, self.ranks, segments), self.host, ())


class LiveJob:
    """One job's processes on this host, and the agent that tells of them once the job is described.

    One thread at a time, but for what ``process`` and ``late`` give: those answers are worked out as they are asked
    for, by one thread, whatever another does meanwhile. Look-ups of a job that runs take ``turns``.
    """

    def __init__(self, name: str, folder: Path, keep_bytes: int, turns: Turns) -> None:
        self.name = name
        self.logs: list[RankLog] = []
        self.ended_at: float | None = None
        self.unanswered: list[Request] = []
        self._folder = folder
        self._keep_bytes = keep_bytes
        self._turns = turns
        self._store: LiveStore | None = None
        self._agent: LogAgent | None = None
        self._source: JobSource | None = None
        self._over: _Over | None = None
        self._answering: LogAgent | None = None
        self._asked_at = 0.0
        self._told_waiting = False
        self._dead_since: float | None = None

    def add(self, rank_log: RankLog) -> None:
        """Take a process that has appeared."""
        self.logs.append(rank_log)
        if self._store is not None:
            self._store.add(rank_log)

    def step(self, described: Job | None, pivots: Pivots, host: str) -> Iterator[Message]:
        """What there is to tell by now; ``described`` is the job where somebody else describes it.

        Whoever asks for the next message has made the last one safe: only then is another iteration closed, and what
        the processes left is removed. What an agent before this one closed last is told again: it may have ended
        before it was safe.
        """
        if self.ended_at is not None:
            if time.monotonic() - self._asked_at > ASKED_AGAIN_S:
                self._answering = None
            return
        begins = self._agent is None
        if self._agent is None:
            for rank_log in self.logs:
                rank_log.look()
            begun = has_begun(self.logs) or self._was_begun()
            job = (described or describe(self.logs)) if begun else None
            if job is None:
                if begun:
                    self._tell_waiting()
                for rank_log in self.logs:
                    rank_log.relieve()
                self._give_up()
                return
            self._begin(job, pivots, host)
        if self._agent is None:
            return
        yield from self._of_source()
        if begins:
            yield from self._agent.again()
        while (told := self._agent.close()) is not None:
            yield from self._news()
            yield from told
        if self._agent.ended:
            yield from self._of_source()
            self._end(self._agent)

    def process(self, message: Message) -> Iterable[Message]:
        """Answer a request, of a job that is over from what is on disk. Raises ``MessageError`` for a bad one."""
        if self._agent is not None:
            return self._agent.process(message)
        if self._over is None or message.job != self.name:
            return ()
        return self._from_disk(self._over, lambda agent: agent.process(message))

    def late(self) -> Iterable[Message]:
        """Answers to requests that waited for iterations to be closed."""
        if self._agent is not None:
            return self._agent.answers(self._agent.due())
        if self._over is None or not self.unanswered:
            return ()
        requests, self.unanswered = self.unanswered, []
        return self._from_disk(self._over, lambda agent: agent.answers(requests))

    def _from_disk(self, over: _Over, answers: Callable[[LogAgent], Iterable[Message]]) -> Iterator[Message]:
        try:
            agent = self._answering = self._answering or over.agent()
        except (OSError, InputError) as error:
            log.warning("%s: what is kept of the job cannot be read: %s", self.name, error)
            return
        self._asked_at = time.monotonic()
        yield from answers(agent)

    def figures(self) -> JobFigures:
        """Counts so far."""
        if self._over is not None:
            return self._over.figures
        kept, closed = (0, -1) if self._store is None else (self._store.kept, self._store.closed)
        operators = sum(rank_log.appended for rank_log in self.logs)
        dropped = sum(rank_log.dropped + rank_log.forgotten for rank_log in self.logs)
        return JobFigures(self.name, operators, dropped, kept, closed)

    def forget(self) -> None:
        """Let go of what is kept of a job that is over."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, agent: LogAgent) -> None:
        """Let go of the memory and of what the processes left; what was closed stays on disk for whoever still asks."""
        figures = self.figures()
        self._over = _Over(self._folder, self._keep_bytes, agent.ranks, agent.host, figures)
        log.info(
            "%s: over after iteration %d; %d operators logged here, %d dropped",
            self.name,
            figures.closed,
            figures.operators,
            figures.dropped,
        )
        self.unanswered = agent.due()
        self._store, self._agent, self._source = None, None, None
        self._let_go()

    def _let_go(self) -> None:
        self.ended_at = time.monotonic()
        for rank_log in self.logs:
            rank_log.remove()
        self.logs = []

    def _give_up(self) -> None:
        """End a job whose processes are all gone before it has begun: at once where they logged nothing, in time where
        nobody has described it.
        """
        if not self.logs or any(rank_log.alive for rank_log in self.logs):
            self._dead_since = None
            return
        now = time.monotonic()
        self._dead_since = now if self._dead_since is None else self._dead_since
        operators = sum(rank_log.appended for rank_log in self.logs)
        if operators and now - self._dead_since <= ANSWERED_FOR_S:
            return
        if operators:
            log.warning("%s: over, and nobody has described it: what it logged here is let go", self.name)
        self._let_go()

    def _was_begun(self) -> bool:
        """Whether an agent before this one has kept iterations of the job."""
        return any(self._folder.glob(f"*{SUFFIX}"))

    def _begin(self, job: Job, pivots: Pivots, host: str) -> None:
        here = sorted({rank_log.rank for rank_log in self.logs})
        name = next((place.host for rank in here if (place := job.place.get(rank)) and place.host), host)
        segments = Segments(self._folder, self._keep_bytes)
        if segments.cut_bytes:
            log.warning("%s: the last %d bytes that were kept were damaged and cut off", job.job, segments.cut_bytes)
        self._store = LiveStore(job, sorted({*here, *job.ranks_of_host.get(name, ())}), segments)
        for rank_log in self.logs:
            self._store.add(rank_log)
        self._describe(job)
        log.info(
            "%s: %d of %d ranks log here, from iteration %d on",
            self.name,
            len(here),
            len(job.ranks),
            self._store.closed + 1,
        )
        self._agent = LogAgent(self._store, name, pivots(job), logs=SharedLogs(self._store, self._turns))
        if job.ranks and job.ranks[0] in self._store.ranks:  # of all agents one tells of the job itself
            self._source = JobSource(job, [self._agent])

    def _news(self) -> list[Message]:
        """What an iteration that was just closed has shown of the job itself."""
        if self._store is None or self._source is None or not is_whole(self.logs):
            return []
        job = with_news(self._store.job, self.logs)
        if job is self._store.job:
            return []
        self._store.job = job
        self._describe(job)
        return [self._source.redescribe(job)]

    def _describe(self, job: Job) -> None:
        """Say beside what is kept whose it is: whoever reads it later has nobody to ask."""
        try:
            write_job_file(self._folder, job)
        except OSError as error:  # iterations matter more: if they cannot be kept either, that ends the agent
            log.warning("%s: what is kept is not described: %s", self.name, error)

    def _of_source(self) -> list[Message]:
        return (self._source.advance() or []) if self._source is not None else []

    def _tell_waiting(self) -> None:
        if not self._told_waiting and not is_whole(self.logs):
            self._told_waiting = True
            log.info(
                "%s: ranks %s are here; the rest of the job is not known yet: it must come by control.jobs, or be "
                "given with --job",
                self.name,
                sorted({rank_log.rank for rank_log in self.logs}),
            )


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
        return bool(self._jobs) and all(job.ended_at is not None and not job.unanswered for job in self._jobs.values())

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
            if job.ended_at is not None and time.monotonic() - job.ended_at > ANSWERED_FOR_S:
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
            old = time.time() - max((path.stat().st_mtime for path in folder.iterdir()), default=0) > ANSWERED_FOR_S
            if old and unquote(folder.name) not in self._jobs:
                shutil.rmtree(folder, ignore_errors=True)

    def _discover(self) -> None:
        found = [folder for folder in folders(self._rings) if folder not in self._seen]
        self._seen.intersection_update(folders(self._rings))
        for folder in found:
            self._seen.add(folder)
            try:
                rank_log = _rank_log(folder)
                kept = self._folder / folder_name(rank_log.registration.job)
            except (OSError, ValueError) as error:
                log.warning("the training process that logs in %s is passed over: %s", folder, error)
                continue
            name = rank_log.registration.job
            job = self._jobs.get(name)
            if job is None or job.ended_at is not None:
                job = self._jobs[name] = LiveJob(name, kept, self._keep_bytes, self._turns)
            job.add(rank_log)


def _rank_log(folder: Path) -> RankLog:
    """A process's log. Only root opens what others put among the rings; raises ``PermissionError`` otherwise."""
    if os.geteuid() != 0 and not is_ours(folder):
        raise PermissionError(f"{folder} is another user's: an agent that is to read it runs as that user, or as root")
    return RankLog(folder)
