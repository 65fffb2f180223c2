"""How accuracy hangs on delta, and on how many ranks are watched (Holmes 5.2, figures 14c and 15a)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.accuracy import Noise
from offbeat import terminal

SEEDS = 55_000
"""Where the seeds of reported figures begin."""

DELTAS = (1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.16, 1.2)
PIVOTS = (1, 2, 3, 4, 5, 6)


def run(
    *,
    runs: Annotated[int, typer.Option(min=1, help="Runs with faults, for each profile of noise.")] = 21,
    healthy: Annotated[int, typer.Option(min=0, help="Runs without, for each profile of noise.")] = 4,
    ranks: Annotated[int, typer.Option(min=256, help="Ranks of a job.")] = 256,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of a run.")] = 100,
    noise: Annotated[Noise, typer.Option(help="Profiles of noise.")] = Noise.DEFAULT,
    delta: Annotated[list[float] | None, typer.Option(help="How long is irregular, may be repeated.")] = None,
    pivots: Annotated[list[int] | None, typer.Option(min=1, help="Watched ranks, may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed; reported figures begin at the default.")] = SEEDS,
    resume: Annotated[Path | None, typer.Option(help="A file that keeps finished runs; taken up again.")] = None,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="Only figures of what the file of --resume holds, whoever made it."),
    ] = False,
    processes: Annotated[int, typer.Option(min=1, max=2, help="Runs at the same time.")] = 2,
) -> dict[str, Any]:
    """Diagnose the same runs with other settings.

    With other deltas, and with more or fewer pivots; each run is simulated once. With a delta below what iterations
    vary by, regular ones are called irregular; with a large one mild faults are passed over.
    """
    from benchmarks.large import plan, variations
    from benchmarks.simulated import workers
    from benchmarks.simulated.finished import Finished, kept, version
    from offbeat.settings import Settings

    settings = Settings.load()
    if finished:
        scores = kept(resume, variations.VariedScore)
        return {"noise": variations.by_noise(variations.of_scores(settings, scores), scores)}
    varied = variations.variations(settings, delta or DELTAS, pivots or PIVOTS)
    cases = plan.cases(runs, healthy, noise.profiles, seeds, ranks=ranks, iterations=iterations)
    done = Finished(resume, version(settings), variations.VariedScore)
    lacking = [(case, [one for one in varied if one.of(case) not in done.scores]) for case in cases]
    to_do = [(case, still) for case, still in lacking if still]
    with terminal.progress("simulated runs", len(cases)) as shown:
        for count, of_run in enumerate(workers.results(variations.judge_each, to_do, processes), start=1):
            for score in of_run:
                done.add(score)
            shown.advance(len(cases) - len(to_do) + count)
    return {
        "runs": {"faulty": runs, "healthy": healthy, "ranks": ranks, "iterations": iterations},
        "noise": variations.by_noise(varied, done.of(one.of(case) for case in cases for one in varied)),
    }
