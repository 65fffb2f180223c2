"""The stages' programs: 1F1B as Megatron-LM runs it, and operators that meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.simulation import engine
from producers.simulation.durations import Durations
from producers.simulation.schedule import Program, Scope, programs
from tests.producers.simulation.small import silent


def passes(program: Program) -> list[str]:
    """Forward and backward passes in order: F0 F1 B0 .."""
    order: list[str] = []
    for segment in program.segments:
        if segment.microbatch is not None:
            name = f"{segment.phase[0].upper()}{segment.microbatch}"
            if not order or order[-1] != name:
                order.append(name)
    return order


def test_stages_fill_the_pipeline_alternate_and_drain() -> None:
    order = [" ".join(passes(p)) for p in programs(silent(tp=1, pp=4, dp=1, microbatches=5))]
    assert order == [
        "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4",
        "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
    ]


@given(pp=st.integers(1, 8), microbatches=st.integers(1, 12), layers=st.integers(8, 11), ep=st.booleans())
def test_every_schedule_meets_and_ends(pp: int, microbatches: int, layers: int, ep: bool) -> None:
    scenario = silent(tp=2, pp=pp, dp=2, microbatches=microbatches, layers=layers, ep=2 if ep else 1, iterations=1)
    durations = Durations(scenario)
    for stage, program in enumerate(durations.programs):
        for operator in program.operators:
            if operator.scope is Scope.PIPELINE:
                other = durations.programs[operator.peer_stage or 0].operators
                matching = [
                    o
                    for o in other
                    if o.peer_stage == stage
                    and o.op != operator.op
                    and o.ordinal == operator.ordinal
                    and o.phase == operator.phase
                ]
                assert len(matching) == 1
                assert (matching[0].microbatch, matching[0].size) == (operator.microbatch, operator.size)
        in_flight = peak = 0
        for name in passes(program):
            in_flight += 1 if name.startswith("F") else -1
            peak = max(peak, in_flight)
        assert in_flight == 0
        assert peak == min(pp - stage, microbatches)
    engine.run(durations, [()], [0])  # would raise where stages wait for each other for ever


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_bubbles_emerge_from_waiting(pp: int) -> None:
    """Where communication costs next to nothing, an iteration takes its longest chain of compute."""
    scenario = silent(tp=2, pp=pp, dp=2, layers=pp * 2, compute_ms=20_000.0, iterations=1)
    length = engine.run(Durations(scenario), [()], [0])[0].finished.max()
    assert length == pytest.approx(20.0, rel=0.03)
    assert length >= 20.0


def test_logs_look_like_those_of_real_jobs() -> None:
    """Per layer and pass two all-reduces in the tensor group, as in recorded Megatron-LM schedules."""
    scenario = silent(tp=2, pp=2, dp=2, layers=4, microbatches=4)
    inner = programs(scenario)[0].operators
    tensor = [o for o in inner if o.scope is Scope.TENSOR and o.op == "all_reduce"]
    layers, embedding = 2 * 4 * 2 * 2, 4
    assert len(tensor) == layers + embedding
    assert {o.size for o in tensor} == {scenario.sequence_length * scenario.hidden * 2}
    tail = [(o.op, o.scope) for o in inner if o.microbatch is None]
    assert tail[0] == ("reduce_scatter", Scope.DATA)
    assert ("all_reduce", Scope.EMBEDDING) in tail
    assert tail[-1] == ("all_gather", Scope.DATA)
