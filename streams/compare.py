"""The step that compares ranks by what their NICs sent: traffic metrics of all hosts in, findings out (Pulse 6.2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.collective.comparing import SLOW, Compared, Comparer
from diagnosis.collective.course import Course, CourseRules
from diagnosis.collective.grid import ComparisonRules
from diagnosis.collective.stragglers import Metric
from diagnosis.irregularity.monitor import IterationMonitor
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import Job
from schemas import catalogue
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from schemas.topic import Topic
from streams import giving_up, traffic_rows
from streams.doubling import is_doubled
from streams.findings import cleared
from streams.held_offsets import HeldOffsets, needed_of_all
from streams.over import forget_retired

FORMAT = "compare/10"


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """How ranks are compared by what their NICs sent (Pulse 6.2, 7.2.1).

    ``slow`` says when an iteration is slow, ``course`` how iterations are told and what hangs, ``rules`` when ranks
    differ. Nothing is searched, so that ``slow.reach`` has no effect.
    """

    metric: Metric = "actual_time"
    """What tells the straggler of a built-in collective: ``actual_time`` the rank that really sends for longest,
    ``busy_epochs`` the one whose full epochs hold least, which shows a slowness that leaves no epoch empty."""
    slow: MonitorSettings = SLOW
    course: CourseRules = field(default_factory=CourseRules)
    rules: ComparisonRules = field(default_factory=ComparisonRules)


@dataclass
class _Followed:
    """One job; ``hung``: the iteration that hangs, for the ``hangs``th time, by ``hang_cause`` if somebody is named.
    Messages below ``counted`` are in the state but for their rows.

    ``offsets``: of the messages whose rows are still needed. ``heard_ns``: when the last host told anything.
    """

    course: Course
    comparer: Comparer
    hung: int | None = None
    hangs: int = 0
    hang_cause: str | None = None
    counted: int = 0
    offsets: HeldOffsets = field(default_factory=HeldOffsets)
    heard_ns: int = 0

    @property
    def stands(self) -> tuple[int, int | None, int | None]:
        """Once it is another, rows are needed no longer: the last iteration judged, since when marks are looked for,
        and what hangs."""
        return self.course.judged, self.course.began_ns, self.hung

    def hold(self, message: Message, table: pa.Table) -> None:
        """Note a message."""
        self.offsets.hold(message, pc.max(table.column("call_ns")).as_py())

    def save(self, message: Message) -> SavedState:
        """The state after a message, with the offset from which on rows are to be read again."""
        offsets = self.offsets.save({message.topic: self.course.needed_from_ns})
        state = {
            "course": self.course.to_state(),
            "comparer": self.comparer.to_state(),
            "hung": self.hung,
            "hangs": self.hangs,
            "hang_cause": self.hang_cause,
            "counted": message.offset + 1,
            "heard_ns": self.heard_ns,
        }
        return SavedState(offsets, FORMAT, json.dumps(state).encode())


class Compare:
    """Follows the iterations of every job and compares the ranks of those that are slow or hang. What comes of a job
    that is over is passed over."""

    name = "compare"
    reads: tuple[Topic, ...] = (catalogue.TRAFFIC_METRICS,)
    writes: tuple[Topic, ...] = (catalogue.FINDINGS, catalogue.TRAFFIC_METRICS)

    def __init__(self, jobs: Mapping[str, Job], settings: CompareSettings | None = None) -> None:
        self._jobs = jobs
        self._settings = settings or CompareSettings()
        self._followed: dict[str, _Followed] = {}
        self._ended: dict[str, None] = {}
        self._changed: dict[str, SavedState | None] = {}

    def process(self, message: Message) -> Iterable[Message]:
        batch, job = decode(message, catalogue.TRAFFIC_METRICS), self._jobs[message.job]
        told_ns, host = message.watermark_ns, message.headers.get("host", "")
        given_up = giving_up.is_record(message)
        if not job.monitoring or message.job in self._ended or (given_up and message.job not in self._followed):
            return
        table = pa.Table.from_batches([batch])
        followed = self._followed.get(message.job)
        if followed is None:
            followed = self._followed[message.job] = self._begin()
        followed.hold(message, table)
        if message.offset < followed.counted:
            followed.course.refill(table)
            return
        if given_up:
            followed.course.given_up = giving_up.in_force(message, followed.heard_ns)
        else:
            followed.heard_ns = message.now_ns
            followed.course.take(table, host, told_ns)
        before = followed.stands
        rows = [*self._slow(followed, job, message.timestamp_ns), *_hung(followed, job, message.timestamp_ns)]
        if followed.course.ended(job):
            rows += _last(followed, job, message.timestamp_ns)
            self._ended[message.job] = None
            forget_retired(self._ended, self._jobs)
            del self._followed[message.job]
            self._changed[message.job] = None
        elif followed.stands != before:
            self._changed[message.job] = followed.save(message)
        if rows:
            found = catalogue.FINDINGS.from_rows(rows)
            yield encode(catalogue.FINDINGS, found, job=message.job, watermark_ns=message.watermark_ns)

    def tune(self, settings: CompareSettings) -> None:
        """Judge by other settings from the next message on."""
        self._settings = settings
        for followed in self._followed.values():
            followed.course.rules = settings.course
            followed.comparer.rules, followed.comparer.metric = settings.rules, settings.metric
            followed.comparer.monitor.settings = settings.slow

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Publish that nothing more will come of jobs that ended long ago; it is taken in like what hosts tell."""
        return giving_up.overdue(catalogue.TRAFFIC_METRICS, self._awaited(), now_ns)

    def next_deadline_ns(self) -> int | None:
        """When nothing more is waited for of the first job that has ended."""
        return min((deadline_ns for _, deadline_ns in self._awaited()), default=None)

    def _awaited(self) -> Iterator[tuple[str, int]]:
        """Jobs that have ended of which not all is told, and until when that is waited for."""
        for name, followed in self._followed.items():
            job = self._jobs.get(name)
            if job is not None and job.monitoring and job.ended_ns is not None and followed.course.untold(job):
                yield name, max(job.ended_ns, followed.heard_ns) + giving_up.GONE_NS

    def holds(self) -> bool:
        return bool(self.safe_offsets())

    def safe_offsets(self) -> Mapping[Topic, int]:
        return needed_of_all(followed.offsets for followed in self._followed.values())

    def changed_states(self) -> Mapping[str, SavedState | None]:
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, states: Mapping[str, SavedState]) -> None:
        for job, saved in states.items():
            followed = saved.read(FORMAT, self._from_bytes)
            followed.offsets = HeldOffsets(saved.offsets)
            self._followed[job] = followed

    def _from_bytes(self, saved: bytes) -> _Followed:
        state, settings = json.loads(saved), self._settings
        return _Followed(
            Course.from_state(settings.course, state["course"]),
            Comparer.from_state(settings.rules, settings.metric, settings.slow, state["comparer"]),
            hung=state["hung"],
            hangs=state["hangs"],
            hang_cause=state["hang_cause"],
            counted=state["counted"],
            heard_ns=state["heard_ns"],
        )

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
                yield cleared(job.job, traffic_rows.METHOD, "run", {**columns, "iteration": iteration.number})
            if compared.judgement.quiet:
                yield cleared(
                    job.job, traffic_rows.METHOD, "quiet", {"iteration": iteration.number, "found_ns": now_ns}
                )


def _last(followed: _Followed, job: Job, now_ns: int) -> Iterator[dict[str, Any]]:
    """What is said of a job that is over: how far the run of slow iterations came that it ended in, and the end."""
    columns = {"iteration": max(followed.course.judged, 0), "found_ns": now_ns}
    run = followed.comparer.monitor.run
    if run is not None:
        yield cleared(job.job, traffic_rows.METHOD, "run", columns | traffic_rows.of_run(run))
    yield cleared(job.job, traffic_rows.METHOD, "end", {**columns, "last": True})


def _told(compared: Compared) -> bool:
    """Of a run of slow iterations the 1st, 2nd, 4th, 8th and so on that show the same culprits, or none, and so of what
    came on top; of the first ones of a job those that show anybody."""
    run = compared.judgement.run
    if not compared.judgement.irregular or run is None:
        return bool(compared.verdicts)
    return is_doubled(compared.ordinal) or is_doubled(run.step_ordinal)


def _hung(followed: _Followed, job: Job, now_ns: int) -> Iterator[dict[str, Any]]:
    """What hangs, once; and that it is over."""
    table = followed.course.hanging()
    if table is None:
        if followed.hung is not None and followed.hang_cause is not None:
            columns = {"iteration": followed.hung, "cause": followed.hang_cause, "found_ns": now_ns}
            yield cleared(job.job, traffic_rows.METHOD, f"hang {followed.hangs} over", columns)
        followed.hung = followed.hang_cause = None
    elif followed.hung is None:
        verdicts = followed.comparer.hang(table, job)
        culprits = {rank for verdict in verdicts for rank in verdict.ranks}
        followed.hung, followed.hangs = followed.course.going_on(culprits), followed.hangs + 1
        columns = {"first_iteration": followed.hung, "last_iteration": followed.hung, "found_ns": now_ns}
        followed.hang_cause = verdicts[0].cause if verdicts else None
        yield from traffic_rows.found(job, followed.hung, verdicts, columns, f"hang {followed.hangs}")
