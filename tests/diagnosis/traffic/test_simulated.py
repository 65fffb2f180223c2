"""Operators in the traffic of simulated NICs, against what truly ran."""

from __future__ import annotations

import numpy as np
import pytest

from diagnosis.traffic.segmentation import STATES, SegmentationRules
from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.run import simulate_nics
from producers.simulation.nic.scenario import WHOLE, NicScenario, Workload
from tests.diagnosis.traffic.simulated import seen

DELTA = SegmentationRules().quiet_ns


@pytest.mark.parametrize(
    "scenario",
    [
        NicScenario(seed=61, tp=1, dp=4, pp=2, iterations=2, noise=WHOLE),
        NicScenario(seed=62, workload=Workload.NEIGHBOURS, tp=1, pp=1, hardware=Hardware(line_gbps=200.0)),
        NicScenario(seed=63, workload=Workload.ONE_TO_ALL, tp=1, pp=1, hardware=Hardware(channels=4)),
    ],
    ids=["dense", "neighbours", "one to all"],
)
def test_operators_are_found_where_they_ran(scenario: NicScenario) -> None:
    """About within two epochs where silence lies between them, else within a hundredth of their volume, but for a shift
    that all share: tests/benchmarks/traffic/test_boundaries.py holds them to their host's clock."""
    run = simulate_nics(scenario)
    truth = {(row["rank"], row["communicator"], row["seq"]): row for row in run.truth.operators.to_pylist()}
    checked = 0
    for _, series, calls, found in seen(run):
        operators = found.operators
        assert {STATES[state] for state in operators.state} <= {"complete"}
        names = [calls.communicators[code] for code in calls.communicator[operators.key]]
        keys = zip(calls.rank[operators.key].tolist(), names, calls.seq[operators.key].tolist(), strict=True)
        true = [truth[key] for key in keys]
        start, end = (np.array([row[name] for row in true]) for name in ("start_ns", "end_ns"))
        volume = np.array([row["bytes"] for row in true])
        if not true:
            continue
        ahead = np.median(operators.start_ns - start)  # the host's clock, and half an epoch
        order = np.argsort(start)
        quiet = np.full(len(true), True)
        quiet[order[1:]] &= start[order[1:]] - end[order[:-1]] >= DELTA
        quiet[order[:-1]] &= start[order[1:]] - end[order[:-1]] >= DELTA
        assert (np.abs(operators.start_ns - start - ahead)[quiet] <= 2 * series.epoch_ns).all()
        assert (np.abs(operators.end_ns - end - ahead)[quiet] <= 2.5 * series.epoch_ns).all()
        assert (np.abs(operators.sent / volume - 1)[volume > 4 << 20] <= 0.015).all()
        checked += len(true)
    assert checked > 6
