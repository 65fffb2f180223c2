"""A job that is small enough for tests, with some hours of its log like those of large jobs."""

from __future__ import annotations

from benchmarks.detectors.large_jobs import Period, one_at_a_time
from producers.simulation import FabricShape, Fault, Kind, Scenario

KINDS = (Kind.GPU_SLOW, Kind.NIC_SLOW)


def period(age_days: int = 0, faults: int = 2, slowdown: float = 1.5) -> Period:
    """Hours of a job of 64 ranks; GPUs and NICs are slow in turn, others at another age."""
    scenario = Scenario(
        3199,
        tp=4,
        pp=2,
        dp=8,
        microbatches=2,
        layers=4,
        hidden=4096,
        fabric=FabricShape(hosts_per_pod=4, spines=2),
    )
    devices = [
        Fault(KINDS[at % 2], (17 * at + 5 * age_days + 3) % scenario.world, (0,), slowdown) for at in range(faults)
    ]
    return one_at_a_time(scenario, devices, age_days)
