"""Seconds and bytes that a search takes among thousands of ranks."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from offbeat import terminal

SEEDS = 50_000
"""Where the seeds of reported figures begin."""

SIZES = (2048, 4096, 8192)


def run(
    *,
    ranks: Annotated[
        list[int] | None,
        typer.Option(min=256, help="Ranks of the jobs, may be repeated; 2048, 4096 and 8192 by default."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each size; each has the next kind of fault.")] = 7,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of a run.")] = 40,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed; reported figures begin at the default.")] = SEEDS,
    kafka: Annotated[bool, typer.Option(help="Also over Kafka into ClickHouse, with every role a process.")] = False,
) -> dict[str, Any]:
    """Time searches among thousands of ranks.

    From the last record of an irregular iteration to its stored findings, in process into chDB: agents, pipeline and
    store take turns. What the simulator takes is told apart.
    """
    from benchmarks.large import over_kafka
    from benchmarks.large.latency import figures, measure, seconds
    from offbeat.settings import Settings
    from producers.simulation import Kind, LazyRun, Pattern
    from producers.simulation.large_scenarios import Trouble, large_scenario

    settings, kinds = Settings.load(), tuple(Kind)
    tasks = [(size, i) for size in ranks or SIZES for i in range(runs)]

    def simulated(size: int, i: int) -> LazyRun:
        trouble = Trouble(kinds[i % len(kinds)], Pattern.SPIKES)
        return LazyRun(large_scenario(seeds + i, (trouble,), ranks=size, iterations=iterations))

    measured = []
    with terminal.progress("simulated runs", len(tasks)) as shown:
        for task in tasks:
            started = time.perf_counter()
            job = simulated(*task)
            measured.append(measure(job, settings, time.perf_counter() - started))
            shown.advance(len(measured))
    told: dict[str, Any] = {
        "iterations_a_run": iterations,
        "store": "chdb, in process",
        "by_ranks": figures(measured),
    }
    if kafka:
        by_ranks: dict[int, list[float]] = {}
        with terminal.progress("runs over Kafka", len(tasks)) as shown, over_kafka.deployed() as running:
            for done, (size, i) in enumerate(tasks, 1):
                by_ranks.setdefault(size, []).extend(over_kafka.measure(simulated(size, i), settings, running))
                shown.advance(done)
        told["over_kafka"] = {
            str(size): {"searched_iterations": len(taken), "seconds": seconds(taken)}
            for size, taken in by_ranks.items()
        }
    return told
