"""One run, from its seed to its score."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from benchmarks.simulated.detection import Telemetry
from benchmarks.simulated.detection import detect as detect_in_logs
from benchmarks.traffic.detection import revisions
from benchmarks.traffic.plan import Case
from benchmarks.traffic.scoring import FaultScore, Said, fault_of, said_of
from offbeat.settings import Settings
from producers.simulation.nic import simulate_nics
from producers.simulation.nic.scenarios import Setup

_TUPLES = ("ranks", "normal_hosts")
"""Fields of an answer that a file has as lists."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a finished run counts for. ``hosts``: how many it has; ``said``: its answers as they stand at the end,
    ``at_first``: as people were told first; ``beside``: what the search through logs of operators says of the same run.
    """

    seed: int
    what: str
    noise: str
    untuned: bool
    hosts: int
    fault: FaultScore | None
    said: tuple[Said, ...]
    at_first: tuple[Said, ...]
    beside: tuple[Said, ...]
    simulate_s: float
    detect_s: float

    @property
    def case(self) -> Case:
        """The run that it is the score of."""
        return Case(self.seed, self.what, self.noise, self.untuned)

    @property
    def setup(self) -> Setup:
        """What ran."""
        return self.case.setup

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """What ``to_json`` gave; raises ``TypeError`` or ``KeyError`` for anything else."""
        fault = None if row["fault"] is None else FaultScore(**{**row["fault"], "ranks": tuple(row["fault"]["ranks"])})
        answers = {
            name: tuple(Said(**{**one, **{of: tuple(one[of]) for of in _TUPLES}}) for one in row[name])
            for name in ("said", "at_first", "beside")
        }
        return cls(**{**row, "fault": fault, **answers})


def run_case(case: Case, settings: Settings) -> Score:
    """Simulate a run, have the pipeline look at its telemetry, and hold the truth beside what it says.

    The search through logs of operators takes an iteration for slow when the comparison of traffic does, since runs
    are short; nothing else of it is tuned.
    """
    started = time.perf_counter()
    scenario = case.scenario()
    run = simulate_nics(scenario)
    slower = run.truth.faults and not run.truth.hung
    without = simulate_nics(replace(scenario, faults=())).truth if slower else None
    messages = list(run.messages())
    simulated = time.perf_counter()
    incidents = revisions(run.job, messages, settings)
    detected = time.perf_counter()
    logs = settings.model_copy(update={"monitor": settings.compare.slow})
    beside = detect_in_logs(Telemetry.of(run.job, run.operators), logs).incidents.values()
    return Score(
        seed=case.seed,
        what=case.what,
        noise=case.noise,
        untuned=case.untuned,
        hosts=run.scenario.hosts,
        fault=fault_of(run.truth, without),
        said=tuple(said_of(as_told[-1], run.truth, run.job, case.setup) for as_told in incidents),
        at_first=tuple(said_of(as_told[0], run.truth, run.job, case.setup) for as_told in incidents),
        beside=tuple(said_of(incident, run.truth, run.job, case.setup) for incident in beside),
        simulate_s=round(simulated - started, 2),
        detect_s=round(detected - simulated, 2),
    )
