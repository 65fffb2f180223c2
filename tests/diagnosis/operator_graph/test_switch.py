"""What is above slow NICs: a ToR where its other ranks are slow as well, a spine where nobody is below the ToRs."""

from collections.abc import Collection
from functools import cache

import pytest

from diagnosis.job import Job
from diagnosis.operator_graph.locate import Irregularity, LocateSettings, Location, locate
from diagnosis.operator_graph.switch import SwitchSettings
from producers.simulation import Fault, Kind, Omissions, Scenario, SimulatedRun, simulate
from producers.simulation.scenario import FabricShape
from tests.diagnosis.answering import answered
from tests.diagnosis.operator_graph.small_jobs import FAULTY, irregularity

RAIL = (0, 2, 4, 6)
"""Ranks below the first ToR: the first GPU of each host of the first pod, which holds the first stage."""

SPINES = ("spine:0", "spine:1", "spine:2", "spine:3")


@cache
def job_with(kind: Kind, at: int, *, ends: bool = True) -> SimulatedRun:
    """Two stages, each of four replicas on the four hosts of a pod, with a slow device from iteration 14 on."""
    return simulate(
        Scenario(
            5,
            tp=2,
            pp=2,
            dp=4,
            microbatches=4,
            layers=4,
            hidden=4096,
            iterations=18,
            gpus_per_host=2,
            compute_ms=200.0,
            fabric=FabricShape(hosts_per_pod=4, spines=len(SPINES)),
            faults=(Fault(kind, at, FAULTY, slowdown=1.3),),
            omissions=Omissions(ends=not ends),
        )
    )


def located(
    run: SimulatedRun,
    *,
    job: Job | None = None,
    missing: Collection[int] = (),
    settings: LocateSettings | None = None,
) -> Location:
    asked: Irregularity = irregularity(run)
    return answered(locate(job or run.job, asked, settings), run.table, missing)[0]


def told(location: Location) -> set[tuple[tuple[int, ...], tuple[str, ...]]]:
    """The ranks and devices that are named, without the switches above a NIC."""
    return {
        (culprit.ranks, tuple(d.device for d in culprit.devices if culprit.is_switch or (d.downside_nics or 0) <= 1))
        for culprit in location.culprits
    }


def test_a_slow_tor_is_named_with_the_ranks_below_it() -> None:
    location = located(job_with(Kind.TOR_SLOW, RAIL[1]))
    assert told(location) == {(RAIL, ("tor:pod0/rail0",))}
    assert {(culprit.cause, culprit.level) for culprit in location.culprits} == {("communication_slow", "device")}


@pytest.mark.parametrize("kind", [Kind.NIC_SLOW, Kind.LINK_SLOW])
def test_a_slow_nic_or_cable_is_not_its_tor(kind: Kind) -> None:
    assert told(located(job_with(kind, RAIL[1]))) == {((2,), ("nic:h1/mlx5_0", "link:h1/mlx5_0"))}


def test_of_a_slow_spine_all_that_the_traffic_may_take_are_named() -> None:
    location = located(job_with(Kind.SPINE_SLOW, 0))
    assert {devices for _, devices in told(location)} == {SPINES}
    assert {(culprit.cause, culprit.level) for culprit in location.culprits} == {("communication_slow", "group")}


def test_what_is_not_known_of_others_names_no_switch() -> None:
    run = job_with(Kind.TOR_SLOW, RAIL[1])
    alone = located(run, missing=[rank for rank in RAIL if rank not in {0, 2}])
    assert not any(culprit.is_switch for culprit in alone.culprits)
    many = LocateSettings(switch=SwitchSettings(least_hosts=5))
    assert not any(culprit.is_switch for culprit in located(run, settings=many).culprits)


def test_where_no_fabric_is_described_nics_are_named() -> None:
    run = job_with(Kind.TOR_SLOW, RAIL[1])
    plain = Job(run.job.job, run.job.places, run.job.communicators, run.job.layout, run.job.started_ns)
    location = located(run, job=plain)
    assert location.culprits
    assert {device.kind for culprit in location.culprits for device in culprit.devices} == {"nic"}


def test_logs_without_ends_tell_a_tor_from_a_nic() -> None:
    assert told(located(job_with(Kind.TOR_SLOW, RAIL[1], ends=False))) == {(RAIL, ("tor:pod0/rail0",))}
    nic = located(job_with(Kind.NIC_SLOW, RAIL[1], ends=False))
    assert told(nic) == {((2,), ("nic:h1/mlx5_0", "link:h1/mlx5_0"))}
