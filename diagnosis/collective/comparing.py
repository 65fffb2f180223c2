"""Judging a job's iterations and comparing the ranks of those that are slow (Pulse 6.2, 7.2.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from diagnosis.collective.course import Iteration
from diagnosis.collective.everywhere import all_computing_longer, computed_by_host
from diagnosis.collective.grid import REMEMBERED, ComparisonRules, Grid, Usual, Work, grids
from diagnosis.collective.hangs import localise_hang
from diagnosis.collective.localise import localise_slow
from diagnosis.collective.participation import Participation
from diagnosis.collective.silent_sends import SilentSends
from diagnosis.collective.stages import Stages, of_layout, of_traffic
from diagnosis.collective.stragglers import Metric
from diagnosis.collective.verdict import Verdict
from diagnosis.collective.weight import lost_ns, prolonged_ns
from diagnosis.irregularity.monitor import IterationMonitor, Judgement
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import Job

_LEAST_RATES = 3
"""Regular iterations before a rank's rate is usual."""

_MOST_ANSWERS = 100
"""Different ones on a run that are told."""

_PART = 0.1
"""Part of an iteration's excess that a culprit accounts for at least."""

_USUAL = ("duration", "actual", "rate", "computed")

SLOW = MonitorSettings(delta=1.03, least_baseline=3, warm_up=0)
"""An iteration is slow from 3 % on. Ranks are compared with each other, so that few iterations are enough of a past."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What one iteration came to; ``ordinal``: how many of the run that it belongs to have shown the same culprits by
    now, or like it none."""

    iteration: Iteration
    judgement: Judgement
    verdicts: tuple[Verdict, ...]
    ordinal: int


@dataclass
class Comparer:
    """One job. Iterations of which nothing tells whether they are slow, the first ones, are compared as well.

    ``stages``: the pipelines that the traffic of a job has shown which does not tell its layout. ``run``: the first
    iteration of the run that goes on, and ``shown`` in how many of it which culprits show. ``sends``: those of hosts of
    which one is busy.
    """

    rules: ComparisonRules
    metric: Metric
    monitor: IterationMonitor
    usual: deque[Usual] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    stages: list[Stages] = field(default_factory=list)
    run: int | None = None
    shown: dict[str, int] = field(default_factory=dict)
    sends: SilentSends = field(default_factory=SilentSends)

    def judge(self, iteration: Iteration, job: Job) -> Compared:
        """Take the next iteration in."""
        duration = iteration.duration_ns
        own = grids(iteration.table)
        verdicts: list[Verdict] = []
        if not self.stages and of_layout(job) is None:
            self.stages = of_traffic(own, iteration.table, job)
        if self.monitor.expected_ns is None and duration is not None:
            verdicts = self._slow(iteration, own, job, None, (self.monitor.settings.delta - 1.0) * duration)
        at_fault = bool(_at_fault(verdicts))
        # what is slow from the beginning is not usual, and must not become so
        judgement = self.monitor.judge(iteration.number, None if at_fault else duration)
        if at_fault:
            self.monitor.await_quiet()
        if judgement.irregular and duration is not None and judgement.expected_ns is not None:
            excess = duration - judgement.expected_ns
            usual = merged(self.usual)
            everywhere = self._everywhere(iteration, own, job, usual, duration, judgement.expected_ns)
            all_ns = max((verdict.evidence["lost_ns"] for verdict in everywhere), default=0.0)
            verdicts = self._slow(iteration, own, job, usual, _PART * excess, all_ns)
            if not _at_fault(verdicts):
                verdicts += everywhere
        elif not at_fault:
            self.usual.append(Usual.of(own, self._computed(iteration, own, job)))
            self.sends.learn(iteration.number, iteration.span, iteration.table, job)
        return Compared(iteration, judgement, tuple(verdicts), self._ordinal(judgement, verdicts))

    def _ordinal(self, judgement: Judgement, verdicts: Sequence[Verdict]) -> int:
        """Answers beyond those that are remembered have none: 0."""
        run = None if judgement.run is None else judgement.run.first
        if run != self.run:
            self.run, self.shown = run, {}
        culprits = " ".join(sorted(f"{verdict.cause}{verdict.ranks}" for verdict in _at_fault(verdicts)))
        if culprits not in self.shown and len(self.shown) >= _MOST_ANSWERS:
            return 0
        self.shown[culprits] = self.shown.get(culprits, 0) + (judgement.irregular is True)
        return self.shown[culprits]

    def to_state(self) -> dict[str, Any]:
        """What a restart needs, in a form that JSON can carry."""
        usual = [
            {name: [[list(key), value] for key, value in getattr(one, name).items()] for name in _USUAL}
            for one in self.usual
        ]
        return {
            "monitor": self.monitor.to_state(),
            "usual": usual,
            "stages": self.stages,
            "run": self.run,
            "shown": self.shown,
            "sends": self.sends.to_state(),
        }

    @classmethod
    def from_state(
        cls, rules: ComparisonRules, metric: Metric, slow: MonitorSettings, state: Mapping[str, Any]
    ) -> Comparer:
        """The comparer that ``to_state`` described."""
        usual = [
            Usual(**{name: {tuple(key): value for key, value in one[name]} for name in _USUAL})
            for one in state["usual"]
        ]
        monitor = IterationMonitor.from_state(state["monitor"], slow)
        stages = [tuple(ranks) for ranks in state["stages"]]
        past = deque(usual, maxlen=REMEMBERED)
        sends = SilentSends.from_state(state["sends"])
        return cls(rules, metric, monitor, past, stages, state["run"], dict(state["shown"]), sends)

    def hang(self, table: Participation, job: Job) -> list[Verdict]:
        """Who keeps operators from ending."""
        stages = self._pipelines(job)
        if not stages and of_layout(job) is None:
            stages = of_traffic(grids(table), table, job)
        return localise_hang(table, job, stages, self.rules)

    def _pipelines(self, job: Job) -> list[Stages]:
        told = of_layout(job)
        return self.stages if told is None else told

    def _slow(
        self,
        iteration: Iteration,
        own: Sequence[Grid],
        job: Job,
        usual: Usual | None,
        least_ns: float,
        all_ns: float = 0.0,
    ) -> list[Verdict]:
        """Who is at fault, of those who cost the iteration enough; ``own``: its grids.

        Who computes too long has to cost more than ``all_ns``, by which all ranks compute longer. Communication need
        not: whoever waits for the ranks of its host that it holds up seems to compute as well.
        """
        verdicts = localise_slow(iteration.table, job, self._pipelines(job), usual, self.rules, self.metric)
        about = iteration.number, iteration.span, iteration.table, job
        verdicts = [self.sends.narrowed(v, *about) if v.cause == "host_slow" else v for v in verdicts]
        least = {"compute_slow": max(least_ns, all_ns)}
        return [v for v in verdicts if lost_ns(v, own, usual, iteration.span) >= least.get(v.cause, least_ns)]

    def _everywhere(
        self,
        iteration: Iteration,
        own: Sequence[Grid],
        job: Job,
        usual: Usual | None,
        lasted_ns: float,
        expected_ns: float,
    ) -> list[Verdict]:
        """All ranks, if all compute for longer than usual."""
        computed, before = self._computed(iteration, own, job), {} if usual is None else usual.computed
        communicated_ns = prolonged_ns(own, usual)
        return all_computing_longer(computed, before, job, lasted_ns, expected_ns, iteration.span, communicated_ns)

    def _computed(self, iteration: Iteration, own: Sequence[Grid], job: Job) -> dict[Work, float]:
        return computed_by_host(iteration.table, own, job, self._pipelines(job))


def _at_fault(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.cause != "imbalance"]


def merged(past: Sequence[Usual]) -> Usual | None:
    """What is usual by several iterations: the median of each. Of few nobody's rate is: it varies more."""
    if not past:
        return None
    found = Usual(*(_medians([getattr(one, name) for one in past]) for name in _USUAL))
    return found if len(past) >= _LEAST_RATES else replace(found, rate={})


def _medians(past: Sequence[Mapping[Any, float]]) -> dict[Any, float]:
    return {key: median(one[key] for one in past if key in one) for key in {k: None for one in past for k in one}}
