"""Abnormal operators: how well each detector tells them, on jobs that it knows and on others, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from benchmarks.simulated.workers import results
from offbeat import terminal

REPORTED_SEEDS = 6_000_000
"""Seeds from here on are for reported figures alone: no model ever saw them, no threshold was chosen on them."""

SEEDS_OF_SMALL_JOBS = 100_000
"""So many seeds after the first those of small jobs begin."""

_TYPICAL_S = {"large": 12.0, "small": 7.0}
"""What a fault of a large job takes, and a run of a small one, for the estimate."""


_Job = TypeVar("_Job")
_Score = TypeVar("_Score")


def run(
    *,
    jobs: Annotated[int, typer.Option(min=0, help="Jobs of thousands of ranks, each of another layout.")] = 6,
    faults: Annotated[int, typer.Option(min=2, help="Faults of each to learn from; half as many to judge.")] = 6,
    drifting: Annotated[int, typer.Option(min=0, help="How many of these are followed over a month of drift.")] = 2,
    ranks: Annotated[int, typer.Option(min=64, help="Ranks of each.")] = 4096,
    small_jobs: Annotated[int, typer.Option(min=0, help="Jobs of 32 to 128 ranks.")] = 4,
    runs: Annotated[int, typer.Option(min=2, help="Runs of each to learn from; half as many to judge.")] = 10,
    noise: Annotated[Literal["default", "hard"], typer.Option(help="Profile of noise of simulated jobs.")] = "default",
    recordings: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A recording; several, of the same job, learn and judge.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed; reported figures begin at the default.")] = (
        REPORTED_SEEDS
    ),
    processes: Annotated[int, typer.Option(min=1, max=2, help="Jobs at the same time.")] = 2,
) -> dict[str, Any]:
    """Tell abnormal operators, and count.

    Detectors learn from some hours of each job, and judge later ones, with other noise and other slow devices; the
    generic model judges jobs that it never saw.
    """
    from benchmarks.detectors import comparison, large_trial, speed
    from benchmarks.detectors import recordings as of_recordings
    from benchmarks.detectors import small_jobs as small
    from producers.simulation.noise import PROFILES, PROFILES_LARGE

    large = [
        large_trial.LargeJob(seeds + at, faults, at < drifting, ranks, PROFILES_LARGE[noise]) for at in range(jobs)
    ]
    little = [small.small_job(seeds + SEEDS_OF_SMALL_JOBS, at, runs, PROFILES[noise]) for at in range(small_jobs)]
    seconds = _TYPICAL_S["large"] * sum(job.all_faults for job in large)
    seconds += _TYPICAL_S["small"] * sum(len(job.learned) + len(job.judged) for job in little)
    terminal.note(
        f"{len(large)} large jobs and {len(little)} small ones, {processes} at a time: "
        f"about {seconds / processes / 60:.0f} minutes"
    )
    return {
        "seeds": {"from": seeds, "reported": seeds == REPORTED_SEEDS},
        "noise": noise,
        "large": {"ranks": ranks, **large_trial.told(_all("large jobs", large_trial.run, large, processes))}
        if large
        else None,
        "small": comparison.told(_all("small jobs", small.compared_on, little, processes)) if little else None,
        "recordings": of_recordings.judged(recordings) if recordings else None,
        "speed": speed.measured(),
    }


def _all(what: str, work: Callable[[_Job], _Score], jobs: Sequence[_Job], processes: int) -> list[_Score]:
    """The scores of all jobs, as they are done."""
    scores = []
    with terminal.progress(what, len(jobs)) as shown:
        for score in results(work, jobs, processes):
            scores.append(score)
            shown.advance(len(scores))
    return scores
