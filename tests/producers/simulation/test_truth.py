"""The truth is the same run without the fault, and nothing else depends on it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.simulation import HARD, FabricShape, Fault, Kind, Part, Pattern, Scenario, simulate
from schemas.errors import SettingsError
from tests.producers.simulation.small import silent, small

SPIKES = Fault(Kind.GPU_SLOW, 3, (5, 8, 10), slowdown=1.5)
LASTING = Fault(Kind.NIC_SLOW, 4, tuple(range(6, 12)), slowdown=1.3)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), hard=st.booleans())
def test_without_faults_a_run_is_its_counterfactual(seed: int, hard: bool) -> None:
    scenario = small(seed, iterations=6, **({"noise": HARD} if hard else {}))
    healthy = simulate(scenario)
    assert healthy.truth.durations_ns == healthy.truth.healthy_ns
    assert not healthy.truth.abnormal.any()
    faulty = simulate(replace(scenario, faults=(Fault(Kind.GPU_SLOW, 1, (4,), factor=3.0),)))
    assert faulty.truth.healthy_ns == healthy.truth.durations_ns
    before = [i < 4 for i in np.asarray(healthy.table.column("iteration"))]
    same = faulty.table.drop(["call_order"]).filter(before)
    assert same.equals(healthy.table.drop(["call_order"]).filter(before))


def test_a_run_is_a_function_of_its_scenario() -> None:
    scenario = small(faults=(SPIKES, LASTING))
    first, second = simulate(scenario), simulate(scenario)
    assert first.table.equals(second.table)
    assert first.job == second.job
    assert first.truth.to_json() == second.truth.to_json()
    assert not first.table.equals(simulate(replace(scenario, seed=2)).table)


def test_positives_are_iterations_that_the_fault_lengthened() -> None:
    truth = simulate(small(faults=(SPIKES,))).truth
    assert truth.positives == (5, 8, 10)
    assert truth.absorbed == ()
    assert truth.faults[0].positives == truth.positives
    assert truth.slowdowns[:5] == (1.0,) * 5


def test_iterations_between_the_bounds_are_not_scored() -> None:
    truth = simulate(small(faults=(Fault(Kind.GPU_SLOW, 4, (7,), slowdown=1.05),))).truth
    assert (truth.positives, truth.absorbed) == ((), ())
    assert 7 in truth.unscored


def test_absorbed_faults_are_absorbed() -> None:
    """A slow GPU of the light first stage, which waits for the last one in any case."""
    fault = Fault(Kind.GPU_SLOW, 0, tuple(range(4, 12)), factor=1.06)
    truth = simulate(silent(microbatches=8, faults=(fault,))).truth
    assert truth.absorbed == fault.iterations
    assert truth.positives == ()
    on_the_last_stage = replace(fault, rank=4)
    assert simulate(silent(microbatches=8, faults=(on_the_last_stage,))).truth.absorbed == ()


def test_each_of_several_faults_has_its_own_truth() -> None:
    truth = simulate(small(faults=(SPIKES, LASTING))).truth
    spikes, lasting = truth.faults
    assert (spikes.device, lasting.device) == ("gpu:h1/1", "nic:h2/mlx5_0")
    assert (spikes.pattern, lasting.pattern) == (Pattern.SPIKES, Pattern.PERSISTENT)
    assert np.median(spikes.slowdowns) == pytest.approx(1.5, rel=0.03)
    assert np.median(lasting.slowdowns) == pytest.approx(1.3, rel=0.03)
    assert set(truth.positives) == {5, *range(6, 12)}
    assert spikes.slowdowns == simulate(small(faults=(SPIKES,))).truth.faults[0].slowdowns


def test_abnormal_operators_are_those_that_the_fault_lengthened() -> None:
    """The slow rank enters late and waits for nobody: its own operators last no longer, its peer's do."""
    run = simulate(silent(pp=1, faults=(Fault(Kind.GPU_SLOW, 1, (5,), slowdown=1.5),)))
    rank, iteration = (np.asarray(run.table.column(name)) for name in ("rank", "iteration"))
    tensor = ~np.isin(np.asarray(run.table.column("phase").to_pylist()), ["gradient", "other"])
    assert set(iteration[run.truth.abnormal]) == {5}
    assert set(rank[run.truth.abnormal & tensor]) == set()  # one of many operators takes less than a tenth
    few = simulate(silent(pp=1, microbatches=1, layers=1, faults=(Fault(Kind.GPU_SLOW, 1, (5,), slowdown=1.5),)))
    rank = np.asarray(few.table.column("rank"))
    tensor = np.asarray([op == "all_reduce" for op in few.table.column("op").to_pylist()]) & few.truth.abnormal
    assert set(rank[tensor]) == {0}


def test_nics_with_the_same_traffic_cannot_be_told_apart() -> None:
    only_pair = simulate(silent(pp=2, dp=1, faults=(Fault(Kind.NIC_SLOW, 0, (5,), factor=5.0),)))
    assert only_pair.truth.faults[0].inseparable == ("nic:h0/mlx5_0", "nic:h1/mlx5_0")
    ring_and_pairs = simulate(silent(faults=(Fault(Kind.NIC_SLOW, 0, (5,), factor=5.0),)))
    assert ring_and_pairs.truth.faults[0].inseparable == ("nic:h0/mlx5_0",)
    gpu = simulate(silent(pp=2, dp=1, faults=(Fault(Kind.GPU_SLOW, 0, (5,), factor=5.0),)))
    assert gpu.truth.faults[0].inseparable == ("gpu:h0/0",)


def test_the_truth_is_json() -> None:
    truth = simulate(small(faults=(SPIKES,))).truth
    told = json.loads(json.dumps(truth.to_json()))
    assert told["faults"][0]["device"] == "gpu:h1/1"
    assert told["iterations"]["positives"] == [5, 8, 10]
    assert told["scenario"]["seed"] == 1


def test_neither_logs_nor_job_know_of_faults() -> None:
    """A fault that changes nothing leaves no trace: which logs exist, and what they say, is all the same."""
    healthy = simulate(small())
    harmless = simulate(small(faults=(Fault(Kind.GPU_SLOW, 3, (5, 6), factor=1.0),)))
    assert harmless.table.equals(healthy.table)
    assert harmless.job == healthy.job


def test_nothing_of_the_diagnosis_is_loaded_but_the_job() -> None:
    script = "import sys, producers.simulation; print(*sorted(m for m in sys.modules if m.startswith('diagnosis')))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= {"diagnosis", "diagnosis.job", "diagnosis.topology"}  # how a job is described


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tp": 1, "pp": 1, "dp": 1}, "one rank alone"),
        ({"layers": 2, "pp": 4}, "do not fill"),
        ({"ep": 3}, "ep is 3"),
        ({"dp": 0}, "dp is 0"),
        ({"compute_ms": 0.0}, "compute_ms"),
        ({"seed": -1}, "seed"),
        ({"age_days": -1}, "age_days"),
        ({"ep": 8, "fold_experts": True, "tp": 4, "dp": 3}, "multiple of tp cp"),
        ({"faults": (Fault(Kind.TOR_SLOW, 0, (1,), factor=2.0),)}, "needs a fabric"),
        (
            {"fabric": FabricShape(), "faults": (Fault(Kind.SPINE_SLOW, 8, (1,), factor=2.0),)},
            "the fabric has no spine 8; it has 8",
        ),
        ({"faults": (Fault(Kind.GPU_SLOW, 64, (1,), factor=2.0),)}, "no rank 64"),
        ({"faults": (Fault(Kind.GPU_SLOW, 0, (60,), factor=2.0),)}, "outside 0-59"),
    ],
)
def test_scenarios_that_cannot_be(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Scenario(**{"seed": 1, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "either"),
        ({"slowdown": 1.2, "factor": 2.0}, "either"),
        ({"slowdown": 0.9}, "no slowness"),
        ({"slowdown": 1.2, "iterations": ()}, "ascending"),
        ({"slowdown": 1.2, "iterations": (3, 2)}, "ascending"),
        ({"slowdown": 1.2, "kind": Kind.NIC_SLOW, "part": Part.FORWARD}, "only a GPU"),
    ],
)
def test_faults_that_cannot_be(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Fault(**{"kind": Kind.GPU_SLOW, "rank": 0, "iterations": (1,), **wrong})  # type: ignore[arg-type]
