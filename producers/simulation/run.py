"""Simulates a scenario: the logs of all ranks, the job as its cluster describes it, and apart from both the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job
from producers.simulation import engine, rows
from producers.simulation.calibration import slow_device
from producers.simulation.description import described
from producers.simulation.durations import Durations
from producers.simulation.extent import require_extent
from producers.simulation.network import World
from producers.simulation.noise import Floats
from producers.simulation.scenario import Scenario
from producers.simulation.truth import ACTUAL, Truth, abnormal_operators, fault_truths, iteration_lengths


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """What a simulated job leaves behind.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order. ``truth`` is for scoring
    alone: nothing that looks for faults may see it.
    """

    scenario: Scenario
    job: Job
    table: pa.Table
    truth: Truth

    def recorded(self) -> Iterator[tuple[str, pa.Table]]:
        """The log of each rank, rows of telemetry.comm_ops and their ``host``, with the name of its file."""
        rank = self.table.column("rank")
        for place in self.job.places:
            rows = self.table.filter(pc.equal(rank, place.rank))
            yield f"rank{place.rank}", rows.append_column("host", pa.array([place.host] * len(rows), pa.string()))


def simulate(scenario: Scenario) -> SimulatedRun:
    """Run a scenario with its faults and, with the same randomness, without them.

    Raises ``SettingsError`` for a job that is too large, and for a fault that cannot slow it as much as it should.
    """
    require_extent(scenario)
    durations = Durations(scenario)
    fabric = durations.network.fabric

    def length(worlds: Sequence[World], iterations: Sequence[int]) -> Floats:
        return iteration_lengths(engine.run(durations, worlds, iterations))

    slow = tuple(slow_device(length, fault, fabric.device(fault)) for fault in scenario.faults)
    alone: list[World] = [(device,) for device in slow] if len(slow) > 1 else []
    times = engine.run(durations, [slow, (), *alone], range(scenario.iterations), logged=2)
    lengths = iteration_lengths(times)
    table, kept = rows.expand(durations, times)
    truth = Truth(
        scenario=scenario,
        faults=fault_truths(fabric, slow, lengths),
        durations_ns=tuple(int(x * 1e9) for x in lengths[:, 0]),
        healthy_ns=tuple(int(x * 1e9) for x in lengths[:, 1]),
        abnormal=abnormal_operators(times, lengths)[kept],
    )
    ended_ns = durations.cluster.started_ns + int(times[-1].finished[:, ACTUAL].max() * 1e9)
    job = described(fabric, durations.cluster.job(ended_ns))
    return SimulatedRun(scenario, job, table, truth)
