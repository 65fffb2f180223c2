"""The same runs under other settings: how much hangs on delta, and on how many ranks are watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.large.figures import summarise
from benchmarks.large.plan import LargeCase
from benchmarks.large.trial import LargeScore, judged
from benchmarks.simulated.figures import Figures
from offbeat.settings import Settings
from producers.simulation import LazyRun

_TOLD = ("top_k", "by_search", "named", "incidents", "healthy_without_incident", "iterations", "cost_s")
"""The figures that are compared."""


@dataclass(frozen=True, slots=True)
class Variation:
    """One setting with a value of its own, everything else as it is set."""

    name: str
    value: float
    settings: Settings


def variations(settings: Settings, deltas: Iterable[float], pivots: Iterable[int]) -> list[Variation]:
    """Settings with each delta of the monitor, and with each number of pivots."""
    by_delta = [
        Variation("delta", delta, settings.model_copy(update={"monitor": replace(settings.monitor, delta=delta)}))
        for delta in deltas
    ]
    return by_delta + [Variation("pivots", count, settings.model_copy(update={"pivots": count})) for count in pivots]


def judge_each(case: LargeCase, varied: Sequence[Variation]) -> list[LargeScore]:
    """The scores of one run, simulated once, under each setting."""
    return under_each(case, LazyRun(case.scenario()), varied)


def under_each(case: LargeCase, run: LazyRun, varied: Sequence[Variation]) -> list[LargeScore]:
    """The same of a run that is simulated already."""
    return [judged(case, run, one.settings) for one in varied]


def figures(varied: Sequence[Variation], scores: Iterable[Sequence[LargeScore]]) -> Mapping[str, Mapping[str, Figures]]:
    """By setting and value; ``scores`` has those of each run, in the order of ``varied``."""
    told: dict[str, dict[str, Figures]] = {}
    for one, of_value in zip(varied, zip(*scores, strict=True), strict=True):
        whole = summarise(of_value)
        told.setdefault(one.name, {})[f"{one.value:g}"] = {name: whole[name] for name in _TOLD}
    return told
