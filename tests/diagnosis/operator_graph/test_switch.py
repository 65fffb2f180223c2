"""Several slow NICs below one switch are the switch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from diagnosis.job import Job
from diagnosis.operator_graph.culprit import COMPUTE, NETWORK, Culprit
from diagnosis.operator_graph.leaf import OperatorRef
from diagnosis.operator_graph.switch import behind_one_switch
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from producers.simulation.scenario import FabricShape
from tests.diagnosis.operator_graph.small_jobs import FAULTY, located


@cache
def run(kind: Kind, rank: int) -> SimulatedRun:
    """Sixteen ranks, two a host, four hosts a pod: ToRs of four NICs each."""
    fault = Fault(kind, rank, FAULTY, slowdown=1.4)
    small = Scenario(3, tp=2, pp=2, dp=4, microbatches=4, layers=4, iterations=18, gpus_per_host=2, compute_ms=200.0)
    return simulate(replace(small, faults=(fault,), fabric=FabricShape(hosts_per_pod=4, spines=1)))


def job() -> Job:
    return run(Kind.TOR_SLOW, 4).job


def slow(*ranks: int, excess_ns: int = 100) -> Culprit:
    """Some ranks of a pod, on one rail, that could not be told apart."""
    return Culprit(
        cause=NETWORK,
        level="device" if len(ranks) == 1 else "group",
        ranks=ranks,
        candidates=() if len(ranks) == 1 else tuple((rank,) for rank in ranks),
        devices=job().carriers(ranks, ranks) if len(ranks) > 1 else job().carriers((ranks[0], 2), ranks),
        operator=OperatorRef(ranks[0], "g", 0, "all_reduce"),
        excess_ns=excess_ns,
        share=0.9,
        path=ranks[:1],
    )


def computing() -> Culprit:
    return replace(slow(0), cause=COMPUTE, devices=(job().gpu(0),))


def test_channels_without_a_common_nic_are_slow_for_the_switch_that_they_share() -> None:
    switch, other = behind_one_switch(job(), [slow(0, 2), slow(4, 6, excess_ns=200), computing()])
    assert [(device.device, device.downside_nics) for device in switch.devices] == [("tor:pod0/rail0", 4)]
    assert (switch.cause, switch.level, switch.ranks, switch.candidates) == (NETWORK, "device", (0, 2, 4, 6), ())
    assert (switch.excess_ns, switch.operator.rank) == (200, 4)
    assert other == computing()


@pytest.mark.parametrize(
    "culprits",
    [
        [slow(0, 2)],
        [slow(0, 2), slow(2, 4)],
        [slow(0, 2), slow(1, 3)],
        [slow(0, 2), slow(8, 10)],
        [slow(0), computing()],
    ],
    ids=["one", "a NIC in both", "two rails", "two pods", "one and a GPU"],
)
def test_nothing_else_speaks_against_a_switch(culprits: list[Culprit]) -> None:
    assert behind_one_switch(job(), culprits) == culprits


def test_without_a_fabric_there_is_no_switch() -> None:
    bare = Job.from_row({**job().to_row(), "links": None})
    culprits = [replace(slow(0, 2), devices=bare.carriers((0, 2))), replace(slow(4, 6), devices=bare.carriers((4, 6)))]
    assert behind_one_switch(bare, culprits) == culprits


def test_a_slow_switch_is_named() -> None:
    location, _ = located(run(Kind.TOR_SLOW, 4))
    assert [[device.device for device in culprit.devices] for culprit in location.culprits] == [["tor:pod0/rail0"]]


@pytest.mark.parametrize("kind", [Kind.NIC_SLOW, Kind.LINK_SLOW])
def test_a_slow_nic_does_not_make_its_switch_slow(kind: Kind) -> None:
    location, _ = located(run(kind, 4))
    assert [culprit.ranks for culprit in location.culprits] == [(4,)]
