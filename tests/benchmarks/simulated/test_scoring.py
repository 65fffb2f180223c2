"""What was said of a run, beside the truth: every way to be right, half right and wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.simulated import scoring
from benchmarks.simulated.scoring import FaultScore, IterationScore
from producers.simulation import Fault, Kind
from producers.simulation.cluster import Cluster
from producers.simulation.description import described
from producers.simulation.fabric import Fabric
from producers.simulation.scenario import FabricShape
from tests.benchmarks.simulated.runs import FABRIC, JOB, SCENARIO, fault, incident, said, truth

GPU = FABRIC.gpu_name(5)
NIC = fault(Kind.NIC_SLOW, 5).device
SET = fault(Kind.NIC_SLOW, 5).inseparable
SET_RANKS = [rank for rank in range(SCENARIO.world) if fault(Kind.NIC_SLOW, rank).device in SET]


def scored(*incidents: dict[str, Any], **of_fault: Any) -> tuple[FaultScore, list[str]]:
    """The score of a run's only fault, and the verdicts on the incidents."""
    one = truth(fault(**of_fault))
    detection = said(*incidents)
    [score] = scoring.score_faults(one, JOB, detection, 0, {})
    return score, [row.verdict for row in scoring.score_incidents(one, JOB, detection, 0)]


@pytest.mark.parametrize(
    ("incidents", "outcome", "cause_right", "verdicts"),
    [
        ([incident([5], [GPU])], "named", True, ["right"]),
        ([incident([5], [NIC])], "named", False, ["wrong_cause"]),
        ([incident([5], [GPU, NIC])], "named", False, ["wrong_cause"]),
        ([incident([4, 5], [FABRIC.gpu_name(4), GPU], among=True)], "narrowed", False, ["narrowed"]),
        ([incident([4, 5], [FABRIC.gpu_name(4), GPU])], "missed", False, ["false"]),
        ([incident([4], [FABRIC.gpu_name(4)])], "missed", False, ["false"]),
        ([incident([5], [GPU], first=0, last=19)], "missed", False, ["false"]),
        ([incident([5], [GPU], first=31, last=35)], "missed", False, ["false"]),
        ([], "missed", False, []),
        ([incident([5], [NIC], first=21), incident([5], [GPU])], "named", True, ["wrong_cause", "right"]),
    ],
)
def test_a_slow_gpu(incidents: list[dict[str, Any]], outcome: str, cause_right: bool, verdicts: list[str]) -> None:
    score, given = scored(*incidents)
    assert (score.outcome, score.cause_right, given) == (outcome, cause_right, verdicts)
    assert score.weight == "required"


def test_devices_that_carry_the_same_are_named_together_or_not_at_all() -> None:
    assert len(SET_RANKS) == 2
    whole = incident(SET_RANKS, SET, among=True)
    part = incident([5], [NIC])
    more = incident([*SET_RANKS, 0], [*SET, fault(Kind.NIC_SLOW, 0).device], among=True)
    for row, outcome, verdict in ((whole, "named", "right"), (part, "part", "part"), (more, "narrowed", "narrowed")):
        score, verdicts = scored(row, kind=Kind.NIC_SLOW)
        assert (score.outcome, score.cause_right, verdicts) == (outcome, outcome == "named", [verdict])


def test_of_spines_those_that_the_traffic_may_have_taken_are_narrowed_to() -> None:
    scenario = replace(SCENARIO, gpus_per_host=2, fabric=FabricShape(hosts_per_pod=4, spines=3))
    fabric = Fabric(Cluster(scenario))
    job = described(fabric, Cluster(scenario).job())
    slow = replace(fault(), kind=Kind.SPINE_SLOW.value, device="spine:1", inseparable=("spine:1",))
    one = replace(truth(slow), scenario=scenario)
    for devices, verdict in ((["spine:1"], "right"), (["spine:0", "spine:1"], "narrowed"), (["spine:0"], "false")):
        detection = said(incident([0, 8], devices))
        assert [row.verdict for row in scoring.score_incidents(one, job, detection, 0)] == [verdict]


@pytest.mark.parametrize(
    ("kind", "device", "verdict"),
    [
        (Kind.CPU_SLOW, "cpu:h0", "part"),
        (Kind.CPU_SLOW, GPU, "false"),
        (Kind.NVLINK_SLOW, GPU, "false"),
        (Kind.TOR_SLOW, NIC, "part"),
        (Kind.TOR_SLOW, GPU, "false"),
        (Kind.SPINE_SLOW, NIC, "false"),
    ],
)
def test_who_is_sent_to_another_device_of_those_that_a_fault_slows_is_sent_astray(
    kind: Kind, device: str, verdict: str
) -> None:
    scenario = replace(SCENARIO, fabric=FabricShape(hosts_per_pod=4, spines=3))
    fabric = Fabric(Cluster(scenario))
    job = described(fabric, Cluster(scenario).job())
    slow = Fault(kind, 5, (20,), factor=1.0)
    name = fabric.device(replace(slow, rank=1) if kind is Kind.SPINE_SLOW else slow)
    one = truth(replace(fault(), kind=kind.value, device=name, inseparable=(name,)))
    detection = said(incident([5], [device]))
    told = scoring.score_incidents(replace(one, scenario=scenario), job, detection, 0)
    assert [row.verdict for row in told] == [verdict]


@pytest.mark.parametrize(("by", "weight", "verdict"), [(1.004, "absorbed", "false"), (1.05, "between", "between")])
def test_what_costs_little_need_not_be_named(by: float, weight: str, verdict: str) -> None:
    score, verdicts = scored(incident([5], [GPU]), by=by)
    assert (score.weight, verdicts) == (weight, [verdict])


def test_a_fault_that_never_acts_alone_is_shadowed() -> None:
    two = truth(fault(rank=5, first=20, last=25), fault(rank=9, first=18, last=30))
    inner, outer = scoring.score_faults(two, JOB, said(), 0, {})
    assert (inner.shadowed, outer.shadowed) == (True, False)


@pytest.mark.parametrize("starting", [0, 3])
def test_iterations_are_matched_wherever_counting_begins(starting: int) -> None:
    one = truth(fault(first=20, last=29))
    irregular = [19 - starting, *(i - starting for i in range(20, 28))]
    detection = said(irregular=irregular, starting=starting)
    shift = scoring.shift_of(one, JOB, detection)
    assert shift == starting
    assert scoring.score_iterations(one, detection, shift) == IterationScore(hit=8, false=1, missed=2, regular=29)


def test_iterations_between_positive_and_absorbed_count_nowhere() -> None:
    score = scoring.score_iterations(truth(fault(by=1.05)), said(irregular=[20, 21]), 0)
    assert score == IterationScore(hit=0, false=0, missed=0, regular=30)


def test_a_place_in_a_ranking_is_one_set_and_the_last_of_equals() -> None:
    sets = scoring.device_sets(SCENARIO, {NIC, GPU})
    own = frozenset(SET)
    twin = next(iter(own - {NIC}))
    assert sets[NIC] == own
    assert scoring.place(own, {NIC: 2.0, twin: 2.0, GPU: 1.0}, sets) == 1
    assert scoring.place(own, {NIC: 2.0, GPU: 2.0}, sets) == 2
    assert scoring.place(own, {NIC: 1.0, GPU: 2.0, "nvlink:h0": 3.0}, sets) == 3
    assert scoring.place(own, {GPU: 2.0, NIC: 0.0}, sets) is None
