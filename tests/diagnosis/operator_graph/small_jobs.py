"""Simulated jobs of 8 ranks on 4 hosts, and a search of one of their irregular iterations."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.job import pivots
from diagnosis.operator_graph.locate import Irregularity, LocateSettings, Location, locate
from producers.simulation import FabricShape, Fault, Kind, Omissions, Scenario, SimulatedRun, simulate
from tests.diagnosis.answering import Asked, answered

FAULTY = tuple(range(14, 18))
BASELINE = tuple(range(6, 14))


def gpu_slow(rank: int, slowdown: float = 1.4, **fields: Any) -> Fault:
    return Fault(Kind.GPU_SLOW, rank, FAULTY, slowdown=slowdown, **fields)


def nic_slow(rank: int, slowdown: float = 1.4) -> Fault:
    return Fault(Kind.NIC_SLOW, rank, FAULTY, slowdown=slowdown)


@cache
def run(
    *faults: Fault,
    seed: int = 3,
    ends: bool = True,
    dp: int = 2,
    gpus_per_host: int = 2,
    fabric: FabricShape | None = None,
) -> SimulatedRun:
    """TP 2 and PP 2 over ``dp`` replicas, under default noise; the faults begin with iteration 14."""
    return simulate(
        Scenario(
            seed,
            tp=2,
            pp=2,
            dp=dp,
            microbatches=4,
            layers=4,
            hidden=4096,
            iterations=18,
            gpus_per_host=gpus_per_host,
            compute_ms=200.0,
            fabric=fabric,
            faults=faults,
            omissions=Omissions(ends=not ends),
        )
    )


def irregularity(of: SimulatedRun, iteration: int = 14, starts: Sequence[int] | None = None) -> Irregularity:
    """What a monitor would say of an iteration; it measures durations, the truth knows no more of them."""
    durations = of.truth.durations_ns
    excess = durations[iteration] - np.mean([durations[i] for i in BASELINE])
    return Irregularity(iteration, BASELINE, tuple(starts or pivots(of.job, 4)), max(1, int(excess)))


def located(
    of: SimulatedRun,
    iteration: int = 14,
    *,
    starts: Sequence[int] | None = None,
    missing: Collection[int] = (),
    table: pa.Table | None = None,
    settings: LocateSettings | None = None,
) -> tuple[Location, Asked]:
    search = locate(of.job, irregularity(of, iteration, starts), settings)
    return answered(search, of.table if table is None else table, missing)


def named(location: Location) -> set[tuple[str, str, tuple[int, ...]]]:
    return {(culprit.cause, culprit.level, culprit.ranks) for culprit in location.culprits}
