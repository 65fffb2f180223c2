"""The rail-optimised fabric: paths, what a slow device slows, what cannot be told apart, and how it is described."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis.job import Job
from producers.job_source import job_message
from producers.simulation import FabricShape, Fault, Kind, Scenario, simulate
from producers.simulation.cluster import Cluster
from producers.simulation.description import described
from producers.simulation.fabric import Fabric
from producers.simulation.network import Network, SlowDevice
from producers.simulation.noise import SILENT, Draws, Floats
from producers.simulation.relabel import relabelled
from producers.simulation.schedule import Scope
from schemas.catalogue import JOBS
from schemas.message import decode
from tests.producers.simulation.small import silent

SCENARIO = Scenario(seed=1, tp=4, pp=2, dp=16, gpus_per_host=4, fabric=FabricShape(hosts_per_pod=4, spines=3))
"""32 hosts of 4 GPUs in 8 pods; a tensor group is a host."""

FABRIC = Fabric(Cluster(SCENARIO))


def ratios(kind: Kind, rank: int, scope: Scope | None = None) -> Floats:
    """How much longer a byte takes for each rank under a fault: within a group, or to the other stage."""
    network = Network(Cluster(SCENARIO), Draws(1))
    device = SlowDevice(Fault(kind, rank, (3,), factor=5.0), 5.0)
    rates = network.rates(3, [(device,), ()])
    seconds = rates.of_pair(0, 1) if scope is None else rates.of_group(scope)
    return np.asarray((seconds[0, 0] / seconds[0, 1]).ravel())


def test_ranks_on_a_rail_of_a_pod_share_a_tor() -> None:
    assert FABRIC.tors == 8 * 4
    assert FABRIC.tor[0] == FABRIC.tor[4] == FABRIC.tor[12]
    assert FABRIC.tor[0] != FABRIC.tor[1]
    assert FABRIC.tor[12] != FABRIC.tor[16]
    assert FABRIC.spine(np.array([0]), np.array([12]))[0] == -1
    across = FABRIC.spine(np.arange(64), np.arange(64) + 64)
    assert set(across) == {0, 1, 2}
    assert (across == FABRIC.spine(np.arange(64) + 64, np.arange(64))).all()


def test_a_slow_device_slows_what_crosses_it() -> None:
    groups = FABRIC.cluster.groups(Scope.DATA)
    group_of = FABRIC.cluster.group_of_rank[Scope.DATA]
    for kind in (Kind.NIC_SLOW, Kind.LINK_SLOW):
        ring = ratios(kind, 5, Scope.DATA)
        assert set(np.flatnonzero(ring > 1)) == set(groups[group_of[5]])
        assert set(np.flatnonzero(ratios(kind, 5) > 1)) == {5}  # of the first stage's ranks
    under = set(np.flatnonzero(FABRIC.tor == FABRIC.tor[5]))
    assert set(np.flatnonzero(ratios(Kind.TOR_SLOW, 5) > 1)) == {rank for rank in under if rank < 64}
    assert (ratios(Kind.NVLINK_SLOW, 5, Scope.TENSOR) > 1).sum() == 4
    assert (ratios(Kind.NVLINK_SLOW, 5, Scope.DATA) == 1).all()
    spine = FABRIC.spine(np.arange(64), np.arange(64) + 64)
    assert (np.flatnonzero(ratios(Kind.SPINE_SLOW, 2) > 1) == np.flatnonzero(spine == 2)).all()
    assert (ratios(Kind.GPU_SLOW, 5, Scope.DATA) == 1).all()


def test_a_slow_host_loads_and_launches_slowly() -> None:
    healthy, slow = (
        simulate(silent(faults=faults, iterations=3)).truth.durations_ns
        for faults in ((), (Fault(Kind.CPU_SLOW, 2, (2,), factor=8.0),))
    )
    assert healthy[:2] == slow[:2]
    assert slow[2] > healthy[2]


def test_a_nic_and_its_only_uplink_are_one() -> None:
    for kind in (Kind.NIC_SLOW, Kind.LINK_SLOW):
        assert FABRIC.inseparable(Fault(kind, 5, (0,), factor=2.0)) == ("nic:h1/mlx5_1", "link:h1/mlx5_1")
    alone = {Kind.TOR_SLOW: "tor:pod0/rail1", Kind.NVLINK_SLOW: "nvlink:h1", Kind.CPU_SLOW: "cpu:h1"}
    for kind, name in alone.items():
        assert FABRIC.inseparable(Fault(kind, 5, (0,), factor=2.0)) == (name,)
    assert FABRIC.inseparable(Fault(Kind.SPINE_SLOW, 2, (0,), factor=2.0)) == ("spine:2",)
    assert FABRIC.inseparable(Fault(Kind.GPU_SLOW, 5, (0,), factor=2.0)) == ("gpu:h1/1",)


def test_bursts_come_to_healthy_switches() -> None:
    busy = replace(SCENARIO, noise=replace(SCENARIO.noise, burst_probability=1.0))
    network = Network(Cluster(busy), Draws(1))
    bursts = [network.rates(i, [()]) for i in range(40)]
    assert all(rates.state.any() for rates in bursts)
    on_spines = [(rates.spines > 1).any() for rates in bursts]
    on_tors = [(rates.port > 1).any() for rates in bursts]
    assert [a != b for a, b in zip(on_spines, on_tors, strict=True)] == [True] * 40
    assert 5 < sum(on_spines) < 22


def job_of(scenario: Scenario = SCENARIO) -> Job:
    fabric = Fabric(Cluster(scenario))
    return described(fabric, fabric.cluster.job())


def test_the_job_describes_its_fabric() -> None:
    row: dict[str, Any] = decode(job_message(job_of()), JOBS).to_pylist()[0]
    kinds = [device["kind"] for device in row["devices"]]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "gpu": 128, "nic": 128, "link": 128, "cpu": 32, "nvlink": 32, "tor": 32, "spine": 3,
    }  # fmt: skip
    assert len(row["links"]) == 128
    assert {rule["tor"]: rule["rail"] for rule in row["paths"]}["tor:pod2/rail3"] == 3
    topology = Job.from_row(row).topology
    assert topology is not None
    crossed = {device.device for device in topology.crossed(["nic:h0/mlx5_0"], ["nic:h16/mlx5_0"])}
    own = {"nic:h0/mlx5_0", "link:h0/mlx5_0", "tor:pod0/rail0"}
    assert crossed - own < {"spine:0", "spine:1", "spine:2"}
    untold = Job.from_row({**row, "routes": None}).topology
    assert untold is not None
    crossed = {device.device for device in untold.crossed(["nic:h0/mlx5_0"], ["nic:h16/mlx5_0"])}
    assert crossed == {*own, "spine:0", "spine:1", "spine:2"}
    assert job_of(silent()).row == {}


def test_routes_tell_over_which_spine_traffic_goes_but_for_some() -> None:
    """What is listed is what sends: neighbours of rings and pipelines; one in fifty is not known, one in a hundred has
    moved."""
    scenario = Scenario(seed=3, tp=2, pp=4, dp=256, layers=4, gpus_per_host=2, fabric=FabricShape(32, spines=8))
    fabric = Fabric(Cluster(scenario))
    routes = job_of(scenario).row["routes"]
    rank = {fabric.name("nic", r): r for r in range(scenario.world)}
    told = [(rank[route["source"]], rank[route["destination"]], route["switches"]) for route in routes]
    ends = np.array([pair[:2] for pair in told])
    truly = fabric.spine(ends[:, 0], ends[:, 1])
    seen = np.array([-1 if len(switches) == 1 else int(switches[1].partition(":")[2]) for _, _, switches in told])
    assert len(np.unique(ends, axis=0)) == len(ends)
    assert np.array_equal(seen == -1, truly == -1)
    across = truly >= 0
    assert 0.002 < np.mean(seen[across] != truly[across]) < 0.02
    assert all(switches[0] == fabric.tor_name(a) and switches[-1] == fabric.tor_name(b) for a, b, switches in told)
    whole = len(job_of(replace(scenario, noise=SILENT)).row["routes"])
    assert 0.01 < 1 - len(routes) / whole < 0.03


def test_a_device_at_fault_is_traced_like_any_other() -> None:
    faulty = replace(SCENARIO, faults=(Fault(Kind.SPINE_SLOW, 1, (0,), factor=2.0),))
    assert job_of(faulty).row == job_of().row


def test_the_largest_job_is_one_message() -> None:
    job = job_of(Scenario(seed=1, tp=8, pp=8, dp=128, layers=8, fabric=FabricShape()))
    message = job_message(job)
    assert len(message.value or b"") < 1 << 20
    assert Job.from_row(decode(message, JOBS).to_pylist()[0]) == job


def test_a_job_of_as_many_ranks_that_is_parallel_in_more_ways_is_well_within_what_is_read() -> None:
    """More pairs exchange, so that there are more routes."""
    job = job_of(Scenario(seed=1, tp=8, pp=8, cp=2, dp=64, ep=64, layers=8, fabric=FabricShape()))
    assert len(job.ranks) == 8192
    assert len(job_message(job).value or b"") < JOBS.max_bytes / 2


def test_renamed_hosts_are_renamed_in_the_fabric() -> None:
    run = simulate(silent(fabric=FabricShape(hosts_per_pod=2), iterations=2))
    ranks, hosts = {rank: 7 - rank for rank in range(8)}, {f"h{i}": f"x{i}" for i in range(4)}
    row = relabelled(run, ranks, hosts).job.row
    assert {d["host"] for d in row["devices"]} == {*hosts.values(), None}
    assert row["links"][2]["a"] == "nic:x1/mlx5_0"
    assert row["links"][2]["b"] == "tor:pod0/rail0"


@pytest.mark.parametrize("kind", ["nic", "nvlink", "tor", "spine"])
def test_devices_in_use_are_known(kind: str) -> None:
    carrying = FABRIC.carries(kind)
    assert len(carrying) == {"nic": 128, "nvlink": 32, "tor": 32, "spine": 3}[kind]
