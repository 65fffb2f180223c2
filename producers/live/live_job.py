"""One job whose processes log on this host: it waits to be described, it runs, it is over."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from diagnosis.job import Job
from producers.importers.job_of_rows import read_job_file, write_job_file
from producers.job_source import JobSource
from producers.live.another_run import Kept, begins_anew, kept_in, logged_before, tell
from producers.live.description import describe, has_begun, is_whole, with_news
from producers.live.live_store import LiveStore
from producers.live.rank_log import RankLog
from producers.live.shared_logs import SharedLogs
from producers.live.turns import Turns
from producers.log_agent import LogAgent, Request
from producers.segments import SUFFIX, Segments
from schemas.errors import InputError
from schemas.message import Message

log = logging.getLogger(__name__)

Pivots = Callable[[Job], Collection[int]]

ANSWERED_FOR_S = 3600.0
"""How long the logs of a job that is over are kept, for whoever still asks."""

ASKED_AGAIN_S = 60.0
"""How long it is known where these logs are on disk: a search asks several times."""


@dataclass(frozen=True, slots=True)
class JobFigures:
    """What is told of a job as metrics."""

    job: str
    operators: int = 0
    dropped: int = 0
    kept_iterations: int = 0
    closed: int = -1


@dataclass(frozen=True, slots=True)
class _Running:
    """Its processes log; ``source`` tells of the job itself, which of all agents one does."""

    store: LiveStore
    agent: LogAgent
    source: JobSource | None

    def of_source(self) -> list[Message]:
        """What there is to tell of the job itself."""
        return (self.source.advance() or []) if self.source is not None else []


@dataclass(frozen=True, slots=True)
class _OnDisk:
    """What is kept of a job that is over."""

    folder: Path
    keep_bytes: int
    ranks: tuple[int, ...]
    host: str

    def agent(self) -> LogAgent:
        """What answers from the logs on disk; raises ``OSError`` or ``InputError`` where they cannot be read."""
        job = read_job_file(self.folder)
        if job is None:
            raise InputError(f"{self.folder}: nothing describes the job")
        # Another job of this name may have begun meanwhile, and write there.
        segments = Segments(self.folder, self.keep_bytes, for_reading=True)
        return LogAgent(LiveStore(job, self.ranks, segments), self.host, ())


@dataclass
class _Over:
    """All is told; who still asks is answered from what is on disk, where anything is (``kept``)."""

    figures: JobFigures
    since: float
    kept: _OnDisk | None = None
    unanswered: list[Request] = field(default_factory=list)
    _agent: LogAgent | None = None
    _asked_at: float = 0.0

    def rest(self) -> None:
        """Let go of where the logs are on disk once nobody asks again."""
        if time.monotonic() - self._asked_at > ASKED_AGAIN_S:
            self._agent = None

    def process(self, message: Message) -> Iterable[Message]:
        """Answer a request."""
        return self._from_disk(lambda agent: agent.process(message)) if message.job == self.figures.job else ()

    def late(self) -> Iterable[Message]:
        """Answers to requests that waited when the job ended."""
        requests, self.unanswered = self.unanswered, []
        return self._from_disk(lambda agent: agent.answers(requests)) if requests else ()

    def _from_disk(self, answers: Callable[[LogAgent], Iterable[Message]]) -> Iterator[Message]:
        if self.kept is None:
            return
        try:
            agent = self._agent = self._agent or self.kept.agent()
        except (OSError, InputError) as error:
            log.warning("%s: what is kept of the job cannot be read: %s", self.figures.job, error)
            return
        self._asked_at = time.monotonic()
        yield from answers(agent)


@dataclass
class _Waiting:
    """Until the job has begun and somebody has described it. ``dead_since``: all its processes are gone since then.

    ``before``: what is over, of a job whose name is used again. ``told_again``: that it is was told.
    """

    folder: Path
    before: _Over | None = None
    told: bool = False
    told_again: bool = False
    dead_since: float | None = None

    @cached_property
    def kept(self) -> Kept | None:
        """What is kept of the job by now."""
        return kept_in(self.folder)


class LiveJob:
    """One job's processes on this host, and the agent that tells of them once the job is described.

    One thread at a time, but for what ``process`` and ``late`` give: those answers are worked out as they are asked
    for, by one thread, whatever another does meanwhile. Look-ups of a job that runs take ``turns``.
    """

    def __init__(self, name: str, folder: Path, keep_bytes: int, turns: Turns) -> None:
        self.name = name
        self._folder = folder
        self._keep_bytes = keep_bytes
        self._turns = turns
        self._logs: list[RankLog] = []
        self._state: _Waiting | _Running | _Over = _Waiting(folder)

    @property
    def over_since(self) -> float | None:
        """Since when it is over, in seconds of the monotonic clock; None: it is not."""
        return self._state.since if isinstance(self._state, _Over) else None

    @property
    def is_done(self) -> bool:
        """Whether it is over, and whoever waited has an answer."""
        return isinstance(self._state, _Over) and not self._state.unanswered

    @property
    def _told(self) -> _Running | _Over | None:
        """What there is to answer from."""
        return self._state.before if isinstance(self._state, _Waiting) else self._state

    @property
    def _own(self) -> list[RankLog]:
        """Its processes, but for those of another run."""
        return [rank_log for rank_log in self._logs if not rank_log.another_run]

    def add(self, rank_log: RankLog) -> None:
        """Take a process that has appeared; one that comes when all is over may go on, or be of another run."""
        if isinstance(self._state, _Over):
            self._state = _Waiting(self._folder, self._state)
        self._logs.append(rank_log)
        if isinstance(self._state, _Running):
            self._state.store.add(rank_log)

    def step(self, described: Job | None, pivots: Pivots, host: str) -> Iterator[Message]:
        """What there is to tell by now; ``described`` is the job where somebody else describes it.

        Whoever asks for the next message has made the last one safe: only then is another iteration closed, and what
        the processes left is removed. What an agent before this one closed last is told again: it may have ended
        before it was safe.
        """
        state = self._state
        if isinstance(state, _Over):
            state.rest()
            return
        begins = isinstance(state, _Waiting)
        if isinstance(state, _Waiting):
            job = self._described(state, described)
            if job is None:
                return
            state = self._state = self._begun(job, pivots, host)
        yield from state.of_source()
        if begins:
            yield from state.agent.again()
        while (told := state.agent.close()) is not None:
            yield from self._news(state)
            yield from told
        if state.agent.ended:
            yield from state.of_source()
            self._end(state)

    def process(self, message: Message) -> Iterable[Message]:
        """Answer a request, of a job that is over from what is on disk. Raises ``MessageError`` for a bad one."""
        state = self._told
        if state is None:
            return ()
        return state.agent.process(message) if isinstance(state, _Running) else state.process(message)

    def late(self) -> Iterable[Message]:
        """Answers to requests that waited for iterations to be closed."""
        state = self._told
        if state is None:
            return ()
        return state.agent.answers(state.agent.due()) if isinstance(state, _Running) else state.late()

    def figures(self) -> JobFigures:
        """Counts so far."""
        state = self._told
        if isinstance(state, _Over):
            return state.figures
        kept, closed = (0, -1) if state is None else (state.store.kept, state.store.closed)
        operators = sum(rank_log.appended for rank_log in self._own)
        dropped = sum(rank_log.dropped + rank_log.forgotten for rank_log in self._own)
        return JobFigures(self.name, operators, dropped, kept, closed)

    def forget(self) -> None:
        """Let go of what is kept of a job that is over."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _described(self, waiting: _Waiting, described: Job | None) -> Job | None:
        """What the job is once it has begun; until then its processes are kept from filling their rings."""
        for rank_log in self._logs:
            rank_log.look()
        logs = self._known(waiting)
        begun = has_begun(logs) or (bool(logs) and self._was_begun())
        job = (described or describe(logs)) if begun else None
        if job is None:
            if begun:
                self._tell_waiting(waiting, logs)
            for rank_log in logs:
                rank_log.relieve()
            self._give_up(waiting, logs)
        return job

    def _known(self, waiting: _Waiting) -> list[RankLog]:
        """Its processes, but for those that begin after others and have logged nothing yet, and those of another run:
        that there is one is told once.
        """
        known: list[RankLog] = []
        for rank_log in self._own:
            before = logged_before(rank_log, known, waiting.kept)
            if before is None:
                known.append(rank_log)
            elif rank_log.oldest_here is not None:
                rank_log.another_run = begins_anew(rank_log, before)
                if not rank_log.another_run:
                    known.append(rank_log)
                elif not waiting.told_again:
                    waiting.told_again = True
                    tell(self.name, rank_log, before[1])
        return known

    def _was_begun(self) -> bool:
        """Whether an agent before this one has kept iterations of the job."""
        return any(self._folder.glob(f"*{SUFFIX}"))

    def _tell_waiting(self, waiting: _Waiting, logs: Sequence[RankLog]) -> None:
        if not waiting.told and not is_whole(logs):
            waiting.told = True
            log.info(
                "%s: ranks %s are here; the rest of the job is not known yet: it must come by control.jobs, or be "
                "given with --job",
                self.name,
                sorted({rank_log.rank for rank_log in logs}),
            )

    def _give_up(self, waiting: _Waiting, logs: Sequence[RankLog]) -> None:
        """End a job whose processes are all gone before it has begun: at once where they logged nothing, in time where
        nobody has described it.
        """
        if not self._logs or any(rank_log.alive for rank_log in self._logs):
            waiting.dead_since = None
            return
        now = time.monotonic()
        waiting.dead_since = now if waiting.dead_since is None else waiting.dead_since
        operators = sum(rank_log.appended for rank_log in logs)
        if operators and now - waiting.dead_since <= ANSWERED_FOR_S:
            return
        if operators:
            log.warning("%s: over, and nobody has described it: what it logged here is let go", self.name)
        self._let_go(waiting.before or _Over(JobFigures(self.name), now))

    def _begun(self, job: Job, pivots: Pivots, host: str) -> _Running:
        here = sorted({rank_log.rank for rank_log in self._own})
        name = next((place.host for rank in here if (place := job.place.get(rank)) and place.host), host)
        segments = Segments(self._folder, self._keep_bytes)
        if segments.cut_bytes:
            log.warning("%s: the last %d bytes that were kept were damaged and cut off", job.job, segments.cut_bytes)
        store = LiveStore(job, sorted({*here, *job.ranks_of_host.get(name, ())}), segments)
        for rank_log in self._own:
            store.add(rank_log)
        self._describe(job)
        log.info(
            "%s: %d of %d ranks log here, from iteration %d on", self.name, len(here), len(job.ranks), store.closed + 1
        )
        agent = LogAgent(store, name, pivots(job), logs=SharedLogs(store, self._turns))
        is_first = bool(job.ranks) and job.ranks[0] in store.ranks
        return _Running(store, agent, JobSource(job, [agent]) if is_first else None)

    def _news(self, running: _Running) -> list[Message]:
        """What an iteration that was just closed has shown of the job itself."""
        logs = running.store.logs
        if running.source is None or not is_whole(logs):
            return []
        job = with_news(running.store.job, logs)
        if job is running.store.job:
            return []
        running.store.job = job
        self._describe(job)
        return [running.source.redescribe(job)]

    def _describe(self, job: Job) -> None:
        """Say beside what is kept whose it is: whoever reads it later has nobody to ask."""
        try:
            write_job_file(self._folder, job)
        except OSError as error:  # iterations matter more: if they cannot be kept either, that ends the agent
            log.warning("%s: what is kept is not described: %s", self.name, error)

    def _end(self, running: _Running) -> None:
        """Let go of the memory and of what the processes left; what was closed stays on disk for whoever still asks."""
        figures, agent = self.figures(), running.agent
        log.info(
            "%s: over after iteration %d; %d operators logged here, %d dropped",
            self.name,
            figures.closed,
            figures.operators,
            figures.dropped,
        )
        kept = _OnDisk(self._folder, self._keep_bytes, agent.ranks, agent.host)
        self._let_go(_Over(figures, time.monotonic(), kept, agent.due()))

    def _let_go(self, over: _Over) -> None:
        """Clear away what its processes left; those of another run that still log are passed over until they end."""
        following = [rank_log for rank_log in self._logs if rank_log.another_run and rank_log.alive]
        for rank_log in self._logs:
            if rank_log not in following:
                rank_log.remove()
        self._logs = following
        self._state = _Waiting(self._folder, over, told_again=True) if following else over
