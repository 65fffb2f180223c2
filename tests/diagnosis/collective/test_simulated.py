"""Culprits in simulated runs, by the records of their agents alone."""

from __future__ import annotations

import pytest

from diagnosis.collective.grid import ComparisonRules, grids
from diagnosis.collective.hangs import localise_hang
from diagnosis.collective.localise import localise_slow
from diagnosis.collective.participation import Participation
from diagnosis.collective.stragglers import slow_in_collective
from producers.simulation.nic.faults import Fault, Injection
from producers.simulation.nic.run import simulate_nics
from producers.simulation.nic.scenario import NicScenario, Workload
from tests.diagnosis.traffic.simulated import metrics


def exchange(*faults: Fault) -> NicScenario:
    return NicScenario(seed=71, workload=Workload.NEIGHBOURS, tp=1, pp=1, faults=faults)


def reducing(*faults: Fault) -> NicScenario:
    return NicScenario(seed=72, tp=1, dp=4, pp=1, iterations=3, microbatches=1, layers=1, faults=faults)


@pytest.mark.parametrize("injection", [Injection.PCIE_DOWNGRADE, Injection.CONGESTION, Injection.MEMORY_ALIGNMENT])
def test_the_straggler_of_an_exchange_is_named(injection: Injection) -> None:
    run = simulate_nics(exchange(Fault(injection, 2, 0.0)))
    (found,) = localise_slow(Participation.from_arrow(metrics(run)), run.job)
    assert (found.cause, found.level, found.ranks) == ("communication_slow", "device", run.truth.faults[0].ranks)


def test_a_healthy_exchange_has_nobody_at_fault() -> None:
    run = simulate_nics(exchange())
    assert localise_slow(Participation.from_arrow(metrics(run)), run.job) == []


def test_a_nic_that_stops_in_the_middle_of_an_exchange_is_named() -> None:
    run = simulate_nics(exchange(Fault(Injection.NIC_DOWN, 2, 0.011)))
    assert run.truth.hung
    found = localise_hang(Participation.from_arrow(metrics(run)), run.job)
    assert [one.ranks for one in found] == [run.truth.faults[0].ranks]


@pytest.mark.parametrize("p", [1.0, 1.05, 1.25, 2.0])
def test_what_full_epochs_hold_tells_how_much_of_the_line_is_left(p: float) -> None:
    faults = () if p == 1.0 else (Fault(Injection.PCIE_DOWNGRADE, 1, 0.0, 1 / p),)
    run = simulate_nics(reducing(*faults))
    (grid,) = grids(Participation.from_arrow(metrics(run)))
    large = grid.choose(grid.expected > 20_000_000)
    found = slow_in_collective(large, ComparisonRules(), metric="busy_epochs")
    assert (found.ranks if found else ()) == (run.truth.faults[0].ranks if faults else ())
    if found:
        assert found.evidence["ratio"] == pytest.approx(p, rel=0.02)
