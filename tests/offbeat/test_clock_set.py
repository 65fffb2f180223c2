"""The clock of a host is set while a job trains: the same devices are at fault, and no others."""

import pyarrow.compute as pc
import pytest

from benchmarks.simulated.detection import Telemetry, detect
from offbeat.options import scenario
from offbeat.settings import Settings
from producers.simulation import SimulatedRun, simulate
from tests.faults.clocks import AT_FAULT, jumped
from tests.integration.recordings import FAULTS, SCENARIO


@pytest.fixture(scope="module")
def run() -> SimulatedRun:
    return simulate(scenario(SCENARIO, FAULTS))


@pytest.mark.parametrize(
    ("host", "iteration", "by_s"), [("h0", 10, 0.3), ("h1", 5, 0.3), ("h0", 12, 3600), ("h0", 9, -3600)]
)
def test_nothing_else_is_named(run: SimulatedRun, host: str, iteration: int, by_s: float) -> None:
    """In the baseline, or just when a fault begins."""
    calls = sorted(run.table.filter(pc.equal(run.table["iteration"], iteration))["call_ns"].to_pylist())
    table = jumped(run.table, run.job.ranks_of_host[host], calls[len(calls) // 2], round(by_s * 1e9))
    found = detect(Telemetry.of(run.job, table), Settings.load())
    assert {(row["cause"], *row["ranks"]) for row in found.incidents.values()} == AT_FAULT
