"""A simulated job of thousands of ranks, expanded where it is asked for.

All ranks' blocks of an iteration are executed at once (``blocks``); what happened inside a block is worked out when
somebody asks for a rank that took part (``inside``). Everything is a pure function of the scenario, so it does not
matter what was asked before, nor in which order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, partial
from typing import Generic, TypeVar

import numpy as np

from diagnosis.job import Job
from producers.simulation.blocks import Blocks, Execution
from producers.simulation.calibration import Effort, slow_device
from producers.simulation.cluster import Cluster, Ints
from producers.simulation.conditions import Climate, Conditions
from producers.simulation.description import described
from producers.simulation.fabric import Fabric
from producers.simulation.inside import Inside
from producers.simulation.network import SlowDevice, World
from producers.simulation.noise import Floats, Purpose
from producers.simulation.parts import plan
from producers.simulation.scenario import Scenario
from producers.simulation.schedule import programs
from producers.simulation.steps import PartDurations, PartTimes
from producers.simulation.totals import family_totals

_KEPT_WHOLE = 4
_KEPT_CONDITIONS = 32
_KEPT_BLOCK_BYTES = 2500e6
"""Of when parts ended, for those who look back: 1 to 9 MB an iteration at 8,192 ranks. Searches look back a hundred
iterations again and again; with room for fewer, each of them would be executed anew every time.
"""
_KEPT_PART_BYTES = 3500e6
"""Of parts that were expanded: they are asked for again, above all those of iterations that others are compared with.
"""
_EFFORT = Effort(samples=3, grid=9, rounds=4)

Worlds = tuple[int, ...]
"""Worlds by number: what happened, the same without faults, and each of several faults alone."""


Thing = TypeVar("Thing")


class Recent(Generic[Thing]):
    """The last few things that were worked out, as many as weigh no more than a limit."""

    def __init__(self, most: float, weight: Callable[[Thing], float] = lambda _: 1.0) -> None:
        self._most, self._weight = most, weight
        self._things: OrderedDict[Hashable, Thing] = OrderedDict()
        self._held = 0.0

    def get(self, key: Hashable, make: Callable[[], Thing]) -> Thing:
        """The thing of a key, made where it is not there."""
        if key not in self._things:
            thing = make()
            self._things[key] = thing
            self._held += self._weight(thing)
            while self._held > self._most and len(self._things) > 1:
                self._held -= self._weight(self._things.popitem(last=False)[1])
        self._things.move_to_end(key)
        return self._things[key]


class LazyRun:
    """A job and its faults. ``slow`` are the faults with the factors of their devices.

    Raises ``SettingsError`` for a fault that cannot slow the job as much as it should, and for a layout whose parts
    do not end together.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = Cluster(scenario)
        self.fabric = Fabric(self.cluster)
        self.programs = programs(scenario)
        self.plan = plan(self.cluster, self.programs)
        self.climate = Climate(self.cluster, self.programs)
        self.insides = [[Inside(self.cluster, kind) for kind in family.kinds] for family in self.plan.families]
        self.totals = family_totals(self.cluster, self.climate, self.plan, self.insides)
        self.execution = Execution(self.cluster, self.plan)
        devices = [(fault, self.fabric.device(fault)) for fault in scenario.faults]
        self.slow: tuple[SlowDevice, ...] = tuple(
            slow_device(self._lengths, fault, device, _EFFORT) for fault, device in devices
        )
        alone: list[World] = [(device,) for device in self.slow] if len(self.slow) > 1 else []
        self.worlds: list[World] = [self.slow, (), *alone] if self.slow else [()]
        self._began: list[Ints] = [np.zeros((scenario.pp, len(self.worlds), self.cluster.stage_ranks), dtype=np.int64)]
        self._blocks: Recent[Blocks] = Recent(_KEPT_WHOLE)
        self._actual: Recent[Blocks] = Recent(_KEPT_BLOCK_BYTES, lambda blocks: blocks.nbytes)
        self._conditions: Recent[Conditions] = Recent(_KEPT_CONDITIONS)
        self._parts: Recent[PartTimes] = Recent(_KEPT_PART_BYTES, lambda part: part.nbytes)

    @cached_property
    def job(self) -> Job:
        """The job as its scheduler describes it while it runs."""
        return described(self.fabric, self.cluster.job())

    def began_ns(self, iteration: int) -> Ints:
        """When ranks began an iteration, since the job's start; (pp, worlds, ranks of a stage), whole ns."""
        while len(self._began) <= iteration:
            self._executed(len(self._began) - 1)
        return self._began[iteration]

    def blocks(self, iteration: int) -> Blocks:
        """An iteration's blocks; of one world only where all worlds are still alike."""
        self.began_ns(iteration)
        return self._blocks.get(iteration, lambda: self._execute(iteration))

    def _happened(self, iteration: int) -> Blocks:
        """The blocks of what happened."""
        return self._actual.get(iteration, lambda: self.blocks(iteration).of_world(0))

    def operators(self, rank: int, iteration: int, asked: Ints | None = None, world: int = 0) -> Ints:
        """When a rank called, started and ended operators of its stage's program; (operators, 3), whole ns.

        ``asked`` are places in the program; None: all of it.
        """
        stage, within = divmod(rank, self.cluster.stage_ranks)
        kinds, cells = self._cells[stage] if asked is None else self._cells[stage][:, asked]
        times = np.empty((len(kinds), 3), dtype=np.int64)
        for number in np.flatnonzero(np.bincount(kinds)).tolist():
            f, k = self._kinds[stage][number]
            inside = self.insides[f][k]
            group = int(inside.grouping.of_rank[within])
            make = partial(self._times, iteration, f, k, group, world)
            part = self._parts.get((iteration, f, k, group, world), make)
            members = inside.grouping.members[group]
            column = inside.kind.stages.index(stage) * len(members) + int(np.searchsorted(members, within))
            own = np.flatnonzero(kinds == number)
            at = cells[own] * inside.members + column
            for m, moment in enumerate((part.call, part.start, part.end)):
                times[own, m] = moment.ravel().take(at)
        return times

    def expand(
        self, iteration: int, family: int, kind: int, group: int, worlds: Worlds
    ) -> tuple[PartDurations, PartTimes]:
        """All parts of a kind in an iteration, for one group: durations and times, in whole ns."""
        inside = self.insides[family][kind]
        blocks = self._happened(iteration) if worlds == (0,) else self.blocks(iteration)
        within = inside.grouping.members[group]
        chosen = [min(world, blocks.worlds - 1) for world in worlds]
        rows = self.plan.families[family].rows[kind]
        came = [
            self.execution.came(blocks, stage, self._place[stage][family][rows], within)[:, chosen]
            for stage in inside.kind.stages
        ]
        left = blocks.left[family][rows, :, group][:, chosen]
        drawn = self.drawn(iteration, family, kind, group, worlds)
        return inside.expand(drawn, np.concatenate(came, axis=-1), left)

    def drawn(self, iteration: int, family: int, kind: int, group: int, worlds: Worlds) -> PartDurations:
        """The same durations before they are made to fit their blocks, in seconds."""
        inside = self.insides[family][kind]
        conditions = self._conditions.get((iteration, worlds), lambda: self._of(iteration, worlds))
        number = self._first_number[family] + kind
        place = number * self.scenario.world + int(inside.ranks(group)[0])
        stream = self.climate.draws.at(Purpose.INSIDE, place, iteration)
        return inside.drawn(stream, conditions, group, inside.kind.microbatch)

    def _times(self, iteration: int, family: int, kind: int, group: int, world: int) -> PartTimes:
        return self.expand(iteration, family, kind, group, (world,))[1]

    def _of(self, iteration: int, worlds: Worlds) -> Conditions:
        return self.climate.of(iteration, [self.worlds[world] for world in worlds])

    def _executed(self, iteration: int) -> None:
        blocks = self._blocks.get(iteration, lambda: self._execute(iteration))
        self._actual.get(iteration, lambda: blocks.of_world(0))
        ended = np.broadcast_to(blocks.ended, self._began[0].shape)
        self._began.append(np.ascontiguousarray(ended))

    def _execute(self, iteration: int) -> Blocks:
        began, worlds = self._began[iteration], self.worlds
        active = any(iteration in slow.fault.iterations for slow in self.slow)
        if not active and (began == began[:, :1]).all():
            began, worlds = began[:, :1], [()]
        conditions = self.climate.of(iteration, worlds)
        return self.execution.run([totals.of(conditions) for totals in self.totals], began, keep=True)

    def _lengths(self, worlds: Sequence[World], iterations: Sequence[int]) -> Floats:
        """Lengths of consecutive iterations, the first of which begins at once; (iterations, worlds), seconds."""
        now = np.zeros((self.scenario.pp, len(worlds), self.cluster.stage_ranks), dtype=np.int64)
        ends = [np.zeros(len(worlds))]
        for iteration in iterations:
            conditions = self.climate.of(iteration, worlds)
            now = self.execution.run([totals.of(conditions) for totals in self.totals], now, keep=False).ended
            ends.append(now.mean(axis=(0, 2)) / 1e9)
        return np.diff(np.array(ends), axis=0)

    @cached_property
    def _kinds(self) -> list[list[tuple[int, int]]]:
        """Family and number of the kinds with operators that each stage takes part in."""
        return [
            [
                (f, k)
                for f, insides in enumerate(self.insides)
                for k, inside in enumerate(insides)
                if stage in inside.kind.stages and inside.kind.operators
            ]
            for stage in range(self.scenario.pp)
        ]

    @cached_property
    def _cells(self) -> list[Ints]:
        """By stage, of each operator of its program: which of the stage's kinds it is in, and its place among this
        kind's operators, each in all parts, operator after operator; (2, operators).
        """
        found = []
        for stage, kinds in enumerate(self._kinds):
            of_operator = np.full((2, len(self.programs[stage].operators)), -1, dtype=np.int64)
            for number, (f, k) in enumerate(kinds):
                kind = self.insides[f][k].kind
                places = kind.operator_at[kind.stages.index(stage)].T
                of_operator[0, places] = number
                of_operator[1, places] = np.arange(places.size).reshape(places.shape)
            found.append(of_operator)
        return found

    @cached_property
    def _first_number(self) -> list[int]:
        """Number of each family's first kind."""
        return [0, *np.cumsum([len(family.kinds) for family in self.plan.families])[:-1].tolist()]

    @cached_property
    def _place(self) -> list[list[Ints]]:
        """By stage and family: where in the stage's course each part of the family is, -1: not there."""
        places = []
        for course in self.plan.course:
            of_family = [np.full(len(family.kind), -1, dtype=np.int64) for family in self.plan.families]
            for at, (family, row) in enumerate(course):
                of_family[family][row] = at
            places.append(of_family)
        return places
