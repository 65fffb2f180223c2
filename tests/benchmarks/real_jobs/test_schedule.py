"""Schedules: what one rank waits for its peers do as well, in every kind of job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.real_jobs.plan import FAULTS, SHAPES, Fault, Plan, planned
from benchmarks.real_jobs.schedule import Await, Collective, Compute, Exchange, Message, Step, iteration

PLANS = st.builds(
    Plan,
    name=st.just("any"),
    tp=st.integers(1, 3),
    pp=st.integers(1, 4),
    dp=st.integers(1, 3),
    microbatches=st.integers(1, 6),
    layers=st.integers(1, 2),
    sharded=st.booleans(),
    overlapped=st.booleans(),
    experts=st.booleans(),
).filter(lambda plan: plan.dp > 1 or not (plan.sharded or plan.overlapped or plan.experts))


@dataclass
class Fake:
    """Ranks that wait for each other as real ones do, but take no time."""

    plan: Plan
    at: dict[int, Step] = field(default_factory=dict)
    posted: Counter[tuple[int, Message]] = field(default_factory=Counter)
    joined: Counter[tuple[str, int]] = field(default_factory=Counter)
    called: Counter[tuple[str, int]] = field(default_factory=Counter)

    def run(self) -> None:
        """One iteration of all ranks; fails where no rank can go on."""
        programs = {rank: iteration(self.plan, rank) for rank in range(self.plan.ranks)}
        for rank, program in programs.items():
            self._advance(rank, program)
        while self.at:
            free = [rank for rank, step in self.at.items() if self._through(rank, step)]
            assert free, f"nobody goes on: {self.at}"
            for rank in free:
                self._advance(rank, programs[rank])
        assert set(self.posted.values()) <= {0}, "a message is sent that nobody receives"

    def _advance(self, rank: int, program: Iterator[Step]) -> None:
        step = next(program, None)
        if step is None:
            del self.at[rank]
            return
        self.at[rank] = step
        if isinstance(step, Exchange) and step.send:
            self.posted[rank, step.send] += 1
        if isinstance(step, Collective):
            name = self.plan.of_rank(rank)[step.kind]
            self.called[name, rank] += 1
            self.joined[name, self.called[name, rank]] += 1

    def _through(self, rank: int, step: Step) -> bool:
        if isinstance(step, Exchange) and step.receive:
            sent = step.receive.peer, replace(step.receive, peer=rank)
            if not self.posted[sent]:
                return False
            self.posted[sent] -= 1
        if isinstance(step, Collective) and not step.posted:
            name = self.plan.of_rank(rank)[step.kind]
            return self.joined[name, self.called[name, rank]] == len(self.plan.communicators[name])
        return True


@given(PLANS)
def test_every_job_comes_to_its_end(plan: Plan) -> None:
    Fake(plan).run()


@given(PLANS)
def test_members_of_a_communicator_call_the_same(plan: Plan) -> None:
    calls = {
        rank: [step for step in iteration(plan, rank) if isinstance(step, Collective)] for rank in range(plan.ranks)
    }
    for name, members in plan.communicators.items():
        kind = name.rstrip("0123456789")
        first, *others = ([step for step in calls[rank] if step.kind == kind] for rank in members)
        assert all(other == first for other in others)


@given(PLANS)
def test_every_rank_computes_alike(plan: Plan) -> None:
    """A healthy job has no slow rank by its plan."""
    computed = {
        tuple(sorted(Counter(step for step in iteration(plan, rank) if isinstance(step, Compute)).items(), key=repr))
        for rank in range(plan.ranks)
    }
    assert len(computed) == 1


def test_all_is_waited_for_before_gradients() -> None:
    plan = SHAPES["late-pipeline2-data4"].plan
    for rank in range(plan.ranks):
        steps = list(iteration(plan, rank))
        awaited = steps.index(Await())
        gradients = [at for at, step in enumerate(steps) if isinstance(step, Collective) and step.kind == "data"]
        assert all(at > awaited for at in gradients)
        assert not any(isinstance(step, Exchange) for step in steps[awaited:])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SHAPES)
def test_plans_are_told_whole(name: str, fault: str) -> None:
    plan = planned(SHAPES[name], fault, 3)
    assert Plan.from_json(plan.to_json()) == plan
    assert planned(SHAPES[name], fault, 3) == plan
    if fault == "healthy":
        assert plan.fault is None
    else:
        assert plan.fault is not None
        assert 0 <= plan.fault.rank < plan.ranks
        when = plan.fault.iterations
        if fault == "gpu_spikes":
            assert len(when) == 8
            assert when[0] >= 20
            assert when[-1] < 60
            assert all(later - one > 1 for one, later in pairwise(when))
        else:
            others = {"gpu_fluctuation": range(12, 60, 6), "gpu_passing": range(22, 37), "gpu_growing": range(20, 60)}
            assert when == tuple(others.get(fault, range(30, 60)))
        assert (plan.fault.slower > 1) != (plan.fault.nic_mbps is not None)


def test_a_fault_slows_its_rank_in_its_phases_and_iterations() -> None:
    fault = Fault(3, (5, 6, 7, 8), slower=3.0, phases=("forward",))
    assert [fault.slowdown(3, "forward", iteration) for iteration in (4, 5, 8, 9)] == [1.0, 3.0, 3.0, 1.0]
    assert fault.slowdown(3, "backward", 5) == fault.slowdown(2, "forward", 5) == 1.0
    growing = Fault(3, (5, 6, 7, 8), slower=3.0, grows=True)
    assert [growing.slowdown(3, "any", iteration) for iteration in (4, 5, 6, 7, 8)] == [1.0, 1.5, 2.0, 2.5, 3.0]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_slows_what_its_rank_does(fault: str) -> None:
    """The phases that faults are of are those of schedules."""
    plan = planned(SHAPES["tensor2-pipeline2-data2"], fault, 3)
    if plan.fault is None:
        return
    steps = list(iteration(plan, plan.fault.rank))
    phases = {step.phase for step in steps if isinstance(step, Compute)}
    slowed = {phase for phase in phases if plan.fault.slowdown(plan.fault.rank, phase, plan.fault.iterations[-1]) > 1}
    assert bool(slowed) == (plan.fault.device == "gpu")


def test_seeds_draw_which_rank_is_slow() -> None:
    faults = [planned(SHAPES["data8"], "gpu", seed).fault for seed in range(20)]
    assert len({fault.rank for fault in faults if fault}) > 3
