"""The process that tries the inputs of one target, and may die of any of them."""

from __future__ import annotations

import importlib
import logging
import re
import resource
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import structlog

from tests.fuzz.target import Failure, Target, damaged, failures_of_seeds, outcome

REPORT_EVERY = 500
"""Inputs between two reports: what is not reported when the process dies is known by its number alone."""

ADDRESS_SPACE_BYTES = 8 << 30
"""Far beyond any target's bound: what asks for more is refused at once, and does not drag the machine down."""


_PEAK = re.compile(rb"VmHWM:\s*(\d+) kB")


class Progress(Protocol):
    """Numbers that the other process sees at once: the ordinal that is tried, and when it was begun (monotonic ns)."""

    def __setitem__(self, index: int, value: int, /) -> None: ...


@dataclass(frozen=True)
class Job:
    """Ordinals of one target; ``registry`` names the mapping of targets as ``module:attribute``."""

    registry: str
    target: str
    seed: int
    first: int
    last: int


@dataclass
class Report:
    """What became of some inputs: how many of each outcome, which failed, and the slowest (seconds, ordinal)."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)
    grown_bytes: int = 0


def registered(registry: str) -> Mapping[str, Target]:
    """The targets of a registry."""
    module, _, attribute = registry.partition(":")
    targets: Mapping[str, Target] = getattr(importlib.import_module(module), attribute)
    return targets


def quieten() -> None:
    """Let nothing be logged: a bad input is worth a line to an operator, a million of them are not."""
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    warnings.simplefilter("error")


def work(job: Job, connection: Connection, progress: Progress) -> None:
    """Try the inputs of a job, in order; reports go over the connection, the last of them with the last ordinal."""
    quieten()
    target = registered(job.registry)[job.target]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        trial = target.make(Path(folder))
        if failed := failures_of_seeds(trial):
            raise RuntimeError(f"{target.name}: a good input fails: {failed[0]}")
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
        before, report = peak_bytes(), Report()
        for ordinal in range(job.first, job.last):
            data = damaged(trial, job.seed, target.name, ordinal)
            progress[0], progress[1] = ordinal, time.monotonic_ns()
            began = time.perf_counter()
            found = outcome(trial, data)
            report.slowest = max(report.slowest, (time.perf_counter() - began, ordinal))
            report.grown_bytes = peak_bytes() - before
            excess = report.grown_bytes > target.memory_bytes
            if excess and not isinstance(found, Failure):
                found = Failure(f"takes more than {target.memory_bytes >> 20} MiB")
            if isinstance(found, Failure):
                report.failures.append((ordinal, found))
            else:
                report.outcomes[found] += 1
            if excess or (ordinal + 1 - job.first) % REPORT_EVERY == 0:
                connection.send(report)
                report = Report()
            if excess:  # the peak stays: what comes is for a new process
                return
        connection.send(report)
        progress[0], progress[1] = job.last, 0


def peak_bytes() -> int:
    """The most memory that this program has ever held; what getrusage tells is its parent's, where that held more."""
    told = _PEAK.search(Path("/proc/self/status").read_bytes())
    if told is None:
        raise RuntimeError("/proc/self/status does not say VmHWM: this needs Linux")
    return int(told[1]) << 10
