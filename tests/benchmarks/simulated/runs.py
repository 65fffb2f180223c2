"""Small runs and their truth, for the tests of the accuracy benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from benchmarks.simulated.detection import Detection, Telemetry
from producers.simulation import Fault, FaultTruth, Kind, Scenario, SimulatedRun, Truth, simulate
from producers.simulation.cluster import Cluster
from producers.simulation.fabric import Fabric

SCENARIO = Scenario(seed=3, tp=2, pp=2, dp=4, microbatches=4, layers=4, iterations=40, compute_ms=200.0)
"""16 ranks on two hosts."""

CLUSTER = Cluster(SCENARIO)
FABRIC = Fabric(CLUSTER)
JOB = CLUSTER.job()


@cache
def slow_gpu() -> SimulatedRun:
    """A run in which the GPU of rank 5 computes slowly from iteration 20 on."""
    fault = Fault(Kind.GPU_SLOW, 5, tuple(range(20, 40)), slowdown=1.5)
    return simulate(replace(SCENARIO, faults=(fault,)))


def telemetry_of(run: SimulatedRun) -> Telemetry:
    """What is known of a run from outside."""
    return Telemetry.of(run.job, run.table)


def fault(kind: Kind = Kind.GPU_SLOW, rank: int = 5, first: int = 20, last: int = 29, by: float = 1.5) -> FaultTruth:
    """A fault that lengthens its iterations ``by`` so much."""
    cause = Fault(kind, rank, tuple(range(first, last + 1)), factor=2.0)
    return FaultTruth(
        kind=kind.value,
        pattern="persistent",
        part="all",
        rank=rank,
        device=FABRIC.device(cause),
        inseparable=FABRIC.inseparable(cause),
        factor=2.0,
        iterations=cause.iterations,
        slowdowns=tuple(by for _ in cause.iterations),
    )


def truth(*faults: FaultTruth) -> Truth:
    """The truth of a run of 100 ms an iteration whose faults add up."""
    healthy = np.full(SCENARIO.iterations, 100_000_000)
    lengths = healthy.astype(float)
    for one in faults:
        lengths[list(one.iterations)] += healthy[list(one.iterations)] * (np.array(one.slowdowns) - 1)
    return Truth(SCENARIO, faults, tuple(lengths.astype(int).tolist()), tuple(healthy.tolist()), np.zeros(0, np.bool_))


def incident(
    ranks: Sequence[int], devices: Sequence[str], first: int = 20, last: int = 29, *, among: bool = False
) -> dict[str, Any]:
    """A row of analysis.incidents; with ``among`` it says that one of the ranks is at fault."""
    return {
        "id": f"{ranks}{first}",
        "cause": "compute_slow" if devices[0].startswith("gpu") else "communication_slow",
        "level": "group" if among else "device",
        "ranks": list(ranks),
        "candidates": [[rank] for rank in ranks] if among else [],
        "devices": [{"device": device, "kind": device.partition(":")[0]} for device in devices],
        "first_iteration": first,
        "last_iteration": last,
        "confidence": 0.9,
    }


def said(*incidents: dict[str, Any], irregular: Sequence[int] = (), starting: int = 0) -> Detection:
    """What a pipeline said that counts iterations from ``starting`` of the truth's on."""
    detection = Detection(incidents={row["id"]: row for row in incidents})
    began = (JOB.started_ns or 0) + np.cumsum([0, *truth(fault()).durations_ns[:-1]])
    for iteration, start in enumerate(began[starting:].tolist()):
        row = {"start_ns": start + 3_000_000, "irregular": iteration in irregular}
        detection.iterations[iteration] = [row]
    return detection
