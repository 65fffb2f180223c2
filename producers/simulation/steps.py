"""Executes the steps of a part: who of its members waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.parts import Grouping, Kind, axes_of
from producers.simulation.schedule import Communicate, Compute, Scope

Times = npt.NDArray[Any]
"""Seconds or whole nanoseconds, with the axes (parts, worlds, members)."""


@dataclass(frozen=True, slots=True)
class PartDurations:
    """Durations in parts of one kind and one group: axes (segments or operators, parts, worlds, members).

    ``transfers`` are alike for all members of an operator's group.
    """

    segments: Times
    gaps: Times
    lags: Times
    transfers: Times

    def scaled(self, factor: npt.NDArray[np.float64]) -> PartDurations:
        """In whole nanoseconds, times a factor of each part and world; (parts, worlds)."""
        by = 1e9 * factor[..., None]
        return PartDurations(
            *(np.rint(d * by).astype(np.int64) for d in (self.segments, self.gaps, self.lags, self.transfers))
        )


@dataclass(frozen=True, slots=True)
class PartTimes:
    """When the members called, started and ended each operator: (operators, parts, worlds, members); whole ns."""

    call: Ints
    start: Ints
    end: Ints

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self.call.nbytes + self.start.nbytes + self.end.nbytes


class Steps:
    """The steps of parts of one kind."""

    def __init__(self, cluster: Cluster, kind: Kind, grouping: Grouping) -> None:
        self._cluster = cluster
        self._kind = kind
        self._grouping = grouping

    def reach(self, durations: PartDurations) -> Times:
        """How long before the part's end each member must come at the latest."""
        if self._uniform:
            enter, meet = self._rounds(durations)
            return np.asarray(enter[0] + durations.transfers[0] + meet[1:].sum(axis=0))
        left: Times = np.zeros(max(durations.segments.shape[1:], durations.transfers.shape[1:]))
        for step in reversed(self._kind.steps):
            if isinstance(step, Compute):
                left = left + durations.segments[step.segment]
            else:
                after = self._last(left, self._kind.operators[step.operators[0]].scope)
                waits = self._waits(durations, step.operators)
                ends = [wait + durations.lags[i] + durations.transfers[i] for i, wait in waits]
                left = after + np.maximum.reduce(ends)
        return left

    def execute(self, durations: PartDurations, came: Times) -> tuple[PartTimes, Times]:
        """The members' operators, and when the members are through."""
        if self._uniform:
            return self._execute_rounds(durations, came)
        times = PartTimes(*(np.empty(durations.transfers.shape, dtype=came.dtype) for _ in range(3)))
        now = came
        for step in self._kind.steps:
            if isinstance(step, Compute):
                now = now + durations.segments[step.segment]
                continue
            for i, wait in self._waits(durations, step.operators):
                times.call[i] = now + wait
                times.start[i] = times.call[i] + durations.lags[i]
                times.end[i] = self._last(times.start[i], self._kind.operators[i].scope) + durations.transfers[i]
            now = np.maximum.reduce([times.end[i] for i in step.operators])
        return times, now

    @cached_property
    def _uniform(self) -> bool:
        """Whether every operator spans all members, one after the other: then sums over steps do."""
        calls = [step for step in self._kind.steps if isinstance(step, Communicate)]
        alike = all(o.scope is self._kind.scope for o in self._kind.operators)
        return bool(calls) and alike and not self._kind.meets and all(len(step.operators) == 1 for step in calls)

    def _rounds(self, durations: PartDurations) -> tuple[Times, Times]:
        """What each member does from one operator's end to entering the next, and what passes between their ends."""
        enter = self._computed(durations) + durations.gaps + durations.lags
        return enter, enter.max(axis=-1, keepdims=True) + durations.transfers[..., :1]

    def _computed(self, durations: PartDurations) -> Times:
        """Compute before each operator; (operators, parts, worlds, members)."""
        before = np.cumsum([isinstance(step, Compute) for step in self._kind.steps])
        until = before[[isinstance(step, Communicate) for step in self._kind.steps]]
        total = np.concatenate([np.zeros_like(durations.gaps[:1]), np.cumsum(durations.segments, axis=0)])[until]
        return np.diff(total, axis=0, prepend=0)

    def _execute_rounds(self, durations: PartDurations, came: Times) -> tuple[PartTimes, Times]:
        enter, meet = self._rounds(durations)
        meet[0] = (came + enter[0]).max(axis=-1, keepdims=True) + durations.transfers[0][..., :1]
        end = np.broadcast_to(np.cumsum(meet, axis=0), enter.shape).copy()
        began = np.concatenate([came[None], end[:-1]])
        start = began + enter
        return PartTimes(start - durations.lags, start, end), end[-1]

    def _waits(self, durations: PartDurations, operators: Sequence[int]) -> list[tuple[int, Times]]:
        """Each operator of a step with the time that the host takes until it has called it."""
        if len(operators) == 1:
            return [(operators[0], durations.gaps[operators[0]])]
        before = self._called_before
        return [(j, np.sum([durations.gaps[i] * before[i, j] for i in operators], axis=0)) for j in operators]

    @cached_property
    def _called_before(self) -> Ints:
        """Whether a stage has called one operator of a meeting (axis 0) once it calls another; axis 2: members."""
        called = self._kind.calls[:, :, None] <= self._kind.calls[:, None, :]
        return np.repeat(called, self._grouping.members.shape[1], axis=0).transpose(1, 2, 0).astype(np.int64)

    def _last(self, values: Times, scope: Scope) -> Times:
        """The latest of each member's group of a scope; (.., members), or (.., 1) where that is all members."""
        if self._kind.meets or scope is self._kind.scope:
            return np.asarray(values.max(axis=-1, keepdims=True))
        own = axes_of(self._cluster, self._kind.scope)
        sizes = [size if axis in own else 1 for axis, size in enumerate(self._cluster.scenario.stage_shape)]
        cube = values.reshape(*values.shape[:-1], *sizes)
        latest = cube.max(axis=tuple(axis - 4 for axis in self._cluster.axes(scope)), keepdims=True)
        return np.broadcast_to(latest, cube.shape).reshape(values.shape)
