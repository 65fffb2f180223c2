"""Abnormal operators: how well each detector tells them, on jobs that it knows and on others, and how fast."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from offbeat import terminal

REPORTED_SEEDS = 6_000_000
"""Seeds from here on are for reported figures alone: no model ever saw them, no threshold was chosen on them."""

_TYPICAL_S = 7.0
"""What a run takes, for the estimate."""


def run(
    *,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs, each of another layout.")] = 8,
    runs: Annotated[int, typer.Option(min=2, help="Runs of each job to learn from; half as many to judge.")] = 10,
    drifting: Annotated[int, typer.Option(min=0, help="Jobs that are followed over a month of drift.")] = 3,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed; reported figures begin at the default.")] = (
        REPORTED_SEEDS
    ),
    processes: Annotated[int, typer.Option(min=1, max=2, help="Runs at the same time.")] = 2,
) -> dict[str, Any]:
    """Tell abnormal operators of simulated runs, and count.

    Detectors learn from runs of each job and judge other runs of it, with other noise and another slow device; the
    generic model judges jobs that it never saw.
    """
    from benchmarks.detectors import speed
    from benchmarks.detectors.drifting import followed, weeks_of
    from benchmarks.detectors.per_job import compared, runs_of

    of_jobs = [task for job in range(jobs) for task in runs_of(seeds, job, runs)]
    of_weeks = [task for job in range(drifting) for task in weeks_of(seeds, job, runs)]
    total = len(of_jobs) + len(of_weeks)
    terminal.note(f"{total} runs, {processes} at a time: about {total * _TYPICAL_S / processes / 60:.0f} minutes")
    with terminal.progress("simulated runs", total) as shown:
        done = 0

        def tell() -> None:
            nonlocal done
            done += 1
            shown.advance(done)

        detection = compared(of_jobs, processes, tell)
        drift = followed(of_weeks, processes, tell)
    return {
        "seeds": {"from": seeds, "reported": seeds == REPORTED_SEEDS},
        "detection": detection,
        "drift": drift,
        "speed": speed.measured(),
    }
