"""How soon after the end of a slow collective the finding that it leads to is stored."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from offbeat import terminal

SEEDS = 30_000
AIM_S = 2.0


def run(
    *,
    runs: Annotated[int, typer.Option(min=1, help="Jobs, one after the other; each is replayed for ten seconds.")] = 12,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed.")] = SEEDS,
) -> dict[str, Any]:
    """Time findings by NIC traffic over Kafka.

    They end in ClickHouse, and every role is a process. Simulated hosts poll their NICs once a second, and are
    replayed in real time. Seconds count from when the slow collective ended in the simulated NICs to when its finding
    can be queried; ``stages`` says how far it was when.
    """
    import numpy as np

    from benchmarks.traffic.latency import Delay, deployed, measure, scenario
    from offbeat.settings import Settings
    from producers.simulation.nic import simulate_nics

    settings, delays, named = Settings.load(), list[Delay](), 0
    load = os.getloadavg()[0]
    with terminal.progress("replayed runs", runs) as shown, deployed() as running:
        for done in range(runs):
            found = measure(simulate_nics(scenario(seeds + done)), settings, running)
            delays += found
            named += bool(found)
            shown.advance(done + 1)

    def percentiles(values: list[float]) -> dict[str, float]:
        return {f"p{percent}": round(float(np.percentile(values, percent)), 3) for percent in (50, 99)}

    told: dict[str, Any] = {
        "poll_s": 1.0,
        "shrink": scenario(seeds).shrink,
        "runs": runs,
        "runs_with_the_rank_named": named,
        "findings": len(delays),
        "aim_s": AIM_S,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load, 2), round(os.getloadavg()[0], 2)],
    }
    if delays:
        told["seconds"] = percentiles([delay.stored for delay in delays])
        told["stages"] = {
            name: percentiles([getattr(delay, name) for delay in delays])
            for name in ("polled", "segmented", "found", "stored")
        }
    return told
