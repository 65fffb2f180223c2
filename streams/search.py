"""The step that searches the operator graph: irregular iterations in, log requests and findings out (Holmes 4.3).

Nothing of a search is saved: its iteration's offset is held until it ends, and a restart asks again under the
same request ids. Searches of one job run one after the other, so that its findings come in order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import TYPE_CHECKING, Any

from diagnosis.irregularity.operator_detector import OperatorDetector
from diagnosis.job import Job
from diagnosis.operator_graph.locate import Irregularity, LocateSettings, Location, locate
from diagnosis.operator_graph.needs import Answer, Needs
from schemas import catalogue
from schemas.errors import ImpossibleValue, MessageTooLarge
from schemas.log_answers import REQUEST_ID
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from streams.dead_letters import FAILURES
from streams.doubling import is_doubled
from streams.finding_rows import METHOD, located
from streams.findings import cleared
from streams.identity import identity
from streams.log_fetch import ANSWERS, Fetch

if TYPE_CHECKING:  # in process nobody asks for metrics
    from streams.search_metrics import SearchMetrics

log = logging.getLogger(__name__)

_EVERY = 16
"""Of a run that lasts, every so many iterations two are searched: a culprit that takes over from another is found
twice, as an incident needs."""

_NOTHING = Location(culprits=(), waits=(), visited=(), coverage=0.0, clock_error_ns=0, last_record_ns=0)
"""What a failed search found: nobody, and nothing is known."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Which irregular iterations are searched, and how long their logs are waited for (Holmes 4.3)."""

    answer_within_ns: int = 10_000_000_000
    """How long agents may take to answer a request, in nanoseconds; the search goes on without what has not come by
    then, which lowers its coverage."""
    last_ordinal: int = 64
    """Place in its run, or on a step within it, of the last irregular iteration that is searched; a higher one needs
    agents' logs that reach back to its baseline for longer."""
    locate: LocateSettings = field(default_factory=LocateSettings)

    def due(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of analysis.iterations is searched, by its place in its run and on the run's latest step."""
        ordinals = (row["pattern_ordinal"] or 0, row["step_ordinal"] or 0)
        return bool(row["irregular"]) and any(_is_due(n) and n <= self.last_ordinal for n in ordinals)


@dataclass(frozen=True, slots=True)
class _SearchTask:
    """A search that an iterations record asks for. ``columns`` are its findings' that are the iteration's own."""

    offset: int
    watermark_ns: int
    irregularity: Irregularity
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _ClearingTask:
    """Rows that clear what an iterations record ends."""

    offset: int
    watermark_ns: int
    rows: list[dict[str, Any]]


@dataclass
class _Running:
    """A search that waits for logs."""

    task: _SearchTask
    began_ns: int
    search: Generator[Needs, Answer, Location]
    fetch: Fetch | None = None
    asked: int = 0
    bytes: int = 0


@dataclass
class _JobSearches:
    """The searches of one job: one under way, the others in line after it."""

    job: Job
    line: deque[_SearchTask | _ClearingTask] = field(default_factory=deque)
    running: _Running | None = None


class Search:
    """Searches irregular iterations; of an open run of them the 1st, 2nd, 4th, 8th, and every 16th with the
    one after it.

    Iterations that are longer still than the others of their run are counted by themselves: something has come on top.
    """

    name = "search"
    reads: tuple[Topic, ...] = (catalogue.ITERATIONS, *ANSWERS.values())
    writes: tuple[Topic, ...] = (catalogue.LOG_REQUESTS, catalogue.FINDINGS, *ANSWERS.values())

    def __init__(
        self,
        jobs: Mapping[str, Job],
        settings: SearchSettings | None = None,
        detector: OperatorDetector | None = None,
        metrics: SearchMetrics | None = None,
    ) -> None:
        """A trained ``detector`` takes the place of the one of the settings in Algorithm 1."""
        self._jobs = jobs
        self._settings = settings or SearchSettings()
        self._detector = detector
        self._metrics = metrics
        self._searches: dict[str, _JobSearches] = {}
        self._next = 0

    def process(self, message: Message) -> Iterable[Message]:
        if message.topic in ANSWERS:
            return self._answered(message)
        return self._asked_for(message)

    def tune(self, settings: SearchSettings) -> None:
        """Begin searches with other settings from the next message on; one that is under way ends as it began."""
        self._settings = settings

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Publish that overdue answers will not come; they are taken in as records, like any other answer."""
        for searches in self._searches.values():
            fetch = searches.running.fetch if searches.running else None
            if fetch is not None and fetch.deadline_ns <= now_ns:
                yield from fetch.unreachable(now_ns)

    def next_deadline_ns(self) -> int | None:
        fetches = (s.running.fetch for s in self._searches.values() if s.running)
        return min((fetch.deadline_ns for fetch in fetches if fetch is not None), default=None)

    def safe_offsets(self) -> Mapping[Topic, int]:
        begun = [searches.running.task for searches in self._searches.values() if searches.running]
        in_line = [searches.line[0] for searches in self._searches.values() if searches.line]
        return {catalogue.ITERATIONS: min((task.offset for task in (*begun, *in_line)), default=self._next)}

    def _asked_for(self, message: Message) -> Iterator[Message]:
        rows = decode(message, catalogue.ITERATIONS).to_pylist()
        _check(rows)
        job = self._jobs[message.job]
        self._next = message.offset + 1
        searches = self._searches.setdefault(message.job, _JobSearches(job))
        searches.job = job
        for iteration in sorted({row["iteration"] for row in rows}):
            of_iteration = [row for row in rows if row["iteration"] == iteration]
            searches.line.extend(self._tasks(message, of_iteration))
        yield from self._work(searches, message.now_ns)

    def _tasks(self, message: Message, rows: list[dict[str, Any]]) -> Iterator[_SearchTask | _ClearingTask]:
        row = rows[0]
        columns = {
            "pattern": row["pattern"],
            "period": row["period"],
            "first_iteration": row["pattern_from"],
            "last_iteration": row["pattern_to"],
            "step_from": row["step_from"],
            "run_excess_ns": row["excess_ns"],
            "step_excess_ns": row["step_excess_ns"],
            "expected_ns": row["expected_ns"],
            "scatter_ns": row["scatter_ns"],
            "found_ns": message.timestamp_ns,
        }
        durations = [r["duration_ns"] for r in rows if r["duration_ns"] is not None]
        if durations and self._settings.due(row):
            duration = median_low(durations) - (row["pause_ns"] or 0)
            irregularity = Irregularity(
                iteration=row["iteration"],
                baseline=tuple(row["baseline"] or ()),
                pivots=tuple(r["pivot"] for r in rows),
                excess_ns=max(1, duration - row["expected_ns"]),
                expected_ns=row["expected_ns"],
                job_from=row["job_from"] or 0,
                pause_ns=row["pause_before_ns"] or 0,
            )
            columns_here = {**columns, "iteration_ns": duration}
            yield _SearchTask(message.offset, message.watermark_ns, irregularity, columns_here)
        over = list(_over(message.job, row, columns))
        if over:
            yield _ClearingTask(message.offset, message.watermark_ns, over)

    def _answered(self, message: Message) -> Iterator[Message]:
        request_id = message.headers.get(REQUEST_ID)
        searches = self._searches.get(message.job)
        running = searches.running if searches else None
        if searches is None or running is None or running.fetch is None or running.fetch.request_id != request_id:
            return
        running.fetch.take(message)
        if running.fetch.done:
            running.bytes += running.fetch.bytes
            yield from self._resume(searches, running, message.now_ns)
            yield from self._work(searches, message.now_ns)

    def _work(self, searches: _JobSearches, now_ns: int) -> Iterator[Message]:
        """Work off the line until a search waits for logs."""
        while searches.running is None and searches.line:
            task = searches.line.popleft()
            if isinstance(task, _ClearingTask):
                yield _findings(searches.job, task.rows, task.watermark_ns)
                continue
            search = locate(searches.job, task.irregularity, self._settings.locate, self._detector)
            searches.running = _Running(task, now_ns, search)
            yield from self._resume(searches, searches.running, now_ns)
        if searches.running is None:
            del self._searches[searches.job.job]

    def _resume(self, searches: _JobSearches, running: _Running, now_ns: int) -> Iterator[Message]:
        """Begin a search, or hand it what it asked for; publish what it asks for next, or what it found."""
        irregularity, fetch = running.task.irregularity, running.fetch
        try:
            needs = next(running.search) if fetch is None else running.search.send(fetch.answer())
        except StopIteration as ended:
            yield self._ended(searches, running, ended.value, now_ns, failed=False)
            return
        except FAILURES:  # the answer is no more to blame than those before it; the next search must begin
            log.exception("the search of iteration %d of %s failed", irregularity.iteration, searches.job.job)
            yield self._ended(searches, running, _NOTHING, now_ns, failed=True)
            return
        asked = irregularity.iteration, irregularity.pivots, running.asked, needs
        request_id = identity(searches.job.job, METHOD, *asked)
        running.asked += 1
        deadline_ns = now_ns + self._settings.answer_within_ns
        running.fetch = Fetch(request_id, searches.job.job, needs, deadline_ns)
        yield running.fetch.request()

    def _ended(
        self, searches: _JobSearches, running: _Running, location: Location, now_ns: int, *, failed: bool
    ) -> Message:
        searches.running = None
        try:
            told = _found(searches.job, running, location)
        except (MessageTooLarge, *FAILURES):
            log.exception(
                "what the search of iteration %d of %s found cannot be told",
                running.task.irregularity.iteration,
                searches.job.job,
            )
            location, failed = _NOTHING, True
            told = _found(searches.job, running, location)
        if self._metrics is not None:
            took_ns = max(0, now_ns - running.began_ns)
            self._metrics.ended(took_ns, failed=failed, bounded=location.bounded)
        return told


def _found(job: Job, running: _Running, location: Location) -> Message:
    task = running.task
    return _findings(job, located(job, task.irregularity, location, task.columns, running.bytes), task.watermark_ns)


def _findings(job: Job, rows: list[dict[str, Any]], watermark_ns: int) -> Message:
    batch = catalogue.FINDINGS.from_rows(rows)
    return encode(catalogue.FINDINGS, batch, job=job.job, watermark_ns=watermark_ns)


def _is_due(ordinal: int) -> bool:
    """Whether it is 1, 2, 4, 8, a multiple of ``_EVERY``, or the one after such a multiple."""
    return is_doubled(ordinal) or (ordinal >= _EVERY and ordinal % _EVERY <= 1)


def _over(job: str, row: Mapping[str, Any], columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows that clear what an iterations record ends: a run, and at a long quiet or the log's end everything."""
    state, iteration, last = row["pattern_state"], row["iteration"], row["last"]
    if state == "closed" or (last and row["pattern_from"] is not None):
        yield cleared(job, METHOD, "run", {**columns, "iteration": iteration})
    if state == "quiet" or last:
        everything = {"iteration": iteration, "found_ns": columns["found_ns"], "last": last}
        yield cleared(job, METHOD, "quiet", everything)


def _check(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        expected_ns = row["expected_ns"]
        if row["irregular"] and (expected_ns is None or expected_ns <= 0):
            raise ImpossibleValue(
                f"{catalogue.ITERATIONS.name}: iteration {row['iteration']} is irregular, but its expected_ns is "
                f"{'null' if expected_ns is None else expected_ns}: an irregular one needs a positive one"
            )
