"""How accuracy hangs on delta, and on how many ranks are watched (Holmes 5.2, figures 14c and 15a)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from benchmarks.accuracy import Noise

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
    processes: Annotated[int, typer.Option(min=1, max=2, help="Runs at the same time.")] = 2,
) -> dict[str, Any]:
    """Diagnose the same runs with other settings.

    With other deltas, and with more or fewer pivots; each run is simulated once. With a delta below what iterations
    vary by, regular ones are called irregular; with a large one mild faults are passed over.
    """
    from benchmarks.large import plan, variations
    from benchmarks.simulated import workers
    from offbeat.settings import Settings

    varied = variations.variations(Settings.load(), delta or DELTAS, pivots or PIVOTS)
    cases = plan.cases(runs, healthy, noise.profiles, seeds, ranks=ranks, iterations=iterations)
    work = partial(variations.judge_each, varied=varied)
    scores = workers.all_results("simulated runs", work, cases, processes)
    by_noise = {name: [of_run for of_run in scores if of_run[0].noise == name] for name in noise.profiles}
    return {
        "runs": {"faulty": runs, "healthy": healthy, "ranks": ranks, "iterations": iterations},
        "noise": {name: variations.figures(varied, of_noise) for name, of_noise in by_noise.items()},
    }
