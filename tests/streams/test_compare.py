"""What `compare` does of a job that has ended and one of whose hosts tells nothing more."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job
from producers.job_source import job_message
from schemas import catalogue
from schemas.message import Message, decode, encode
from streams import in_process
from streams.compare import Compare, _Followed, _hung
from streams.control_view import Jobs
from streams.segment import Segment
from tests.diagnosis.collective.made_metrics import job as traffic_job
from tests.streams.examples import Listener
from tests.streams.traffic_cases import runs

SECOND = 1_000_000_000
SILENT = "h3"


@cache
def told() -> tuple[Job, tuple[Message, ...]]:
    """What three of four hosts told of a job whose second NIC is slow."""
    run, jobs, heard = runs()[0], Jobs(), Listener((catalogue.TRAFFIC_METRICS,))
    messages = [message for message in run.messages() if not message.key.endswith(SILENT)]
    in_process.run([in_process.Recorded([job_message(run.job), *messages])], [jobs, Segment(jobs), heard])
    return run.job, tuple(heard.heard)


def findings(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [
        row
        for message in messages
        if message.topic == catalogue.FINDINGS.name
        for row in decode(message, catalogue.FINDINGS).to_pylist()
    ]


def taken(jobs: dict[str, Job]) -> tuple[Compare, list[dict[str, Any]]]:
    compare = Compare(jobs)
    return compare, findings(out for message in told()[1] for out in compare.process(message))


def test_a_host_that_tells_nothing_is_not_waited_for_for_ever() -> None:
    job, messages = told()
    compare, before = taken({job.job: job})
    assert not any(row["last"] for row in before)
    deadline_ns = compare.next_deadline_ns()
    assert deadline_ns == max(job.ended_ns or 0, messages[-1].timestamp_ns) + 600 * SECOND
    assert not list(compare.tick(deadline_ns - 1))
    (record,) = compare.tick(deadline_ns)
    found = findings(compare.process(replace(record, timestamp_ns=deadline_ns, offset=len(messages))))
    assert [row["last"] for row in found][-1]
    assert {rank for row in [*before, *found] for rank in row["ranks"]} == {2}
    assert compare.next_deadline_ns() is None
    assert not list(compare.process(replace(record, timestamp_ns=deadline_ns, offset=len(messages) + 1)))


def test_what_comes_meanwhile_is_taken_in() -> None:
    job, messages = told()
    compare, _ = taken({job.job: job})
    deadline_ns = compare.next_deadline_ns() or 0
    (record,) = compare.tick(deadline_ns)
    late = replace(messages[-1], timestamp_ns=deadline_ns - SECOND, offset=len(messages))
    assert not findings(compare.process(late))
    assert not findings(compare.process(replace(record, timestamp_ns=deadline_ns, offset=len(messages) + 1)))
    assert compare.next_deadline_ns() == deadline_ns + 599 * SECOND


@pytest.mark.parametrize("change", [{"ended_ns": None}, {"monitoring": False}, None])
def test_of_jobs_that_run_or_are_not_followed_or_known_any_more_nothing_is_given_up(
    change: dict[str, Any] | None,
) -> None:
    job, _ = told()
    jobs = {job.job: job}
    compare, _ = taken(jobs)
    assert compare.next_deadline_ns() is not None
    jobs |= {} if change is None else {job.job: replace(job, **change)}
    if change is None:
        del jobs[job.job]
    assert compare.next_deadline_ns() is None
    assert not list(compare.tick(10**19))


def test_of_a_job_in_which_nothing_recurs_only_the_latest_is_read_again() -> None:
    """Marks are looked for anew every minute; a restart reads what came since."""
    job, messages = told()
    compare, saved = Compare({job.job: replace(job, ended_ns=None)}), []
    row, host = next(
        (row, m.headers["host"]) for m in messages for row in decode(m, catalogue.TRAFFIC_METRICS).to_pylist()
    )
    for second in range(0, 600, 10):
        at_ns = row["call_ns"] + second * SECOND
        times = {"call_ns": at_ns, "start_ns": at_ns, "end_ns": at_ns + row["end_ns"] - row["call_ns"]}
        batch = catalogue.TRAFFIC_METRICS.from_rows([{**row, **times, "communicator": f"never again {second}"}])
        message = encode(
            catalogue.TRAFFIC_METRICS, batch, job=job.job, watermark_ns=at_ns + SECOND, headers={"host": host}
        )
        assert not list(compare.process(replace(message, offset=second // 10)))
        saved += [state for state in compare.changed_states().values() if state is not None]
    (needed,) = compare.safe_offsets().values()
    assert 53 <= needed < 60
    assert saved[-1].offsets == {catalogue.TRAFFIC_METRICS.name: needed}
    assert len(saved) < 10


class Hanging:
    """The course of a job in which something hangs now and then, all within one iteration."""

    def __init__(self) -> None:
        self.table: pa.Table | None = None

    def going_on(self, ranks: Collection[int]) -> int:
        """The iteration that those who are named are in."""
        assert ranks
        return 7

    def hanging(self) -> pa.Table | None:
        return self.table

    def hang(self, table: pa.Table, job: Job) -> list[Verdict]:
        """Whom a comparison names: the first NIC, then the second."""
        return [Verdict("hang_hardware", "device", (table.num_rows,), "silence")]


def test_what_hangs_again_within_an_iteration_is_told_again() -> None:
    course, told = Hanging(), []
    followed = _Followed(course, course)  # type: ignore[arg-type]
    for rows in (1, 1, 0, 2, 0):
        course.table = pa.table({"rank": [0] * rows}) if rows else None
        told += list(_hung(followed, traffic_job(), 1))
    assert [(row["active"], row["cause"], row["ranks"], row["iteration"]) for row in told] == [
        (True, "hang_hardware", [1], 7),
        (False, "hang_hardware", [], 7),
        (True, "hang_hardware", [2], 7),
        (False, "hang_hardware", [], 7),
    ]
    assert len({row["id"] for row in told}) == 4
