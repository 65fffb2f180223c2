"""The same runs under other settings: how much hangs on delta, and on how many ranks are watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from benchmarks.large.figures import summarise
from benchmarks.large.plan import LargeCase
from benchmarks.large.trial import LargeScore, judged
from benchmarks.simulated.figures import Figures
from offbeat.settings import Settings
from producers.simulation import LazyRun

_TOLD = (
    "top_k",
    "top_k_by_evidence",
    "by_search",
    "named",
    "incidents",
    "healthy_without_incident",
    "iterations",
    "cost_s",
)
"""The figures that are compared."""


@dataclass(frozen=True, slots=True)
class Variation:
    """One setting with a value of its own, everything else as it is set."""

    name: str
    value: float
    settings: Settings

    def of(self, case: LargeCase) -> VariedCase:
        """A run under this setting."""
        return VariedCase(self.name, self.value, case)


class VariedCase(NamedTuple):
    """A run under a setting, by the setting's name and value."""

    name: str
    value: float
    run: LargeCase


@dataclass(frozen=True, slots=True)
class VariedScore:
    """What a finished run under a setting counts for."""

    name: str
    value: float
    score: LargeScore

    @property
    def noise(self) -> str:
        """The profile of noise that it was under."""
        return self.score.noise

    @property
    def case(self) -> VariedCase:
        """What it is the score of."""
        return VariedCase(self.name, self.value, self.score.case)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"name": self.name, "value": self.value, "score": self.score.to_json()}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """What ``to_json`` gave; raises ``TypeError`` or ``KeyError`` for anything else."""
        return cls(row["name"], row["value"], LargeScore.from_json(row["score"]))


def variations(settings: Settings, deltas: Iterable[float], pivots: Iterable[int]) -> list[Variation]:
    """Settings with each delta of the monitor, and with each number of pivots."""
    by_delta = [
        Variation("delta", delta, settings.model_copy(update={"monitor": replace(settings.monitor, delta=delta)}))
        for delta in deltas
    ]
    return by_delta + [Variation("pivots", count, settings.model_copy(update={"pivots": count})) for count in pivots]


def judge_each(task: tuple[LargeCase, Sequence[Variation]]) -> list[VariedScore]:
    """The scores of one run, simulated once, under each setting."""
    case, varied = task
    return under_each(case, LazyRun(case.scenario()), varied)


def under_each(case: LargeCase, run: LazyRun, varied: Sequence[Variation]) -> list[VariedScore]:
    """The same of a run that is simulated already."""
    return [VariedScore(one.name, one.value, judged(case, run, one.settings)) for one in varied]


def of_scores(settings: Settings, scores: Iterable[VariedScore]) -> list[Variation]:
    """The settings that scores are of, by name and value."""
    values = {name: sorted({of.value for of in scores if of.name == name}) for name in ("delta", "pivots")}
    return variations(settings, values["delta"], map(int, values["pivots"]))


def by_noise(varied: Sequence[Variation], scores: Sequence[VariedScore]) -> dict[str, Mapping[str, Any]]:
    """Figures of each profile of noise that there are scores of."""
    profiles = sorted({of.noise for of in scores})
    return {name: figures(varied, (of for of in scores if of.noise == name)) for name in profiles}


def figures(varied: Sequence[Variation], scores: Iterable[VariedScore]) -> Mapping[str, Mapping[str, Figures]]:
    """By setting and value."""
    scores = list(scores)
    told: dict[str, dict[str, Figures]] = {}
    for one in varied:
        whole = summarise([of.score for of in scores if (of.name, of.value) == (one.name, one.value)])
        told.setdefault(one.name, {})[f"{one.value:g}"] = {name: whole[name] for name in _TOLD}
    return told
