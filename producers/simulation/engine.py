"""Executes the stages' programs event by event: who waits for whom, and until when.

A collective ends for all its members when the last one has entered and the transfer is done; a send and its
recv likewise. Nothing else couples ranks: delays travel through the pipeline, and bubbles absorb them, because
of this alone. The result is the block and barrier times; ``rows`` expands them into logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from producers.simulation.cluster import Cluster
from producers.simulation.durations import StageDurations
from producers.simulation.network import World
from producers.simulation.schedule import Communicate, Compute, Operator, Program, Scope

Moment = Literal["call", "start", "end"]

Times = npt.NDArray[Any]
"""Seconds since the job's start, or whole nanoseconds: only sums and maxima are taken."""


class DrawnDurations(Protocol):
    """What an execution needs to know of a scenario."""

    @property
    def cluster(self) -> Cluster:
        """Who runs."""
        ...

    @property
    def programs(self) -> list[Program]:
        """What each stage does."""
        ...

    def iteration(self, iteration: int, worlds: Sequence[World]) -> list[StageDurations]:
        """What it takes in one iteration, by stage."""
        ...


@dataclass(frozen=True, slots=True)
class StageTimes:
    """When the ranks of one stage called, started and ended each operator; shapes (operators, worlds, ranks)."""

    call: Times
    start: Times
    end: Times


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """One iteration: a ``StageTimes`` a stage, and when each rank was through, (pp, worlds, ranks)."""

    stages: list[StageTimes]
    finished: Times


def flattened(times: Sequence[IterationTimes], stage: int, moment: Moment, world: int) -> Times:
    """One moment of all operators of a stage: rank by rank, iteration by iteration, in call order."""
    moments = np.stack([getattr(t.stages[stage], moment)[:, world] for t in times])
    return np.asarray(moments.transpose(2, 0, 1).ravel())


def run(
    durations: DrawnDurations,
    worlds: Sequence[World],
    iterations: Sequence[int],
    logged: int | None = None,
    now: Times | None = None,
) -> list[IterationTimes]:
    """Execute iterations one after the other; the first begins at once on all ranks, or ``now`` (pp, worlds, ranks).

    The operators of the first ``logged`` worlds are kept, of all where it is not given.
    """
    pp, ranks = durations.cluster.grid.shape
    if now is None:
        now = np.zeros((pp, len(worlds), ranks))
    times = []
    for iteration in iterations:
        drawn = durations.iteration(iteration, worlds)
        executed = _Iteration(durations.cluster, durations.programs, drawn, now).execute()
        stages = [StageTimes(*(t[:, :logged].copy() for t in (s.call, s.start, s.end))) for s in executed.stages]
        times.append(IterationTimes(stages, executed.finished))
        now = executed.finished
    return times


Meeting = tuple[Scope, tuple[int, ...], int]
"""What stages meet for: a scope, the stages with the one whose draw decides first, and the ordinal."""


class _Iteration:
    """The state of one iteration while it runs."""

    def __init__(self, cluster: Cluster, programs: list[Program], durations: list[StageDurations], now: Times) -> None:
        self.cluster = cluster
        self.programs = programs
        self.durations = durations
        self.now = list(now)
        self.times = [StageTimes(*(np.empty_like(d.transfers) for _ in range(3))) for d in durations]
        self.step = [0] * len(programs)
        self.called = [False] * len(programs)
        self.entered: dict[Meeting, dict[int, tuple[Times, Times]]] = {}

    def execute(self) -> IterationTimes:
        """Run every stage as far as it gets, until all are through."""
        while any(self.step[s] < len(p.steps) for s, p in enumerate(self.programs)):
            before = (list(self.step), list(self.called))
            for stage, program in enumerate(self.programs):
                while self.step[stage] < len(program.steps) and self._advance(stage):
                    self.step[stage] += 1
            if before == (self.step, self.called):
                raise RuntimeError(f"the schedule deadlocks: stages stand at steps {self.step}")
        return IterationTimes(self.times, np.stack(self.now))

    def _advance(self, stage: int) -> bool:
        """Take a stage's next step; False while it must wait for other stages."""
        step = self.programs[stage].steps[self.step[stage]]
        if isinstance(step, Compute):
            self.now[stage] = self.now[stage] + self.durations[stage].segments[step.segment]
            return True
        if not self.called[stage]:
            self._call(stage, step)
            self.called[stage] = True
        for i in step.operators:
            end = self._end(stage, i)
            if end is None:
                return False
            self.times[stage].end[i] = end
        self.now[stage] = np.maximum.reduce([self.times[stage].end[i] for i in step.operators])
        self.called[stage] = False
        return True

    def _call(self, stage: int, step: Communicate) -> None:
        times, durations = self.times[stage], self.durations[stage]
        now = self.now[stage]
        for i in step.operators:
            now = now + durations.gaps[i]
            times.call[i] = now
            times.start[i] = now + durations.lags[i]
            operator = self.programs[stage].operators[i]
            if not self.cluster.within(operator.scope):
                self.entered.setdefault(self._meeting(stage, operator), {})[stage] = (
                    times.start[i],
                    durations.transfers[i],
                )

    def _end(self, stage: int, i: int) -> Times | None:
        """When an operator ends; None while a stage that takes part has not called it."""
        operator = self.programs[stage].operators[i]
        if self.cluster.within(operator.scope):
            ready = self.cluster.highest(self.times[stage].start[i], operator.scope)
            return np.asarray(ready + self.durations[stage].transfers[i])
        meeting = self._meeting(stage, operator)
        entered = self.entered[meeting]
        stages = meeting[1]
        if len(entered) < len(stages):
            return None
        ready = self.cluster.highest(np.maximum.reduce([entered[s][0] for s in stages]), operator.scope)
        return np.asarray(ready + entered[stages[0]][1])

    def _meeting(self, stage: int, operator: Operator) -> Meeting:
        if operator.peer_stage is not None:
            pair = (stage, operator.peer_stage) if operator.op == "send" else (operator.peer_stage, stage)
            return operator.scope, pair, operator.ordinal
        last = len(self.programs) - 1
        everyone = tuple(range(last + 1)) if operator.scope is Scope.MODEL else (0, last)
        return operator.scope, everyone, operator.ordinal
