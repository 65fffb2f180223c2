"""Options that hold several values."""

from dataclasses import fields

import pytest

from diagnosis.job import Layout
from offbeat import options
from producers.simulation import HARD, FabricShape, Fault, Kind, Part, Scenario
from schemas.errors import SettingsError


def test_a_layout_is_given() -> None:
    assert options.layout("tp=2, pp=4,dp=1") == Layout(tp=2, pp=4, dp=1, source="given")
    assert options.layout("tp=1,pp=2,dp=4,cp=2,ep=4") == Layout(tp=1, pp=2, dp=4, cp=2, ep=4, source="given")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tp=2,pp=4", "--layout tp=2,pp=4: dp is missing; give tp, pp and dp"),
        ("tp=two,pp=4,dp=1", "--layout: tp is 'two'; give a whole number"),
        ("tp=0,pp=4,dp=1", "--layout tp=0,pp=4,dp=1: tp is 0; give 1 or more"),
        ("tp=2,tp=2,pp=1,dp=1", "--layout tp=2,tp=2,pp=1,dp=1: tp is given twice"),
        ("tp,pp=4,dp=1", "--layout tp,pp=4,dp=1: 'tp' is not of the form name=value; known are tp, cp, ep, dp, pp"),
        ("", "--layout : tp is missing; give tp, pp and dp"),
        ("xp=2", "--layout xp=2: there is no 'xp'; known are tp, cp, ep, dp, pp"),
    ],
)
def test_a_bad_layout_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        options.layout(text)
    assert str(refused.value) == said


def test_a_scenario_with_its_faults() -> None:
    scenario = options.scenario(
        "seed=7,tp=2,pp=2,dp=2,iterations=40,compute_ms=120.5,noise=hard,omit=ends+labels",
        [
            "kind=gpu_slow,rank=3,iterations=20-22,slowdown=1.3,part=forward",
            "kind=nic_slow,rank=5,iterations=12+25+30-31,factor=2",
        ],
    )
    assert (scenario.seed, scenario.world, scenario.iterations, scenario.compute_ms) == (7, 8, 40, 120.5)
    assert scenario.noise == HARD
    assert (scenario.omissions.ends, scenario.omissions.labels, scenario.omissions.layout) == (True, True, False)
    assert scenario.faults == (
        Fault(Kind.GPU_SLOW, 3, (20, 21, 22), slowdown=1.3, part=Part.FORWARD),
        Fault(Kind.NIC_SLOW, 5, (12, 25, 30, 31), factor=2.0),
    )


def test_a_scenario_of_six_dimensions_that_has_run_for_a_month() -> None:
    scenario = options.scenario(
        "tp=2,pp=2,dp=4,cp=2,ep=8,fold_experts=yes,sequence_parallel=yes,distributed_optimizer=no,age_days=30", []
    )
    assert (scenario.world, scenario.cp, scenario.ep, scenario.age_days) == (32, 2, 8, 30)
    assert (scenario.fold_experts, scenario.sequence_parallel, scenario.distributed_optimizer) == (True, True, False)


def test_all_of_a_scenario_can_be_given() -> None:
    with pytest.raises(SettingsError) as refused:
        options.scenario("nothing=1", [])
    known = set(str(refused.value).partition("known are ")[2].split(", "))
    by_parts = {"faults", "fabric", "omissions"}
    assert {field.name for field in fields(Scenario)} - by_parts <= known


def test_a_scenario_with_a_fabric_and_faults_in_it() -> None:
    scenario = options.scenario(
        "tp=2,pp=2,dp=4,gpus_per_host=4,hosts_per_pod=2,spines=3",
        [
            "kind=link_slow,rank=5,iterations=20-21,slowdown=1.3",
            "kind=tor_slow,rank=9,iterations=22,factor=2",
            "kind=spine_slow,spine=2,iterations=23,factor=3",
        ],
    )
    assert scenario.fabric == FabricShape(hosts_per_pod=2, spines=3)
    assert scenario.faults == (
        Fault(Kind.LINK_SLOW, 5, (20, 21), slowdown=1.3),
        Fault(Kind.TOR_SLOW, 9, (22,), factor=2.0),
        Fault(Kind.SPINE_SLOW, 2, (23,), factor=3.0),
    )


@pytest.mark.parametrize(
    ("text", "fabric"),
    [
        ("", None),
        ("spines=2", FabricShape(spines=2)),
        ("hosts_per_pod=4", FabricShape(hosts_per_pod=4)),
    ],
)
def test_one_size_is_enough_for_a_fabric(text: str, fabric: FabricShape | None) -> None:
    assert options.scenario(text, []).fabric == fabric


def test_a_scenario_has_a_seed_if_none_is_given() -> None:
    assert options.scenario("", []).seed == 0


@pytest.mark.parametrize(
    ("text", "fault", "said"),
    [
        ("tp=x", None, "--scenario: tp is 'x'; give a whole number"),
        ("noise=loud", None, "--scenario: there is no noise 'loud'; give one of default, hard"),
        ("fold_experts=1", None, "--scenario: there is no fold_experts '1'; give one of yes, no"),
        ("omit=all", None, "--scenario: there is no omission 'all'; give one of labels, ends, layout, routes"),
        ("compute_ms=x", None, "--scenario: compute_ms is 'x'; give a number"),
        ("tp=2", "rank=1,iterations=3,slowdown=2", "--fault rank=1,iterations=3,slowdown=2: kind is missing"),
        ("tp=2", "kind=cpu,rank=1,iterations=3", f"--fault: there is no kind 'cpu'; give one of {', '.join(Kind)}"),
        ("tp=2", "kind=gpu_slow,rank=1,iterations=3", "fault on rank 1: give either a slowdown or a factor"),
        (
            "tp=2",
            "kind=gpu_slow,rank=1,iterations=0-9999999999,factor=2",
            "--fault: iteration 9999999999 is beyond 999999",
        ),
        ("tp=" + "9" * 5000, "", "--scenario: tp is '999999999999999999'; give a whole number"),
        ("spines=0", None, "scenario: spines is 0; give 1 or more"),
        ("hosts_per_pod=0", None, "scenario: hosts_per_pod is 0; give 1 or more"),
        (
            "spines=2",
            "kind=spine_slow,rank=1,iterations=3,factor=2",
            "--fault kind=spine_slow,rank=1,iterations=3,factor=2: spine is missing",
        ),
        (
            "spines=2",
            "kind=tor_slow,rank=1,spine=1,iterations=3,factor=2",
            "--fault kind=tor_slow,rank=1,spine=1,iterations=3,factor=2: tor_slow is on a rank; leave spine out",
        ),
        (
            "spines=2",
            "kind=spine_slow,spine=2,iterations=3,factor=2",
            "scenario: the fabric has no spine 2; it has 2",
        ),
        (
            "",
            "kind=link_slow,rank=1,iterations=3,factor=2",
            "scenario: link_slow on rank 1 needs a fabric; give hosts_per_pod or spines",
        ),
        ("spines=2", "kind=spine_slow,spine=1,iterations=3", "fault on spine 1: give either a slowdown or a factor"),
    ],
)
def test_a_bad_scenario_is_refused(text: str, fault: str | None, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        options.scenario(text, [] if fault is None else [fault])
    assert str(refused.value) == said
