"""A run of thousands of ranks through the pipeline, as encoded messages in this process.

What a simulated log answers has to be worked out first, which takes longer than all of the diagnosis: that time is
counted apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple, Self, TypeVar

import pyarrow as pa

from benchmarks.simulated.detection import Detection, detect_from
from diagnosis.job import pivots
from offbeat.settings import Settings
from producers.live.live_store import WANTED_ITERATIONS
from producers.simulated_store import simulated_agents
from producers.simulation import LazyLog, LazyRun
from producers.simulation.lazy_log import Span, Wanted
from schemas.processor import Processor

_Result = TypeVar("_Result")
_ALL = Wanted()


class Seconds(NamedTuple):
    """Of a clock on the wall, and of this process alone: on a busy machine they differ."""

    wall: float = 0.0
    cpu: float = 0.0

    @classmethod
    def now(cls) -> Self:
        """What both clocks show."""
        return cls(time.perf_counter(), time.process_time())

    def plus(self, other: Seconds) -> Seconds:
        """Both together."""
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)

    def less(self, other: Seconds) -> Seconds:
        """What is left without the other."""
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)


class TimedLog(LazyLog):
    """A log that counts the seconds in which it is worked out."""

    def __init__(self, run: LazyRun) -> None:
        super().__init__(run)
        self.taken = Seconds()

    def rows(
        self, ranks: Iterable[int], iterations: Sequence[int], wanted: Wanted = _ALL, *, most: int | None = None
    ) -> tuple[pa.Table, Set[int]]:
        return self._timed(lambda: super(TimedLog, self).rows(ranks, iterations, wanted, most=most))

    def span(self, rank: int, iteration: int) -> Span:
        return self._timed(lambda: super(TimedLog, self).span(rank, iteration))

    def latest_ns(self, ranks: Iterable[int], iteration: int) -> int:
        return self._timed(lambda: super(TimedLog, self).latest_ns(ranks, iteration))

    def _timed(self, work: Callable[[], _Result]) -> _Result:
        started = Seconds.now()
        result = work()
        self.taken = self.taken.plus(Seconds.now().less(started))
        return result


def observe(log: TimedLog, settings: Settings, readers: Sequence[Processor] = ()) -> Detection:
    """What the pipeline says of a run, whose agents keep no more than deployed ones promise; ``readers`` hear what it
    publishes.

    Raises ``RuntimeError`` where a message was refused.
    """
    job = log.run.job
    agents = simulated_agents(log, pivots(job, settings.pivots), keep_iterations=WANTED_ITERATIONS)
    return detect_from(job, agents, settings, readers)
