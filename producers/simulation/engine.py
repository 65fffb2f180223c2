"""Executes the stages' programs event by event: who waits for whom, and until when.

A collective ends for all its members when the last one has entered and the transfer is done; a send and its
recv likewise. Nothing else couples ranks: delays travel through the pipeline, and bubbles absorb them, because
of this alone. The result is the block and barrier times; ``rows`` expands them into logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from producers.simulation.durations import GROUP_AXIS, Durations, StageDurations, World
from producers.simulation.noise import Floats
from producers.simulation.schedule import Communicate, Compute, Operator, Program, Scope

Moment = Literal["call", "start", "end"]


@dataclass(frozen=True, slots=True)
class StageTimes:
    """When the ranks of one stage called, started and ended each operator; seconds since the job's start.

    Shapes (operators, worlds, dp, tp).
    """

    call: Floats
    start: Floats
    end: Floats


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """One iteration: a ``StageTimes`` a stage, and when each rank was through, (pp, worlds, dp, tp)."""

    stages: list[StageTimes]
    finished: Floats


def flattened(times: Sequence[IterationTimes], stage: int, moment: Moment, world: int) -> Floats:
    """One moment of all operators of a stage: rank by rank, iteration by iteration, in call order."""
    moments = np.stack([getattr(t.stages[stage], moment)[:, world] for t in times])
    return np.asarray(moments.transpose(2, 3, 0, 1).ravel())


def run(
    durations: Durations, worlds: Sequence[World], iterations: Sequence[int], logged: int | None = None
) -> list[IterationTimes]:
    """Execute iterations one after the other; the first begins at once on all ranks.

    The operators of the first ``logged`` worlds are kept, of all where it is not given.
    """
    now = np.zeros((durations.scenario.pp, len(worlds), durations.scenario.dp, durations.scenario.tp))
    times = []
    for iteration in iterations:
        executed = _Iteration(durations.programs, durations.iteration(iteration, worlds), now).execute()
        stages = [StageTimes(*(t[:, :logged].copy() for t in (s.call, s.start, s.end))) for s in executed.stages]
        times.append(IterationTimes(stages, executed.finished))
        now = executed.finished
    return times


Meeting = tuple[Scope, tuple[int, ...], int]
"""What stages meet for: a scope, the stages with the one whose draw decides first, and the ordinal."""


class _Iteration:
    """The state of one iteration while it runs."""

    def __init__(self, programs: list[Program], durations: list[StageDurations], now: Floats) -> None:
        self.programs = programs
        self.durations = durations
        self.now = list(now)
        self.times = [StageTimes(*(np.empty_like(d.transfers) for _ in range(3))) for d in durations]
        self.step = [0] * len(programs)
        self.called = [False] * len(programs)
        self.entered: dict[Meeting, dict[int, tuple[Floats, Floats]]] = {}

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
            if operator.scope not in GROUP_AXIS:
                self.entered.setdefault(self._meeting(stage, operator), {})[stage] = (
                    times.start[i],
                    durations.transfers[i],
                )

    def _end(self, stage: int, i: int) -> Floats | None:
        """When an operator ends; None while a stage that takes part has not called it."""
        operator = self.programs[stage].operators[i]
        if operator.scope in GROUP_AXIS:
            ready = self.times[stage].start[i].max(axis=GROUP_AXIS[operator.scope], keepdims=True)
            return np.asarray(ready + self.durations[stage].transfers[i])
        meeting = self._meeting(stage, operator)
        entered = self.entered[meeting]
        stages = meeting[1]
        if len(entered) < len(stages):
            return None
        ready = np.maximum.reduce([entered[s][0] for s in stages])
        if operator.scope is Scope.MODEL:
            ready = ready.max(axis=-1, keepdims=True)
        return np.asarray(ready + entered[stages[0]][1])

    def _meeting(self, stage: int, operator: Operator) -> Meeting:
        if operator.peer_stage is not None:
            pair = (stage, operator.peer_stage) if operator.op == "send" else (operator.peer_stage, stage)
            return operator.scope, pair, operator.ordinal
        last = len(self.programs) - 1
        everyone = tuple(range(last + 1)) if operator.scope is Scope.MODEL else (0, last)
        return operator.scope, everyone, operator.ordinal
