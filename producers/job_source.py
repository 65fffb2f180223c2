"""Tells control.jobs of a job: that it runs, and once its logs have ended, that it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnosis.job import Job
from producers.log_agent import LogAgent
from schemas.catalogue import JOBS
from schemas.message import Message, encode


def job_message(job: Job) -> Message:
    """The record of control.jobs; its time is the job's end, or its start while it runs."""
    at = job.started_ns if job.ended_ns is None else job.ended_ns
    return encode(JOBS, JOBS.from_rows([job.to_row()]), job=job.job, watermark_ns=at or 0)


class JobSource:
    """A source that comes before the job's agents: the job first, and ``ended_ns`` after the last of them."""

    def __init__(self, job: Job, agents: Sequence[LogAgent]) -> None:
        self.name = "job"
        self._job, self._agents = job, agents
        self._told = 0

    def redescribe(self, job: Job) -> Message:
        """The record that tells what has become known of the running job."""
        self._job = job
        return job_message(replace(job, ended_ns=None))

    def advance(self) -> list[Message] | None:
        """What there is to tell now; None once the job's end is told."""
        if self._told == 0:
            self._told = 1
            return [job_message(replace(self._job, ended_ns=None))]
        if self._told == 2:
            return None
        if not all(agent.ended for agent in self._agents):
            return []
        self._told = 2
        ended_ns = max((agent.watermark_ns for agent in self._agents), default=self._job.started_ns)
        return [job_message(replace(self._job, ended_ns=ended_ns))]
