"""From NIC telemetry to incidents in one process: who is named, of each kind of fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis.collective.course import CourseRules
from offbeat import wiring
from offbeat.settings import Settings
from producers.simulation.nic import Fault, Injection, NicScenario, Workload, simulate_nics
from schemas import catalogue
from schemas.message import decode
from streams.compare import CompareSettings
from tests.streams.examples import Listener

SETTINGS = Settings(compare=CompareSettings(course=CourseRules(hang_ns=1_500_000_000)))
NEIGHBOURS = NicScenario(5, Workload.NEIGHBOURS, tp=1, dp=4, pp=1, iterations=12, forward_s=0.005, shrink=32)
PIPELINES = NicScenario(
    5, Workload.DENSE, tp=2, dp=2, pp=2, iterations=9, microbatches=3, gradient_bytes=500_000_000, poll_s=0.5
)


def incidents(scenario: NicScenario) -> list[dict[str, Any]]:
    """The newest revision of each incident."""
    run = simulate_nics(scenario)
    heard = Listener((catalogue.INCIDENTS, catalogue.DEAD_LETTERS))
    wiring.run_traffic_in_process(run.job, run.messages(), SETTINGS, [heard])
    assert not [m for m in heard.heard if m.topic == catalogue.DEAD_LETTERS.name]
    rows = [row for m in heard.heard for row in decode(m, catalogue.INCIDENTS).to_pylist()]
    return list({row["id"]: row for row in rows}.values())


def test_a_healthy_job_has_no_incident() -> None:
    assert incidents(NEIGHBOURS) == []


def test_a_slow_nic_is_named() -> None:
    fault = Fault(Injection.PCIE_DOWNGRADE, 2, at_s=0.03, severity=0.4)
    [found] = incidents(replace(NEIGHBOURS, iterations=16, faults=(fault,)))
    assert (found["cause"], found["level"], found["ranks"]) == ("communication_slow", "device", [2])
    assert [device["device"] for device in found["devices"]] == ["nic:h2/mlx5_0"]
    assert found["state"] == "resolved", "the job has ended"
    assert found["methods"] == ["traffic"]


def test_a_nic_that_stops_is_named() -> None:
    fault = Fault(Injection.NIC_DOWN, 2, at_s=0.04)
    [found] = incidents(replace(NEIGHBOURS, hang_s=2.5, faults=(fault,)))
    assert found["cause"].startswith("hang_")
    assert found["ranks"] == [2]
    assert found["state"] == "open"
    assert "the job does not go on" in found["explanation"]


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize("workload", [Workload.NEIGHBOURS, Workload.ONE_TO_ALL])
def test_a_gpu_that_stops_after_some_iterations_is_named_alone_in_the_one_that_it_stopped_in(
    workload: Workload, seed: int
) -> None:
    fault = Fault(Injection.CUDA_ERROR, 2, at_s=0.05)
    stopped = replace(NEIGHBOURS, seed=seed, workload=workload, hang_s=2.5, faults=(fault,))
    ended = int(np.count_nonzero(simulate_nics(stopped).truth.iteration_ends_ns[:, 2] > 0))
    [found] = incidents(stopped)
    assert (found["cause"], found["ranks"], found["candidates"]) == ("hang_not_entered", [2], [])
    # what it was sent may have been through, and clocks of hosts differ by half an iteration
    assert 4 <= ended <= found["first_iteration"] <= ended + 2


def test_the_machine_of_a_slow_gpu_is_named() -> None:
    fault = Fault(Injection.GPU_THROTTLING, 3, at_s=0.15, severity=200.0)
    [found] = incidents(replace(PIPELINES, faults=(fault,)))
    assert (found["cause"], found["level"], found["ranks"]) == ("compute_slow", "machine", [2, 3])


def test_the_machine_of_a_gpu_that_stops_is_named() -> None:
    fault = Fault(Injection.GPU_ERROR, 3, at_s=0.12)
    [found] = incidents(replace(PIPELINES, iterations=6, hang_s=2.5, faults=(fault,)))
    assert found["cause"].startswith("hang_")
    assert set(found["ranks"]) <= {2, 3}
