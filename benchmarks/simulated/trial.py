"""One run, from its seed to its score."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from benchmarks.simulated import rankings, scoring
from benchmarks.simulated.detection import Detection, Telemetry, detect
from benchmarks.simulated.plan import Case
from benchmarks.simulated.rankings import Ranking
from benchmarks.simulated.scoring import FaultScore, IterationScore, Said
from benchmarks.telemetry_bytes import everything
from offbeat.settings import Settings
from producers.simulation import SimulatedRun, simulate
from producers.simulation.scenario import Scenario
from producers.simulation.scenarios import Story

OURS = "delay attribution"
"""What the pipeline's own search is called beside Algorithm 1."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A run's job, and what its logs lack."""

    ranks: int
    tp: int
    pp: int
    dp: int
    ep: int
    microbatches: int
    without_labels: bool
    without_ends: bool
    cp: int = 1


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes on the bus: everything that all ranks log, what travelled unasked, what all searches asked for.

    ``fetched_share`` is, for each method, how many of the rows of the compared iterations and their baselines it
    fetched.
    """

    everything_bytes: int
    unasked_bytes: int
    answer_bytes: int
    fetched_share: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """What a finished run counts for."""

    seed: int
    story: str
    noise: str
    layout: Layout
    faults: tuple[FaultScore, ...]
    said: tuple[Said, ...]
    iterations: IterationScore
    searched: int
    traffic: Traffic
    detect_s: float

    @property
    def case(self) -> Case:
        """The run that it is the score of."""
        return Case(self.seed, Story(self.story), self.noise)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """What ``to_json`` gave; raises ``TypeError`` or ``KeyError`` for anything else."""
        faults = tuple(
            FaultScore(**{**f, "inseparable": tuple(f["inseparable"]), "iterations": _pair(f)}) for f in row["faults"]
        )
        said = tuple(
            Said(**{**s, "ranks": tuple(s["ranks"]), "devices": tuple(s["devices"]), "iterations": _pair(s)})
            for s in row["said"]
        )
        nested = {
            "layout": Layout(**row["layout"]),
            "faults": faults,
            "said": said,
            "iterations": IterationScore(**row["iterations"]),
            "traffic": Traffic(**row["traffic"]),
        }
        return cls(**{**row, **nested})


def run_case(case: Case, settings: Settings) -> Score:
    """Simulate a run, have the pipeline look at its telemetry, and hold the truth beside what it says."""
    return judged(case, simulate(case.scenario()), settings)


def judged(case: Case, run: SimulatedRun, settings: Settings) -> Score:
    """The score of a simulated run."""
    telemetry = Telemetry.of(run.job, run.table)
    started = time.perf_counter()
    detection = detect(telemetry, settings)
    detect_s = time.perf_counter() - started
    ranked = {OURS: rankings.by_findings(telemetry, detection, settings.search.locate)}
    if run.truth.faults:
        ranked |= rankings.by_algorithm_1(telemetry, detection, settings.search.locate)
    shift = scoring.shift_of(run.truth, run.job, detection)
    scores = {name: ranking.scores for name, ranking in ranked.items()}
    return Score(
        seed=case.seed,
        story=case.story.value,
        noise=case.noise,
        layout=layout_of(run.scenario),
        faults=scoring.score_faults(run.truth, run.job, detection, shift, scores),
        said=scoring.score_incidents(run.truth, run.job, detection, shift),
        iterations=scoring.score_iterations(run.truth, detection, shift),
        searched=len(detection.searched),
        traffic=_traffic(telemetry, detection, ranked),
        detect_s=round(detect_s, 3),
    )


def layout_of(scenario: Scenario) -> Layout:
    """A scenario's job, and what its logs lack."""
    degrees = {name: getattr(scenario, name) for name in ("tp", "pp", "dp", "cp", "ep", "microbatches")}
    omitted = scenario.omissions
    return Layout(scenario.world, **degrees, without_labels=omitted.labels, without_ends=omitted.ends)


def _traffic(telemetry: Telemetry, detection: Detection, ranked: Mapping[str, Ranking]) -> Traffic:
    return Traffic(
        everything_bytes=everything(telemetry.job, telemetry.table),
        unasked_bytes=detection.bytes.unasked,
        answer_bytes=detection.bytes.fetched,
        fetched_share={name: round(ranking.fetched_share, 5) for name, ranking in ranked.items()},
    )


def _pair(row: Mapping[str, Any]) -> tuple[int, int]:
    first, last = row["iterations"]
    return first, last
