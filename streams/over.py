"""What is remembered of jobs that are over, so that what comes of them late is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from diagnosis.job import Job

Remembered = TypeVar("Remembered")


def forget_retired(over: dict[str, Remembered], jobs: Mapping[str, Job]) -> None:
    """Let go of what is remembered of jobs, an entry each, that are known no more: their records are refused anyway.

    Whoever adds an entry calls it: jobs end seldom.
    """
    for job in over.keys() - set(jobs):
        del over[job]
