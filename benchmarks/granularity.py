"""How short epochs have to be, and how little slowness of a NIC is still found (Pulse 6.1, 7.2.1)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

REPORTED_SEEDS = 90_000
"""Seeds from here on are for reported figures alone."""

EPOCHS_NS = (32_000, 64_000, 1_000_000)
SLOWNESS = (1.05, 1.1, 1.25, 1.43, 1.67, 2.0, 2.5, 3.33, 5.0)
"""By how much the bandwidth is divided."""

_HALF = 2.0


def run(
    *,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each slowness.")] = 10,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed; reported figures begin at the default.")] = (
        REPORTED_SEEDS
    ),
    processes: Annotated[int, typer.Option(min=1, max=2, help="Runs at the same time.")] = 2,
) -> dict[str, Any]:
    """Slow one NIC down.

    ``half_bandwidth``: milliseconds by length of epochs. Every rank's operators last alike; the straggler shows in its
    actual time as long as epochs are no longer than the silences that it leaves to the others. ``recall``: by how much
    the bandwidth was divided, for each metric.
    """
    from benchmarks.simulated import workers
    from benchmarks.traffic import straggler
    from offbeat.settings import Settings

    settings = Settings.load()
    half = {
        f"{epoch_ns // 1000} us": straggler.seen(
            straggler.Slowed(seeds, _HALF, epoch_ns, at_s=0.0, iterations=4), settings
        )
        for epoch_ns in EPOCHS_NS
    }
    cases = [straggler.Slowed(seeds + at, p) for p in SLOWNESS for at in range(runs)]
    found = workers.all_results("slow NICs", partial(straggler.sensed, settings=settings), cases, processes)
    return {
        "seeds": {"from": seeds, "reported": seeds == REPORTED_SEEDS},
        "shrink": cases[0].scenario.shrink,
        "half_bandwidth": half,
        "recall": straggler.recall(found),
    }
