"""A million damaged inputs, shared out over targets and processes; whatever one does to its process is noted.

A process that dies, hangs or takes too much memory is replaced by one that goes on behind the input that did it.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.fuzz.target import READ, Failure, Target
from tests.fuzz.worker import Job, Report, work

_SPAWN = multiprocessing.get_context("spawn")
_LOOK_EVERY_S = 0.5
_BEGIN_WITHIN_S = 300.0
"""How long a process may take to import what it tests, and to try the good inputs."""


@dataclass
class Failed:
    """Inputs that failed alike: how many, and the ordinal of the first."""

    what: str
    where: str
    ordinal: int
    count: int = 0


@dataclass
class Tried:
    """What became of the inputs of a target."""

    target: str
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failed] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest_ordinal: int = -1
    grown_bytes: int = 0
    seconds: float = 0.0

    @property
    def read(self) -> int:
        """Inputs that were good enough."""
        return self.outcomes[READ]

    @property
    def failed(self) -> int:
        """Inputs that did what none may."""
        return sum(failed.count for failed in self.failures)

    def take(self, report: Report) -> None:
        """Add what a process reports."""
        self.outcomes += report.outcomes
        for ordinal, failure in report.failures:
            self.fail(ordinal, failure)
        if report.slowest[0] > self.slowest_s:
            self.slowest_s, self.slowest_ordinal = report.slowest
        self.grown_bytes = max(self.grown_bytes, report.grown_bytes)

    def fail(self, ordinal: int, failure: Failure) -> None:
        """Note a failure beside those that are like it: the same error in the same line."""
        kind = failure.what.partition(":")[0]
        for failed in self.failures:
            if (failed.what.partition(":")[0], failed.where) == (kind, failure.where):
                failed.count += 1
                return
        self.failures.append(Failed(failure.what, failure.where, ordinal, 1))


class _Process:
    """One process over the rest of a target's ordinals."""

    def __init__(self, job: Job, tried: Tried) -> None:
        self.job, self.tried = job, tried
        self.connection, theirs = _SPAWN.Pipe(duplex=False)
        self._progress: Any = _SPAWN.Array("q", [job.first, 0], lock=False)
        self._process = _SPAWN.Process(target=work, args=(job, theirs, self._progress), daemon=True)
        self._began = time.monotonic()
        self._process.start()
        theirs.close()

    def take(self) -> bool:
        """Take a report; False where there will be none any more."""
        try:
            self.tried.take(self.connection.recv())
        except EOFError:
            return False
        return True

    def hangs(self, within_s: float) -> bool:
        """Whether the input that is tried takes longer than it may."""
        begun_ns = self._progress[1]
        if not begun_ns:
            return self._progress[0] < self.job.last and time.monotonic() - self._began > _BEGIN_WITHIN_S
        return bool(time.monotonic_ns() - begun_ns > within_s * 1e9)

    def stop(self) -> None:
        """End it, whatever it is at."""
        self._process.kill()
        self._process.join()

    def end(self, *, hung: bool) -> int:
        """End it; the ordinal to go on with. What it died of is noted."""
        if hung:
            self._process.kill()
        self._process.join()
        self.connection.close()
        ordinal, begun = self._progress[0], self._progress[1]
        code = self._process.exitcode
        self.tried.seconds += time.monotonic() - self._began
        if not begun and ordinal < self.job.last:
            raise RuntimeError(f"{self.job.target}: the process could not begin (exit code {code}): see above")
        if begun:
            if hung:
                self.tried.fail(ordinal, Failure("hangs"))
            elif code:
                name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                self.tried.fail(ordinal, Failure(f"ends the process ({name})"))
            ordinal += 1  # what took too much memory has reported itself
        self.tried.inputs = max(self.tried.inputs, ordinal)
        return int(ordinal)


def run(
    registry: str,
    shares: Mapping[str, int],
    *,
    seed: int,
    processes: int = 2,
    within_s: float = 30.0,
    on_done: Callable[[Tried], None] = lambda _: None,
) -> list[Tried]:
    """Try so many inputs of each target (``shares``); ``registry`` names the targets as ``module:attribute``.

    ``within_s`` is what one input may take. ``on_done`` hears of a target that is through.
    """
    waiting = deque((Job(registry, name, seed, 0, inputs), Tried(name)) for name, inputs in shares.items())
    done: list[Tried] = []
    running: dict[Connection, _Process] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                process = _Process(*waiting.popleft())
                running[process.connection] = process
            ready = wait(list(running), timeout=_LOOK_EVERY_S)
            for connection, process in list(running.items()):
                if connection in ready and process.take():
                    continue
                hung = connection not in ready and process.hangs(within_s)
                if connection not in ready and not hung:
                    continue
                del running[connection]
                following = process.end(hung=hung)
                if following < process.job.last:
                    job = Job(registry, process.job.target, seed, following, process.job.last)
                    waiting.appendleft((job, process.tried))
                else:
                    done.append(process.tried)
                    on_done(process.tried)
    finally:
        for process in running.values():
            process.stop()
    return sorted(done, key=lambda tried: list(shares).index(tried.target))


def shared_out(targets: Mapping[str, Target], inputs: int) -> dict[str, int]:
    """So many inputs over the targets by their weights, the rest to the first; heavy ones come first."""
    total = sum(target.weight for target in targets.values())
    shares = {
        target.name: int(inputs * target.weight / total)
        for target in sorted(targets.values(), key=lambda target: target.weight)
    }
    shares[next(iter(shares))] += inputs - sum(shares.values())
    return shares
