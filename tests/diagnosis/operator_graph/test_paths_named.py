"""A search names every device on the paths of a slow channel, where the job's description has a fabric."""

from dataclasses import replace
from functools import cache

import pytest

from diagnosis.job import Job
from diagnosis.operator_graph.culprits import Culprit
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from producers.simulation.scenario import FabricShape
from tests.diagnosis.operator_graph.small_jobs import FAULTY, located


@cache
def run(kind: Kind, rank: int) -> SimulatedRun:
    """Eight ranks, two a host, two hosts a pod: ToRs of two NICs each below a spine."""
    fault = Fault(kind, rank, FAULTY, slowdown=1.4)
    small = Scenario(3, tp=2, pp=2, dp=2, microbatches=4, layers=4, iterations=18, gpus_per_host=2, compute_ms=200.0)
    return simulate(replace(small, faults=(fault,), fabric=FabricShape(hosts_per_pod=2, spines=1)))


def network_culprit(of: SimulatedRun) -> Culprit:
    location, _ = located(of)
    [culprit] = [culprit for culprit in location.culprits if culprit.cause == "communication_slow"]
    return culprit


@pytest.mark.parametrize("kind", [Kind.NIC_SLOW, Kind.LINK_SLOW])
def test_the_nic_its_cable_and_the_switch_above(kind: Kind) -> None:
    culprit = network_culprit(run(kind, 6))
    assert culprit.ranks == (6,)
    below = {device.device: device.downside_nics for device in culprit.devices}
    assert below == {"nic:h3/mlx5_0": 1, "link:h3/mlx5_0": 1, "tor:pod1/rail0": 2}  # its rail stays in the pod
    assert set(run(kind, 6).truth.faults[0].inseparable) <= {d for d, nics in below.items() if nics == 1}


def test_nothing_but_nvlinks_within_a_host() -> None:
    culprit = network_culprit(run(Kind.NVLINK_SLOW, 5))
    assert {device.device for device in culprit.devices} == {"nvlink:h2"}


def test_without_a_fabric_the_nics_alone() -> None:
    described = run(Kind.NIC_SLOW, 6)
    bare = Job.from_row({**described.job.to_row(), "links": None})
    location, _ = located(replace(described, job=bare))
    assert [d.device for culprit in location.culprits for d in culprit.devices] == ["nic:h3/mlx5_0"]
