"""Where operators begin and end in NIC traffic, in every setup and with every fault (Pulse 5.2)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

REPORTED_SEEDS = 210_000
"""Seeds from here on are for reported figures alone."""


def run(
    *,
    repeats: Annotated[int, typer.Option(min=0, help="Runs of each combination of fault and job.")] = 1,
    healthy: Annotated[int, typer.Option(min=0, help="Runs without a fault.")] = 15,
    only: Annotated[list[str] | None, typer.Option(metavar="CLASS/SETUP/INJECTION", help="As of accuracy.")] = None,
    hard: Annotated[bool, typer.Option(help="Under the hard profile of noise.")] = False,
    untuned: Annotated[bool, typer.Option(help="Draw lines, channels, slices and slots.")] = False,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed; reported figures begin at the default.")] = (
        REPORTED_SEEDS
    ),
    processes: Annotated[int, typer.Option(min=1, max=2, help="Runs at the same time.")] = 2,
) -> dict[str, Any]:
    """Hold operators against what was truly sent.

    ``boundaries_in_time``: of beginnings and ends with silence on their side, those within two epochs;
    ``by_volume_alone``: so would be beginnings, if what was sent were cut into the volumes that are expected.
    ``volumes_back_to_back``: volume within a hundredth, of those that lack silence on a side; ``or_to_an_epoch``: or
    within what a line sends in one. Of those from 256 KB on that are told to be complete; ``not_complete`` are not,
    though they ended and telemetry covers them.
    """
    from benchmarks.simulated import workers
    from benchmarks.traffic import boundaries
    from benchmarks.traffic.plan import cases
    from offbeat.settings import Settings

    settings, noise = Settings.load(), "hard" if hard else "default"
    told = cases(repeats, healthy, [noise], seeds, only or (), untuned)
    work = partial(boundaries.bounded, settings=settings)
    found = workers.all_results("simulated runs", work, told, processes)
    return {
        "seeds": {"from": seeds, "reported": seeds == REPORTED_SEEDS},
        "noise": noise,
        "untuned": untuned,
        "runs": len(found),
        "shrink": {setup.value: case.scenario().shrink for setup, case in sorted({c.setup: c for c in told}.items())},
        **boundaries.summarise(found),
    }
