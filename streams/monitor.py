"""The step that finds irregular iterations: iteration_summaries in, iterations out (Holmes 4.1, workflow 1 and 2).

Of a job's first iterations, in which nothing is usual yet, it compares like ranks: findings out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.irregularity.beginning import Beginning
from diagnosis.irregularity.like_ranks import LikeRanksSettings
from diagnosis.irregularity.monitor import IterationMonitor, Judgement
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import Job, pivots
from schemas import catalogue
from schemas.iterations import CLOCK_SET
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from schemas.topic import Topic
from streams import beginning_rows, giving_up
from streams.over import forget_retired

log = logging.getLogger(__name__)

FORMAT = "monitor/10"

MOST_SKIPPED = 1000
"""Iterations that numbers may leave out on the word of one pivot; a wrong number must not pass for all before it."""

MOST_PENDING = 1 << 12
"""Iterations that wait to be judged; of more the latest is let go, which is told once."""

LONGEST_NS = 86_400_000_000_000
"""An iteration of more than a day is a broken clock: not known."""


class Report(NamedTuple):
    """What a pivot said of an iteration; ``pause_ns`` of it, at its end, it had no operator. ``last``: its log ends."""

    start_ns: int
    duration_ns: int | None
    last: bool
    pause_ns: int | None


@dataclass
class _End:
    """The last iteration of a job that is over, and when that was; whether it was told that the job runs again."""

    iteration: int
    over_ns: int
    told: bool = False


@dataclass
class _Watched:
    """One job: its monitor, the iterations that not all pivots have reported yet, who reported the last one judged.

    ``ended`` are the pivots whose logs have ended: nobody waits for them. ``beginning``: its first iterations.
    ``heard_ns``: when anything came of it; None: nothing has.
    """

    monitor: IterationMonitor
    beginning: Beginning
    pending: dict[int, dict[int, Report]] = field(default_factory=dict)
    closed: int = -1
    reporters: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    heard_ns: int | None = None
    told_full: bool = False

    def take(self, iteration: int, pivot: int, report: Report) -> int | None:
        """Take a report in; one that comes too late only shows that its pivot is to be waited for again.

        Returns the iteration that was let go of, where there was no room for it.
        """
        if report.last:
            self.ended.add(pivot)
        if iteration > self.closed:
            self.pending.setdefault(iteration, {})[pivot] = report
            if len(self.pending) > MOST_PENDING:
                latest = max(self.pending)
                del self.pending[latest]
                return latest
        elif iteration == self.closed:
            self.reporters.add(pivot)
        return None

    def close_next(
        self, pivots: Collection[int], newest: int, *, given_up: bool
    ) -> tuple[int, dict[int, Report]] | None:
        """Close the first iteration up to ``newest`` that is to be judged now; it, and what was told of it.

        A pivot that missed the last one is not waited for, of a job that is ``given_up`` none. None: none is complete.
        """
        iteration = min(self.pending, default=newest + 1)
        if iteration > newest or (not given_up and self._waits(iteration, newest, pivots)):
            return None
        reports = self.pending.pop(iteration)
        self.closed, self.reporters = iteration, set(reports)
        return iteration, reports

    def drop_after(self, newest: int) -> None:
        """Forget what was told of later iterations."""
        self.pending = {iteration: told for iteration, told in self.pending.items() if iteration <= newest}

    def awaited_until_ns(self) -> int | None:
        """Until when the rest is waited for, where an iteration is not judged yet that is a pivot's last."""
        if self.heard_ns is None or not any(of.last for told in self.pending.values() for of in told.values()):
            return None
        return self.heard_ns + giving_up.GONE_NS

    def newest(self) -> int:
        """The newest iteration told of, as far as numbers are believed: beyond a large gap two pivots bear out each
        other's, or, where one alone is heard of, two of its own.
        """
        newest = self.closed
        for iteration in sorted(self.pending):
            if iteration > newest + MOST_SKIPPED and not self._borne_out(iteration):
                break
            newest = iteration
        return newest

    def _borne_out(self, iteration: int) -> bool:
        heard = self.reporters.union(*self.pending.values())
        near = [told for each, told in self.pending.items() if iteration <= each <= iteration + MOST_SKIPPED]
        return len(set().union(*near)) > 1 or (len(heard) == 1 and len(near) > 1)

    def _waits(self, iteration: int, newest: int, pivots: Collection[int]) -> bool:
        """Whether more is to be known of an iteration: from pivots, or whether it is the last, as some say it is."""
        reports = self.pending[iteration]
        awaited = (self.reporters or set(pivots)) - self.ended
        if not awaited <= set(reports):
            return newest < iteration + 2
        ends = [report.last for report in reports.values()]
        return iteration == newest and any(ends) and not all(ends)


class Monitor:
    """Judges each iteration once all pivots have reported it, or one is two iterations ahead.

    The job's ranks move in lockstep, so the median of the pivots' durations is the iteration's: a gap in one
    pivot's log does not blind the job. One that some call their last and others do not is judged with the next, or as
    the job's last if none comes. An iteration during which a pivot's clock was set forward is not known,
    as long as most pivots read other clocks. A report that comes after its iteration was judged does not change what
    was judged. Once nothing has come of a job for ten minutes, and an iteration that some call their last waits for
    others, it is judged without them: their hosts died with the job. What comes of a job whose log has ended is passed
    over; that another run bears its name is told once.
    """

    name = "monitor"
    reads: tuple[Topic, ...] = (catalogue.ITERATION_SUMMARIES,)
    writes: tuple[Topic, ...] = (catalogue.ITERATIONS, catalogue.FINDINGS, catalogue.ITERATION_SUMMARIES)

    def __init__(
        self,
        jobs: Mapping[str, Job],
        settings: MonitorSettings | None = None,
        pivot_count: int = 4,
        like_ranks: LikeRanksSettings | None = None,
    ) -> None:
        self._jobs = jobs
        self._settings = settings or MonitorSettings()
        self._like_ranks = like_ranks or LikeRanksSettings()
        self._pivot_count = pivot_count
        self._watched: dict[str, _Watched] = {}
        self._ended: dict[str, _End] = {}
        self._changed: dict[str, Mapping[str, int] | None] = {}

    def process(self, message: Message) -> Iterable[Message]:
        batch = decode(message, catalogue.ITERATION_SUMMARIES)
        job = self._jobs[message.job]
        if message.job in self._ended:
            self._tell_of_another_run(message.job, batch)
        timed_out = giving_up.is_record(message)
        if not job.monitoring or message.job in self._ended or (timed_out and message.job not in self._watched):
            return
        watched = self._watched.get(message.job)
        if watched is None:
            watched = _Watched(IterationMonitor(self._settings), Beginning(self._like_ranks))
            self._watched[message.job] = watched
        given_up = timed_out and giving_up.in_force(message, watched.heard_ns)
        if not timed_out:
            watched.heard_ns = message.now_ns
        chosen = pivots(job, self._pivot_count)
        for row in batch.select(["rank", "iteration", "start_ns", "end_ns", "last", "pause_ns"]).to_pylist():
            if row["rank"] in chosen:
                end = row["end_ns"]
                duration = None if end is None else _duration(row["start_ns"], end)
                report = Report(row["start_ns"], duration, bool(row["last"]), row["pause_ns"])
                let_go = watched.take(row["iteration"], row["rank"], report)
                if let_go is not None and not watched.told_full:
                    watched.told_full = True
                    _tell_full(message.job, let_go)
        rows = [] if watched.beginning.past else self._compared(message, batch, watched.beginning, job)
        newest = watched.newest()
        if given_up:
            watched.drop_after(newest)
        while (closed := watched.close_next(chosen, newest, given_up=given_up)) is not None:
            iteration, reports = closed
            last = all(report.last for report in reports.values()) or (given_up and not watched.pending)
            yield self._judged(message, watched.monitor, iteration, reports, last=last)
        if message.job in self._ended:
            rows += _last(message, watched)
            del self._watched[message.job]
            self._changed[message.job] = None
        else:
            self._changed[message.job] = {message.topic: message.offset + 1}
        if rows:
            found = catalogue.FINDINGS.from_rows(rows)
            yield encode(catalogue.FINDINGS, found, job=message.job, watermark_ns=message.watermark_ns)

    def tune(self, settings: MonitorSettings) -> None:
        """Judge by other settings from the next message on."""
        self._settings = settings
        for watched in self._watched.values():
            watched.monitor.settings = settings

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Publish that nothing more will come of jobs that ended long ago; it is taken in like what agents tell."""
        return giving_up.overdue(catalogue.ITERATION_SUMMARIES, self._awaited(), now_ns)

    def next_deadline_ns(self) -> int | None:
        """When nothing more is waited for of the first job that seems to have ended."""
        return min((deadline_ns for _, deadline_ns in self._awaited()), default=None)

    def _awaited(self) -> Iterator[tuple[str, int]]:
        """Jobs of which an iteration that a pivot calls its last waits for others, and until when."""
        for name, watched in self._watched.items():
            deadline_ns = watched.awaited_until_ns()
            job = self._jobs.get(name)
            if deadline_ns is not None and job is not None and job.monitoring:
                yield name, deadline_ns

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def changed_states(self) -> Mapping[str, SavedState | None]:
        changed, self._changed = self._changed, {}
        return {
            job: None if offsets is None else _saved(self._watched[job], offsets) for job, offsets in changed.items()
        }

    def restore(self, states: Mapping[str, SavedState]) -> None:
        for job, saved in states.items():
            self._watched[job] = saved.read(FORMAT, self._from_bytes)

    def _from_bytes(self, saved: bytes) -> _Watched:
        state = json.loads(saved)
        pending = {
            int(iteration): {int(rank): Report(*report) for rank, report in reports.items()}
            for iteration, reports in state["pending"].items()
        }
        monitor = IterationMonitor.from_state(state["monitor"], self._settings)
        beginning = Beginning.from_state(self._like_ranks, state["beginning"])
        reporters, ended = set(state["reporters"]), set(state["ended"])
        return _Watched(monitor, beginning, pending, state["closed"], reporters, ended, state["heard_ns"])

    def _compared(
        self, message: Message, batch: pa.RecordBatch, beginning: Beginning, job: Job
    ) -> list[dict[str, Any]]:
        """What comparing like ranks says by now."""
        return [
            row
            for compared in beginning.take(batch, job)
            for row in beginning_rows.found(job, compared, message.timestamp_ns)
        ]

    def _tell_of_another_run(self, job: str, batch: pa.RecordBatch) -> None:
        """Say that other iterations than its last one began after the job was over."""
        end = self._ended[job]
        if end.told:
            return
        others = batch.filter(pc.not_equal(batch["iteration"], end.iteration))
        if (pc.max(others["start_ns"]).as_py() or 0) > end.over_ns:
            end.told = True
            log.warning("%s is over, but runs again: that is passed over; give another run a name of its own", job)

    def _judged(
        self, message: Message, monitor: IterationMonitor, iteration: int, reports: Mapping[int, Report], *, last: bool
    ) -> Message:
        durations = [report.duration_ns for report in reports.values() if report.duration_ns is not None]
        judgement = monitor.judge(iteration, _lasted(durations), _paused(reports.values()))
        if last:
            over_ns = max(report.start_ns + (report.duration_ns or 0) for report in reports.values())
            self._ended[message.job] = _End(iteration, over_ns)
            forget_retired(self._ended, self._jobs)
        columns = self._columns(judgement, last)
        rows = [
            {"pivot": pivot, "start_ns": told.start_ns, "duration_ns": told.duration_ns, "job_from": monitor.first}
            | columns
            for pivot, told in sorted(reports.items())
        ]
        batch = catalogue.ITERATIONS.from_rows(rows)
        return encode(catalogue.ITERATIONS, batch, job=message.job, watermark_ns=message.watermark_ns)

    def _columns(self, judgement: Judgement, last: bool) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "iteration": judgement.iteration,
            "pause_ns": judgement.pause_ns or None,
            "pause_before_ns": judgement.pause_before_ns or None,
            "expected_ns": judgement.expected_ns,
            "scatter_ns": judgement.scatter_ns,
            "delta": judgement.delta,
            "irregular": judgement.irregular,
            "last": last or None,
        }
        if judgement.quiet:
            columns["pattern_state"] = "quiet"
        if (run := judgement.run) is not None:
            columns |= {
                "pattern": run.pattern,
                "pattern_from": run.first,
                "pattern_to": run.last,
                "pattern_ordinal": run.ordinal,
                "step_ordinal": run.step_ordinal or None,
                "step_from": run.step_from,
                "step_excess_ns": run.step_excess_ns,
                "pattern_state": "closed" if judgement.closed else "open",
                "period": run.comes_every,
                "excess_ns": run.excess_ns,
                "baseline": list(run.compared_with),
            }
        return columns


def _saved(watched: _Watched, offsets: Mapping[str, int]) -> SavedState:
    pending = {str(i): {str(rank): list(r) for rank, r in reports.items()} for i, reports in watched.pending.items()}
    state: dict[str, Any] = {"monitor": watched.monitor.to_state(), "pending": pending, "closed": watched.closed}
    state |= {"reporters": sorted(watched.reporters), "ended": sorted(watched.ended), "heard_ns": watched.heard_ns}
    state["beginning"] = watched.beginning.to_state()
    return SavedState(offsets, FORMAT, json.dumps(state).encode())


def _last(message: Message, watched: _Watched) -> list[dict[str, Any]]:
    """What is said of a job that is over: who was slow to its end, and the end."""
    if not watched.beginning.spoke:
        return []
    now_ns = message.timestamp_ns
    standing = [of for of in watched.beginning.standing if of.told]
    rows = [beginning_rows.over(message.job, watched.closed, of, now_ns) for of in standing]
    return [*rows, beginning_rows.ended(message.job, watched.closed, now_ns)]


def _tell_full(job: str, let_go: int) -> None:
    log.warning(
        "%s: %d iterations wait for other pivots: what some tell of iteration %d and such beyond is let go; is a "
        "rank's number wrong, or a host's agent away?",
        job,
        MOST_PENDING,
        let_go,
    )


def _lasted(durations: Sequence[int]) -> int | None:
    """How long an iteration was; not known where a clock was set amid it: nothing is to be compared with it."""
    if not durations or max(durations) > CLOCK_SET * median_low(durations):
        return None
    return median_low(durations)


def _paused(reports: Collection[Report]) -> int | None:
    """For how long all that told of an iteration had no operator at its end; of one alone that may be its own fault."""
    pauses = [report.pause_ns for report in reports if report.duration_ns is not None]
    known = [pause for pause in pauses if pause is not None]
    return min(known) if len(known) == len(pauses) > 1 else None


def _duration(start_ns: int, end_ns: int) -> int | None:
    return end_ns - start_ns if 0 <= end_ns - start_ns <= LONGEST_NS else None
