"""Accuracy on simulated runs: what the pipeline names, beside the truth."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when runs begin
    from benchmarks.large.plan import LargeCase
    from benchmarks.large.trial import LargeScore
    from benchmarks.simulated.finished import Score
    from benchmarks.simulated.plan import Case
    from benchmarks.simulated.trial import Score as SmallScore
    from benchmarks.traffic.plan import Case as TrafficCase
    from benchmarks.traffic.trial import Score as TrafficScore
    from offbeat.settings import Settings

_Case = TypeVar("_Case", bound=Hashable)
_Score = TypeVar("_Score", bound="Score")

REPORTED_SEEDS = {"operator_graph": 8000, "like_ranks": 270_000, "holmes": 440_000, "pulse": 230_000}
"""Seeds from here on are for reported figures alone; whoever develops takes others. A seed draws the same job of
thousands of ranks at each size and under each profile of noise: where one was looked at, so were the others."""

_HEALTHY = {"operator_graph": 20, "like_ranks": 20, "holmes": 20, "pulse": 51}
"""Runs without a fault where nothing else is asked for."""

_TYPICAL_S = {"operator_graph": 20.0, "like_ranks": 20.0, "holmes": 150.0, "pulse": 22.0}
"""What a run takes, for the first estimate."""


class System(StrEnum):
    """What is measured: the search on jobs of up to 128 ranks, what is told of faults that are there from the first
    iteration on, the search on jobs of thousands, or NIC traffic."""

    OPERATOR_GRAPH = "operator_graph"
    LIKE_RANKS = "like_ranks"
    HOLMES = "holmes"
    PULSE = "pulse"


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
    runs: Annotated[
        int, typer.Option(min=0, help="Runs with faults, for each profile of noise; pulse has repeats.")
    ] = 40,
    healthy: Annotated[
        int | None, typer.Option(min=0, help="Runs without, for each profile of noise: 20, of pulse 51.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=0, help="Runs of each of pulse's combinations of fault and job.")] = 5,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS/SETUP/INJECTION", help="Of pulse's runs those whose name contains it; repeatable."),
    ] = None,
    untuned: Annotated[bool, typer.Option(help="Draw lines, channels, slices and slots of pulse's runs.")] = False,
    noise: Annotated[
        Noise, typer.Option(help="Profiles of noise; of both, pulse has one repeat of hard.")
    ] = Noise.BOTH,
    ranks: Annotated[int, typer.Option(min=256, help="Ranks of holmes' jobs; operator_graph draws 32 to 128.")] = 2048,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of holmes' runs; operator_graph has 60.")] = 160,
    all_logs: Annotated[int, typer.Option(min=0, help="Runs of holmes in which 3 sigma sees all logs: slow.")] = 0,
    seeds: Annotated[
        int | None, typer.Option(min=0, help="The first seed; without it that of the system's reported figures.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="A file that keeps finished runs; taken up again.")] = None,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="Only figures of what the file of --resume holds, whoever made it."),
    ] = False,
    processes: Annotated[int, typer.Option(min=1, max=2, help="Runs at the same time.")] = 2,
) -> dict[str, Any]:
    """Count how often culprits of simulated runs are named.

    Progress is told on stderr. Without noise a figure would mean little: each is split by its profile.
    """
    from offbeat.settings import Settings

    first = REPORTED_SEEDS[system] if seeds is None else seeds
    counts = (runs, _HEALTHY[system] if healthy is None else healthy, noise.profiles, first)
    settings = Settings.load()
    if system is System.HOLMES:
        series: Series[Any, Any] = _of_large_jobs(*counts, settings, ranks, iterations, all_logs)
    elif system is System.PULSE:
        series = _of_traffic(repeats, *counts[1:], settings, only or (), untuned)
    else:
        series = _of_small_jobs(system, *counts, settings)
    if finished:
        return {"system": system.value, "noise": series.finished(resume)}
    return {
        "system": system.value,
        "seeds": {"from": first, "reported": first == REPORTED_SEEDS[system]},
        **({"untuned": untuned} if system is System.PULSE else {}),
        "noise": series.figures(noise.profiles, settings, resume, processes),
    }


def _of_large_jobs(
    runs: int,
    healthy: int,
    noises: Sequence[str],
    seeds: int,
    settings: Settings,
    ranks: int,
    iterations: int,
    all_logs: int,
) -> Series[LargeCase, LargeScore]:
    from benchmarks.large import figures, plan, trial

    cases = plan.cases(runs, healthy, noises, seeds, ranks=ranks, iterations=iterations, all_logs=all_logs)
    work = partial(trial.run_case, settings=settings)
    return Series(System.HOLMES, cases, work, trial.LargeScore, figures.summarise)


def _of_traffic(
    repeats: int,
    healthy: int,
    noises: Sequence[str],
    seeds: int,
    settings: Settings,
    only: Sequence[str],
    untuned: bool,
) -> Series[TrafficCase, TrafficScore]:
    from benchmarks.traffic import figures, plan, trial

    cases = plan.cases(repeats, healthy, noises, seeds, only, untuned)
    return Series(System.PULSE, cases, partial(trial.run_case, settings=settings), trial.Score, figures.summarise)


def _of_small_jobs(
    system: System, runs: int, healthy: int, noises: Sequence[str], seeds: int, settings: Settings
) -> Series[Case, SmallScore]:
    from benchmarks.simulated import figures, plan, trial

    stories = plan.FROM_THE_BEGINNING if system is System.LIKE_RANKS else plan.STORIES
    cases = plan.cases(runs, healthy, noises, seeds, stories)
    return Series(system, cases, partial(trial.run_case, settings=settings), trial.Score, figures.summarise)


@dataclass(frozen=True)
class Series(Generic[_Case, _Score]):
    """Runs, what makes a score of one, and what makes figures of these."""

    system: System
    cases: Sequence[_Case]
    work: Callable[[_Case], _Score]
    kind: type[_Score]
    summarise: Callable[[Sequence[_Score]], Mapping[str, Any]]

    def figures(
        self, noises: Sequence[str], settings: Settings, resume: Path | None, processes: int
    ) -> dict[str, Mapping[str, Any]]:
        """Do what is not finished yet; the figures by profile of noise."""
        from benchmarks.simulated import workers
        from benchmarks.simulated.finished import Finished, version

        finished = Finished(resume, version(settings), self.kind)
        to_do = [case for case in self.cases if case not in finished.scores]
        self._announce(len(to_do), finished.outdated, processes)
        with terminal.progress("simulated runs", len(self.cases)) as shown:
            for score in workers.results(self.work, to_do, processes):
                finished.add(score)
                shown.advance(len(finished.of(self.cases)))
        return self._by_noise(finished.of(self.cases), noises)

    def finished(self, file: Path | None) -> dict[str, Mapping[str, Any]]:
        """Figures of the runs that a file holds, by profile of noise; raises ``SettingsError`` where it holds none."""
        from benchmarks.simulated.finished import kept

        scores = kept(file, self.kind)
        return self._by_noise(scores, sorted({score.noise for score in scores}))

    def _by_noise(self, scores: Sequence[_Score], noises: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        return {name: self.summarise([score for score in scores if score.noise == name]) for name in noises}

    def _announce(self, to_do: int, outdated: int, processes: int) -> None:
        if outdated:
            finished = terminal.counted(outdated, "finished run")
            terminal.note(f"to be done again, being of other code or settings: {finished} in the file")
        runs = terminal.counted(len(self.cases), "run")
        minutes = terminal.counted(round(to_do * _TYPICAL_S[self.system] / processes / 60), "minute")
        terminal.note(f"{to_do} of {runs} to do, {processes} at a time: about {minutes}")
