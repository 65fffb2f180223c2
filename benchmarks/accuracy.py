"""Accuracy on simulated runs: what the pipeline names, beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when runs begin
    from benchmarks.simulated.plan import Case

REPORTED_SEEDS = 5000
"""Seeds from here on are for reported figures alone; whoever develops takes others."""

_TYPICAL_S = 20.0
"""What a run takes, for the first estimate."""


class System(StrEnum):
    """What is measured."""

    OPERATOR_GRAPH = "operator_graph"


class Noise(StrEnum):
    """Under which profiles of noise."""

    DEFAULT = "default"
    HARD = "hard"
    BOTH = "both"

    @property
    def profiles(self) -> tuple[str, ...]:
        """Their names."""
        return (Noise.DEFAULT.value, Noise.HARD.value) if self is Noise.BOTH else (self.value,)


def run(
    *,
    system: Annotated[System, typer.Option(help="Which system.")] = System.OPERATOR_GRAPH,
    runs: Annotated[int, typer.Option(min=0, help="Runs with faults, for each profile of noise.")] = 40,
    healthy: Annotated[int, typer.Option(min=0, help="Runs without, for each profile of noise.")] = 20,
    noise: Annotated[Noise, typer.Option(help="Profiles of noise.")] = Noise.BOTH,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed; reported figures begin at the default.")] = 5000,
    resume: Annotated[Path | None, typer.Option(help="A file that keeps finished runs; taken up again.")] = None,
    processes: Annotated[int, typer.Option(min=1, max=2, help="Runs at the same time.")] = 2,
) -> dict[str, Any]:
    """Name the culprits of simulated runs, and count what was right.

    Progress is told on stderr. Without noise a figure would mean little: each is split by its profile.
    """
    from benchmarks.simulated import figures, plan, workers
    from benchmarks.simulated.finished import Finished, version
    from benchmarks.simulated.trial import run_case
    from offbeat.settings import Settings

    settings = Settings.load()
    cases = plan.cases(runs, healthy, noise.profiles, seeds)
    finished = Finished(resume, version(settings))
    to_do = [case for case in cases if case not in finished.scores]
    _announce(to_do, finished.outdated, len(cases), processes)
    with terminal.progress("simulated runs", len(cases)) as shown:
        for score in workers.results(partial(run_case, settings=settings), to_do, processes):
            finished.add(score)
            shown.advance(len(finished.of(cases)))
    scores = finished.of(cases)
    return {
        "system": system.value,
        "seeds": {"from": seeds, "reported": seeds == REPORTED_SEEDS},
        "noise": {name: figures.summarise([s for s in scores if s.noise == name]) for name in noise.profiles},
    }


def _announce(to_do: Sequence[Case], outdated: int, total: int, processes: int) -> None:
    if outdated:
        terminal.note(f"{outdated} finished runs in the file are of other code or settings and are done again")
    minutes = len(to_do) * _TYPICAL_S / processes / 60
    terminal.note(f"{len(to_do)} of {total} runs to do, {processes} at a time: about {minutes:.0f} minutes")
