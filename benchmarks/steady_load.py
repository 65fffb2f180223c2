"""Jobs that train at a steady pace, one after the other, each with two faults; beside others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Event, Lock

from benchmarks.live_host import LiveHost
from offbeat.demo import demo_scenario
from offbeat.produce import produce
from offbeat.settings import Settings
from producers.simulation import simulate

_LINGER_S = 5.0
"""How long a job's agents answer once it has ended and nothing was asked."""

_LOOK_EVERY_S = 0.1


@dataclass
class Told:
    """What the ``running`` jobs have published. ``behind_s``: by how much an iteration came too late, at most."""

    jobs: int = 0
    iterations: int = 0
    operators: int = 0
    messages: int = 0
    behind_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)
    running: list[Future[None]] = field(default_factory=list)

    def check(self) -> None:
        """Raise what ended the publishing of a job, if anything did."""
        for job in self.running:
            if job.done():
                job.result()

    def add(self, **amounts: int) -> None:
        """Count further jobs, iterations, operators and messages."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def late(self, behind_s: float) -> None:
        """An iteration came this much too late."""
        with self._lock:
            self.behind_s = max(self.behind_s, behind_s)


@contextmanager
def steady_load(
    settings: Settings, *, side_by_side: int, ranks: int, iteration_s: float, rings: Path
) -> Iterator[Told]:
    """Let so many jobs train at a time, an iteration every ``iteration_s``, until the block is left.

    The block begins with the first iteration. Each job has an id of its own, other noise, and two faults elsewhere. One
    host of each logs into ``rings``, where an agent has to tell of it. Raises what publishing raises.
    """
    told, stopped, begun, numbers = Told(), Event(), Event(), count()

    def train() -> None:
        while not stopped.is_set():
            number = next(numbers)
            run = simulate(demo_scenario(number, ranks))
            job = replace(run.job, job=f"steady-{number}")
            live = LiveHost(job, run.table, rings)
            pace = _Pace(iteration_s, stopped, told, begun, live)
            try:
                done = produce(
                    job,
                    run.table,
                    settings,
                    linger_s=_LINGER_S,
                    stopped=stopped,
                    on_round=pace,
                    elsewhere=(live.name,),
                )
            finally:
                live.end()
            told.add(jobs=1, messages=done.messages, operators=run.table.num_rows)

    with ThreadPoolExecutor(side_by_side, thread_name_prefix="job") as pool:
        told.running += [pool.submit(train) for _ in range(side_by_side)]
        try:
            while not begun.wait(_LOOK_EVERY_S):
                told.check()
            yield told
        finally:
            stopped.set()
    told.check()


class _Pace:
    """Called after each iteration: the live host goes on to the next, for which it waits until it is time."""

    def __init__(self, iteration_s: float, stopped: Event, told: Told, begun: Event, live: LiveHost) -> None:
        self._iteration_s = iteration_s
        self._stopped = stopped
        self._told = told
        self._begun = begun
        self._live = live
        self._due = time.monotonic()

    def __call__(self, iterations: int) -> None:
        self._live.train(iterations + 1)  # that it is in the next one shows that the last one is over
        self._told.add(iterations=1)
        self._begun.set()
        self._due += self._iteration_s
        self._told.late(time.monotonic() - self._due)
        self._stopped.wait(max(0.0, self._due - time.monotonic()))
