"""Splits the stages' programs into parts whose members start and end together, and orders the parts in levels.

A part is a run of steps of one stage: a pass, or a step of the end of an iteration. All that its members wait for
in it is each other, and its last operator spans them all; or it is compute of each rank alone. What stages call
together (sends and receives between neighbours, the exchanges of embeddings and norm) is a part of its own. A part
therefore ends, for all of its members, some time after the last of them has come, and who waits for whom between
parts depends on the layout alone: parts are put into levels once, and the parts of a level are executed as arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.schedule import Communicate, Compute, Operator, Program, Scope, Segment
from schemas.errors import SettingsError

Step = Compute | Communicate


@dataclass(frozen=True)
class Kind:
    """Parts that are alike but for their microbatch.

    ``stages`` are those that take part, one unless they meet; ``scope`` is the groups whose members end together,
    None: each rank alone. ``segments`` and ``operators`` hold the first of these parts, ``steps`` count them from 0.
    ``segment_at`` (parts, segments) and ``operator_at`` (stages, parts, operators) are places in the stages'
    programs, ``calls`` (stages, operators) the order in which each stage calls them.
    """

    stages: tuple[int, ...]
    scope: Scope | None
    steps: tuple[Step, ...]
    segments: tuple[Segment, ...]
    operators: tuple[Operator, ...]
    segment_at: Ints
    operator_at: Ints
    calls: Ints
    microbatch: Ints

    @property
    def meets(self) -> bool:
        """Whether several stages take part."""
        return len(self.stages) > 1


@dataclass(frozen=True)
class Level:
    """Parts of one family that can be executed at once: rows ``first`` to ``last`` (excluded) of the family.

    ``stages`` are the stages of each, of meetings the first one.
    """

    family: int
    first: int
    last: int
    stages: Ints


@dataclass(frozen=True)
class Family:
    """Parts whose groups are of one scope, in the order of their levels: ``kind`` and ``microbatch`` of each.

    ``microbatch`` is -1 where there is none.
    """

    scope: Scope | None
    kinds: tuple[Kind, ...]
    kind: Ints
    microbatch: Ints

    @cached_property
    def rows(self) -> tuple[Ints, ...]:
        """The family's parts of each kind, in the order of the kind's parts."""
        return tuple(np.flatnonzero(self.kind == k) for k in range(len(self.kinds)))


@dataclass(frozen=True)
class Plan:
    """All parts of an iteration. ``course`` holds (family, row) of each stage's parts, in its order."""

    families: tuple[Family, ...]
    levels: tuple[Level, ...]
    course: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class _Span:
    """A part as one stage sees it: its steps from ``first`` to ``last`` (excluded)."""

    stage: int
    first: int
    last: int
    scope: Scope | None


def axes_of(cluster: Cluster, scope: Scope | None) -> tuple[int, ...]:
    """Axes of ``Scenario.stage_shape`` that the members of a part extend over, within each stage."""
    return () if scope is None else cluster.axes(scope)


@dataclass(frozen=True)
class Grouping:
    """A stage's ranks in groups of one scope: the group of each, and the members of each, ascending.

    ``of_rank`` (ranks of a stage,); ``members`` (groups, members), as ranks within the stage.
    """

    of_rank: Ints
    members: Ints

    @classmethod
    def of(cls, cluster: Cluster, scope: Scope | None) -> Grouping:
        """The groups of a scope, None: each rank alone; of groups between stages their part in each."""
        axes, shape = axes_of(cluster, scope), cluster.scenario.stage_shape
        reduced = [1 if axis in axes else size for axis, size in enumerate(shape)]
        numbers = np.arange(int(np.prod(reduced))).reshape(reduced)
        of_rank = np.broadcast_to(numbers, shape).ravel()
        return cls(of_rank, np.argsort(of_rank, kind="stable").reshape(numbers.size, -1))


def plan(cluster: Cluster, programs: Sequence[Program]) -> Plan:
    """The parts of every iteration of a job.

    Raises ``SettingsError`` where experts are spread across tensor groups: then the members of no part end together.
    """
    if cluster.scenario.ep > 1 and not cluster.scenario.fold_experts:
        raise SettingsError("a lazily expanded job needs experts on neighbouring ranks; set fold_experts")
    courses = [_spans(cluster, program) for program in programs]
    order = _in_levels(programs, courses)
    return _collected(programs, courses, order)


def _spans(cluster: Cluster, program: Program) -> list[_Span]:
    spans: list[_Span] = []
    for first, last in _runs(cluster, program):
        step = program.steps[first]
        if isinstance(step, Communicate) and not cluster.within(program.operators[step.operators[0]].scope):
            spans.append(_Span(program.stage, first, last, program.operators[step.operators[0]].scope))
        else:
            spans += _ending_together(cluster, program, first, last)
    return spans


def _runs(cluster: Cluster, program: Program) -> Iterable[tuple[int, int]]:
    """Steps of one pass, or between passes, that no other stage takes part in; and each step that others do."""
    first = 0
    for at in range(1, len(program.steps) + 1):
        if at == len(program.steps) or _belongs(cluster, program, at) != _belongs(cluster, program, first):
            yield first, at
            first = at


def _belongs(cluster: Cluster, program: Program, at: int) -> tuple[object, ...]:
    step = program.steps[at]
    if isinstance(step, Compute):
        segment = program.segments[step.segment]
        return (segment.phase, segment.microbatch)
    operator = program.operators[step.operators[0]]
    return (operator.phase, operator.microbatch) if cluster.within(operator.scope) else (at,)


def _ending_together(cluster: Cluster, program: Program, first: int, last: int) -> Iterable[_Span]:
    """The steps up to the last operator of the widest group, those of the next widest behind it, and so on."""
    while first < last:
        called = {
            at: program.operators[step.operators[0]].scope
            for at in range(first, last)
            if isinstance(step := program.steps[at], Communicate)
        }
        if not called:
            yield _Span(program.stage, first, last, None)
            return
        widest = max(called.values(), key=cluster.size)
        end = max(at for at, scope in called.items() if scope is widest) + 1
        yield _Span(program.stage, first, end, widest)
        first = end


def _in_levels(programs: Sequence[Program], courses: Sequence[list[_Span]]) -> list[list[tuple[_Span, ...]]]:
    """Parts by level: in each, every stage takes its next part if the stages that meet in it have come to it."""
    at = [0] * len(courses)
    meetings = [[_meeting(programs[s], span) for span in course] for s, course in enumerate(courses)]
    levels: list[list[tuple[_Span, ...]]] = []
    while any(at[s] < len(course) for s, course in enumerate(courses)):
        here = {s: meetings[s][at[s]] for s, course in enumerate(courses) if at[s] < len(course)}
        level = []
        for s, (stages, what) in here.items():
            if s == stages[0] and all(here.get(other) == (stages, what) for other in stages):
                level.append(tuple(courses[other][at[other]] for other in stages))
        if not level:
            raise RuntimeError(f"the schedule deadlocks: stages stand at parts {at}")
        for part in level:
            for span in part:
                at[span.stage] += 1
        levels.append(level)
    return levels


def _meeting(program: Program, span: _Span) -> tuple[tuple[int, ...], frozenset[object]]:
    """Which stages take part in a part, and what tells it from their others."""
    operators = _operators(program, span)
    if span.scope is Scope.PIPELINE:
        other = operators[0].peer_stage
        assert other is not None
        stages = (min(span.stage, other), max(span.stage, other))
        return stages, frozenset((o.phase, o.ordinal) for o in operators)
    if span.scope in {Scope.EMBEDDING, Scope.MODEL}:
        last = program.stages - 1
        all_stages = tuple(range(last + 1))
        return (0, last) if span.scope is Scope.EMBEDDING else all_stages, frozenset(
            {(span.scope, operators[0].ordinal)}
        )
    return (span.stage,), frozenset({(span.stage, span.first)})


def _operators(program: Program, span: _Span) -> list[Operator]:
    steps = program.steps[span.first : span.last]
    return [program.operators[i] for step in steps if isinstance(step, Communicate) for i in step.operators]


def _collected(
    programs: Sequence[Program], courses: Sequence[list[_Span]], order: list[list[tuple[_Span, ...]]]
) -> Plan:
    """Families of alike parts in the order of their levels."""
    members: dict[Scope | None, list[tuple[_Span, ...]]] = defaultdict(list)
    levels = []
    scopes: list[Scope | None] = []
    row_of: dict[_Span, tuple[int, int]] = {}
    for level in order:
        for scope in dict.fromkeys(part[0].scope for part in level):
            if scope not in scopes:
                scopes.append(scope)
            rows, parts = members[scope], [part for part in level if part[0].scope is scope]
            first = len(rows)
            for part in parts:
                row_of |= dict.fromkeys(part, (scopes.index(scope), len(rows)))
                rows.append(part)
            stages = np.array([part[0].stage for part in parts])
            levels.append(Level(scopes.index(scope), first, len(rows), stages))
    families = tuple(_family(programs, scope, members[scope]) for scope in scopes)
    course = tuple(tuple(row_of[span] for span in spans) for spans in courses)
    return Plan(families, tuple(levels), course)


def _family(programs: Sequence[Program], scope: Scope | None, parts: list[tuple[_Span, ...]]) -> Family:
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row, part in enumerate(parts):
        alike[_signature(programs, part)].append(row)
    kind = np.empty(len(parts), dtype=np.int64)
    for k, rows in enumerate(alike.values()):
        kind[rows] = k
    kinds = tuple(_kind(programs, [parts[row] for row in rows]) for rows in alike.values())
    microbatch = np.empty(len(parts), dtype=np.int64)
    for one, rows in zip(kinds, alike.values(), strict=True):
        microbatch[rows] = one.microbatch
    return Family(scope, kinds, kind, microbatch)


def _signature(programs: Sequence[Program], part: tuple[_Span, ...]) -> tuple[object, ...]:
    """What parts of one kind have in common."""
    first = part[0]
    program = programs[first.stage]
    steps = tuple(_likeness(program, step) for step in program.steps[first.first : first.last])
    return tuple(span.stage for span in part), steps


def _likeness(program: Program, step: Step) -> tuple[object, ...]:
    if isinstance(step, Compute):
        segment = program.segments[step.segment]
        return (segment.work, segment.phase, segment.expert_layer, segment.by_host)
    return tuple((o.op, o.scope, o.size, o.phase) for o in (program.operators[i] for i in step.operators))


def _kind(programs: Sequence[Program], parts: list[tuple[_Span, ...]]) -> Kind:
    first = parts[0][0]
    program = programs[first.stage]
    segment_at, operator_at, calls = [], [], np.zeros((0, 0), dtype=np.int64)
    for part in parts:
        steps = program.steps[part[0].first : part[0].last]
        segment_at.append([step.segment for step in steps if isinstance(step, Compute)])
        called = [_called(programs[span.stage], span) for span in part]
        keys = list(called[0])
        operator_at.append([[of_stage[key] for key in keys] for of_stage in called])
        calls = np.array([[list(of_stage).index(key) for key in keys] for of_stage in called], dtype=np.int64)
    steps = program.steps[first.first : first.last]
    return Kind(
        stages=tuple(span.stage for span in parts[0]),
        scope=first.scope,
        steps=_relative(steps),
        segments=tuple(program.segments[i] for i in segment_at[0]),
        operators=tuple(program.operators[i] for i in operator_at[0][0]),
        segment_at=np.array(segment_at, dtype=np.int64).reshape(len(parts), -1),
        operator_at=np.array(operator_at, dtype=np.int64).transpose(1, 0, 2),
        calls=calls,
        microbatch=np.array([_slot(program, steps[0]) for steps in (program.steps[p[0].first :] for p in parts)]),
    )


def _called(program: Program, span: _Span) -> dict[object, int]:
    """A part's operators of one stage, in the order in which it calls them; the key is the same in all stages."""
    steps = program.steps[span.first : span.last]
    at = [i for step in steps if isinstance(step, Communicate) for i in step.operators]
    if span.scope is Scope.PIPELINE:
        return {program.operators[i].phase: i for i in at}
    return dict(enumerate(at))


def _relative(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps whose segments and operators are counted from the first."""
    relative: list[Step] = []
    segments = operators = 0
    for step in steps:
        if isinstance(step, Compute):
            relative.append(Compute(segments))
            segments += 1
        else:
            relative.append(Communicate(tuple(range(operators, operators + len(step.operators)))))
            operators += len(step.operators)
    return tuple(relative)


def _slot(program: Program, step: Step) -> int:
    microbatch = (
        program.segments[step.segment].microbatch
        if isinstance(step, Compute)
        else program.operators[step.operators[0]].microbatch
    )
    return -1 if microbatch is None else microbatch
