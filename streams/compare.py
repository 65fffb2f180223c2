"""The step that compares ranks by what their NICs sent: traffic metrics of all hosts in, findings out (Pulse 6.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from diagnosis.collective.comparing import SLOW, Compared, Comparer
from diagnosis.collective.course import Course, CourseRules
from diagnosis.collective.grid import ComparisonRules
from diagnosis.collective.stragglers import Metric
from diagnosis.irregularity.monitor import IterationMonitor, MonitorSettings
from diagnosis.job import Job
from schemas import catalogue
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from streams import traffic_rows


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """``slow``: when an iteration is slow. ``course``: how iterations are told, and what hangs. ``rules``: when ranks
    differ. ``metric``: by which time of sending stragglers are told.
    """

    metric: Metric = "actual_time"
    slow: MonitorSettings = SLOW
    course: CourseRules = field(default_factory=CourseRules)
    rules: ComparisonRules = field(default_factory=ComparisonRules)


@dataclass
class _Followed:
    """One job; ``hung``: the iteration that hangs."""

    course: Course
    comparer: Comparer
    hung: int | None = None


class Compare:
    """Follows the iterations of every job and compares the ranks of those that are slow or hang."""

    name = "compare"
    reads: tuple[Topic, ...] = (catalogue.TRAFFIC_METRICS,)
    writes: tuple[Topic, ...] = (catalogue.FINDINGS,)

    def __init__(self, jobs: Mapping[str, Job], settings: CompareSettings | None = None) -> None:
        self._jobs = jobs
        self._settings = settings or CompareSettings()
        self._followed: dict[str, _Followed] = {}

    def process(self, message: Message) -> Iterable[Message]:
        batch, job = decode(message, catalogue.TRAFFIC_METRICS), self._jobs[message.job]
        if not job.monitoring:
            return
        followed = self._followed.setdefault(message.job, self._begin())
        followed.course.take(pa.Table.from_batches([batch]), message.headers.get("host", ""), message.watermark_ns)
        rows = [*self._slow(followed, job, message.timestamp_ns), *_hung(followed, job, message.timestamp_ns)]
        if rows:
            found = catalogue.FINDINGS.from_rows(rows)
            yield encode(catalogue.FINDINGS, found, job=message.job, watermark_ns=message.watermark_ns)

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def _begin(self) -> _Followed:
        settings = self._settings
        monitor = IterationMonitor(settings.slow)
        return _Followed(Course(settings.course), Comparer(settings.rules, settings.metric, monitor))

    def _slow(self, followed: _Followed, job: Job, now_ns: int) -> Iterator[dict[str, Any]]:
        for iteration in followed.course.complete(job):
            compared = followed.comparer.judge(iteration, job)
            columns = traffic_rows.columns_of(compared, now_ns)
            if _told(compared):
                yield from traffic_rows.found(job, iteration.number, compared.verdicts, columns)
            if compared.judgement.closed:
                yield traffic_rows.cleared(job.job, "run", {**columns, "iteration": iteration.number})
            if compared.judgement.quiet:
                yield traffic_rows.cleared(job.job, "quiet", {"iteration": iteration.number, "found_ns": now_ns})


def _told(compared: Compared) -> bool:
    """Of a run of slow iterations the 1st, 2nd, 4th, 8th and so on; of the first ones those that show anybody."""
    run = compared.judgement.run
    if not compared.judgement.irregular or run is None:
        return bool(compared.verdicts)
    return run.ordinal & (run.ordinal - 1) == 0


def _hung(followed: _Followed, job: Job, now_ns: int) -> Iterator[dict[str, Any]]:
    """What hangs, once; and that it is over."""
    table = followed.course.hanging()
    if table is None:
        if followed.hung is not None:
            yield traffic_rows.cleared(job.job, "hang over", {"iteration": followed.hung, "found_ns": now_ns})
        followed.hung = None
    elif followed.hung is None:
        followed.hung = followed.course.newest
        columns = {"first_iteration": followed.hung, "last_iteration": followed.hung, "found_ns": now_ns}
        yield from traffic_rows.found(job, followed.hung, followed.comparer.hang(table, job), columns, "hang")
