"""How soon after the end of a slow collective the finding that it leads to is stored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when it begins
    from benchmarks.traffic.latency import Delay

REPORTED_SEEDS = 240_000
"""Seeds from here on are for reported figures alone."""

AIM_S = 2.0


def run(
    *,
    runs: Annotated[
        int, typer.Option(min=1, help="Jobs of each kind, one after the other; each is replayed for ten seconds.")
    ] = 12,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed.")] = REPORTED_SEEDS,
) -> dict[str, Any]:
    """Time findings by NIC traffic over Kafka.

    They end in ClickHouse, and every role is a process. Simulated hosts poll their NICs once a second, and are
    replayed in real time. Seconds count from when the slow collective ended in the simulated NICs to when its finding
    can be queried, of what hangs from its time-out on, of 6 s here; ``stages`` says how far it was when. Jobs are
    slow in a built-in collective, in a custom one, or one of their NICs stops.
    """
    from benchmarks.traffic.latency import Kind, deployed, measure, scenario
    from offbeat.settings import Settings
    from producers.simulation.nic import simulate_nics

    settings, load = Settings.load(), os.getloadavg()[0]
    told: dict[Kind, list[list[Delay]]] = {kind: [] for kind in Kind}
    each = [(kind, seeds + at * runs + run) for at, kind in enumerate(Kind) for run in range(runs)]
    with terminal.progress("replayed runs", len(each)) as shown, deployed() as running:
        for done, (kind, seed) in enumerate(each, start=1):
            told[kind].append(measure(simulate_nics(scenario(seed, kind)), settings, running))
            shown.advance(done)

    return {
        "poll_s": 1.0,
        "aim_s": AIM_S,
        "seeds": {"from": seeds, "reported": seeds == REPORTED_SEEDS},
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load, 2), round(os.getloadavg()[0], 2)],
        **{
            kind.value: {"shrink": scenario(seeds, kind).shrink, "runs": runs, **_figures(found)}
            for kind, found in told.items()
        },
    }


def _figures(found: Sequence[Sequence[Delay]]) -> dict[str, Any]:
    import numpy as np

    delays = [delay for of_run in found for delay in of_run]

    def percentiles(values: list[float]) -> dict[str, float]:
        return {f"p{percent}": round(float(np.percentile(values, percent)), 3) for percent in (50, 99)}

    told: dict[str, Any] = {"runs_with_the_rank_named": sum(map(bool, found)), "findings": len(delays)}
    if delays:
        stages = ("polled", "segmented", "found", "stored")
        told["seconds"] = percentiles([delay.stored for delay in delays])
        told["stages"] = {name: percentiles([getattr(delay, name) for delay in delays]) for name in stages}
    return told
