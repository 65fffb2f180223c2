"""What is left of a window of the topics, read for a diagnosis that starts from it again.

Summaries go by as they are read, few of them ahead of the diagnosis. What searches ask for is held: logs that
travelled, and the requests that they answered, within a bound of bytes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from offbeat import terminal
from offbeat.comparison import Said
from producers.importers import kept
from producers.kept_folder import KeptFolder
from producers.kept_logs import KeptLogs, Room
from schemas import catalogue
from schemas.errors import InputError, MessageError, SettingsError
from schemas.log_answers import REQUEST_ID
from schemas.message import Message, decode
from schemas.processor import Processor
from schemas.topic import Topic
from streams.bus import Bus
from streams.control_view import Jobs

LOGGED_LATER_NS = 600 * 10**9
"""Logs that travel unasked do so by so much after a window; what is asked for and said of it may come at any time."""

LOOK_AHEAD_BYTES = 64 << 20
"""Summaries that are read before the diagnosis has come to them: a search asks when the iteration after one began."""

MOST_TOLD = 20
"""Records that cannot be read, of a topic, and known jobs: told one by one."""

_FOR_EVER = 1 << 62

_LOGS = (catalogue.LOG_REQUESTS, catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)
"""A request before what answered it."""


@dataclass(frozen=True, slots=True)
class Window:
    """From ``since_ns`` on and before ``until_ns``, by the brokers' time (ns since the epoch).

    What is usual is learned from ``lead_in_ns`` before; of that nothing is compared. ``jobs``: none means all.
    """

    since_ns: int
    until_ns: int
    lead_in_ns: int = 0
    jobs: tuple[str, ...] = ()


class Missing:
    """What is no longer there, in words; of many records that cannot be read the first ones, and how many more."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._unreadable: Counter[str] = Counter()

    def tell(self, line: str) -> None:
        if line not in self._told:
            self._told.append(line)

    def unreadable(self, message: Message, error: MessageError) -> None:
        """A record that is passed over."""
        self._unreadable[message.topic] += 1
        if self._unreadable[message.topic] <= MOST_TOLD:
            self.tell(f"{message.topic} partition {message.partition} offset {message.offset}: {error}")

    @property
    def lines(self) -> tuple[str, ...]:
        more = {topic: count - MOST_TOLD for topic, count in self._unreadable.items() if count > MOST_TOLD}
        return (*self._told, *(f"{count} more records of {topic} cannot be read" for topic, count in more.items()))


class LogsOfJobs(Mapping[str, KeptLogs]):
    """The logs of each job that is described, made when they are first asked for; iterated over are those that were.

    All share ``room``; ``folders`` are what agents keep of jobs.
    """

    def __init__(self, jobs: Jobs, room: Room, folders: Mapping[str, Sequence[Path]]) -> None:
        self.room = room
        self._jobs, self._folders = jobs, folders
        self._made: dict[str, KeptLogs] = {}

    def __getitem__(self, job: str) -> KeptLogs:
        if job not in self._made:
            folders = self._folders.get(job)
            folder = None if folders is None else KeptFolder(folders)
            self._made[job] = KeptLogs(self._jobs[job], self.room, folder)
        return self._made[job]

    def __contains__(self, job: object) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._made))

    def __len__(self) -> int:
        return len(self._made)


@dataclass
class Past:
    """A window: its jobs, what a diagnosis starts from, what it may ask for, and what was said of it then.

    ``summaries`` are read once, as they are diagnosed (``Summaries``). ``compared`` are the iterations of the window,
    by job, known once they were read, as ``missing`` is.
    """

    jobs: Jobs
    summaries: Iterable[Message]
    logs: LogsOfJobs
    then: Said
    since_ns: int
    missing: Missing
    compared: dict[str, set[int]] = field(default_factory=dict)


def of_topics(
    bus: Bus,
    window: Window,
    *,
    now_ns: int,
    room: Room | None = None,
    folders: Mapping[str, Sequence[Path]] | None = None,
) -> Past:
    """What the topics hold of a window at ``now_ns``; ``folders``: what agents keep of jobs beside that.

    Raises ``BusError``, and ``SettingsError`` for a job that nobody has described.
    """
    from streams.follower import Follower
    from streams.window import Held

    since_ns = window.since_ns - window.lead_in_ns
    jobs, missing = Jobs(), Missing()
    with Follower(bus, catalogue.JOBS.name) as follower:
        take(jobs, follower.catch_up(), missing)
    require_known(window.jobs, jobs)

    def held(topic: Topic, until_ns: int) -> Iterator[Message]:
        found = Held(bus, topic, since_ns, until_ns, window.jobs, now_ns=now_ns)
        yield from found
        if found.gone_before_ns is not None and found.gone_before_ns > since_ns:
            missing.tell(f"{topic.name} before {_utc(min(found.gone_before_ns, window.until_ns))} is no longer kept")

    # The pipeline may have been behind, and still be: what it asked for and said of the window came until now. An
    # incident that is older may not have been revised since.
    summaries = held(catalogue.ITERATION_SUMMARIES, window.until_ns)
    at_its_end = Held(
        bus,
        catalogue.ITERATION_SUMMARIES,
        max(since_ns, window.until_ns - LOGGED_LATER_NS),
        window.until_ns,
        window.jobs,
        now_ns=now_ns,
    )
    may_concern = _Concerned(window.until_ns, at_its_end)
    logs = filter(may_concern, chain.from_iterable(held(topic, now_ns) for topic in _LOGS))
    older = Held(bus, catalogue.INCIDENTS, 0, since_ns, window.jobs, now_ns=now_ns)
    said = chain(held(catalogue.FINDINGS, now_ns), held(catalogue.INCIDENTS, now_ns), older)
    return past_of(jobs, summaries, logs, said, window.since_ns, missing, room, folders)


def past_of(
    jobs: Jobs,
    summaries: Iterable[Message],
    logs: Iterable[Message],
    said: Iterable[Message],
    since_ns: int = 0,
    missing: Missing | None = None,
    room: Room | None = None,
    folders: Mapping[str, Sequence[Path]] | None = None,
) -> Past:
    """What records tell of the past; ``summaries`` from ``since_ns`` on are compared, those before it are a lead-in.

    ``logs`` are requests for logs, each before its answers, and rows.
    """
    missing = missing or Missing()
    kept_logs, then = LogsOfJobs(jobs, room or Room(), folders or {}), Said()
    for message in logs:
        try:
            if message.job in kept_logs:  # of others the summaries tell
                kept_logs[message.job].take(message)
        except MessageError as error:
            missing.unreadable(message, error)
    if kept_logs.room.refused:
        records = f"{terminal.counted(kept_logs.room.refused, 'record')} of logs"
        missing.tell(f"{records} found no room in memory: give a shorter window, fewer jobs, or more --memory")
    take(then, said, missing)
    return Past(jobs, summaries, kept_logs, then, since_ns, missing)


class _Concerned:
    """Tells the records of logs that can be of a window: those of later iterations would take the room of its own.

    ``at_its_end`` are the summaries that came last in it. Requests are asked about before their answers.
    """

    def __init__(self, until_ns: int, at_its_end: Iterable[Message]) -> None:
        self._unasked_until_ns = until_ns + LOGGED_LATER_NS
        self._last: dict[str, int] = {}
        self._later: set[str] = set()
        for message in at_its_end:
            with suppress(MessageError):  # told when it comes to be diagnosed
                iterations = decode(message, catalogue.ITERATION_SUMMARIES).column("iteration").to_pylist()
                if iterations:  # none: that nothing more will come
                    self._last[message.job] = max([*iterations, self._last.get(message.job, 0)])

    def __call__(self, message: Message) -> bool:
        if message.topic != catalogue.LOG_REQUESTS.name:
            asked = message.headers.get(REQUEST_ID)
            return message.timestamp_ns < self._unasked_until_ns if asked is None else asked not in self._later
        try:
            rows = decode(message, catalogue.LOG_REQUESTS).to_pylist()
        except MessageError:  # told when it is taken
            return True
        later = bool(rows) and min(row["iteration_from"] for row in rows) > self._last.get(message.job, _FOR_EVER)
        self._later.update(row["request_id"] for row in rows if later)
        return not later


class Summaries:
    """A source: the summaries of a past, one after the other, taken into its logs a little ahead."""

    name = "past"

    def __init__(self, past: Past) -> None:
        self._past = past
        self._coming = iter(past.summaries)
        self._ahead: deque[Message] = deque()
        self._ahead_bytes = 0

    def advance(self) -> Iterable[Message] | None:
        while self._ahead_bytes < LOOK_AHEAD_BYTES and (message := next(self._coming, None)) is not None:
            try:
                if self._take(message):
                    self._ahead.append(message)
                    self._ahead_bytes += len(message.value or b"")
            except MessageError as error:
                self._past.missing.unreadable(message, error)
        if not self._ahead:
            return None
        message = self._ahead.popleft()
        self._ahead_bytes -= len(message.value or b"")
        return (message,)

    def _take(self, message: Message) -> bool:
        """Note a record; whether it can be diagnosed. Raises ``MessageError`` for a bad one."""
        past, batch = self._past, decode(message, catalogue.ITERATION_SUMMARIES)
        if message.job not in past.logs:
            past.missing.tell(f"job {message.job} is no longer described in {catalogue.JOBS.name}")
            return False
        past.logs[message.job].take_summaries(batch)
        if message.timestamp_ns >= past.since_ns:
            past.compared.setdefault(message.job, set()).update(batch.column("iteration").to_pylist())
        return True


def folders_of_jobs(path: Path) -> dict[str, list[Path]]:
    """The folders in which agents keep logs, by job. Raises ``InputError`` where there are none."""
    if not path.is_dir():
        raise InputError(f"{path}: no such folder")
    found = kept.folders_by_job(path)
    if not found:
        raise InputError(f"{path}: holds nothing that an agent keeps; name its folder, or one with those of hosts")
    return found


def require_known(wanted: Sequence[str], jobs: Iterable[str]) -> None:
    """Raise ``SettingsError`` for a job that nobody has described."""
    known = sorted(jobs)
    for job in wanted:
        if job not in known:
            few = ", ".join(known[:MOST_TOLD]) + (
                f" and {len(known) - MOST_TOLD} more" if len(known) > MOST_TOLD else ""
            )
            raise SettingsError(f"job {job!r} is not described in {catalogue.JOBS.name}; there are: {few or 'none'}")


def take(reader: Processor, messages: Iterable[Message], missing: Missing) -> None:
    """Hand records to a reader; those that it refuses are missing."""
    for message in messages:
        try:
            list(reader.process(message))
        except MessageError as error:
            missing.unreadable(message, error)


def _utc(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 10**9, UTC):%Y-%m-%d %H:%M:%SZ}"
