"""Whom the diagnosis names in a recorded job, beside whom the plan made slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.real_jobs.plan import Plan
from offbeat.diagnose import diagnose
from offbeat.reading import Reading
from offbeat.settings import Settings


class Outcome(StrEnum):
    """Whom the incidents of a job name, all together."""

    ALONE = "alone"
    """The slow rank and nobody else."""
    AMONG = "among"
    """Ranks that the slow one is among, in every incident: they are not told apart."""
    OTHERS = "others"
    """In an incident at least only others; of a healthy job: anybody."""
    NOBODY = "nobody"
    """Nobody; of a healthy job that is right."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One job. ``told``: its incidents, as ``offbeat diagnose --json`` shows them."""

    plan: Plan
    outcome: Outcome
    told: Sequence[Mapping[str, Any]]

    @property
    def right(self) -> bool:
        """Whether exactly the slow rank is named, or nobody where none is slow."""
        return self.outcome is (Outcome.NOBODY if self.plan.fault is None else Outcome.ALONE)

    def to_dict(self) -> dict[str, Any]:
        """The job as a row of figures."""
        fault = self.plan.fault
        shown = ("cause", "ranks", "iterations", "confidence")
        return {
            "job": self.plan.name,
            "slow": None if fault is None else fault.rank,
            "outcome": self.outcome,
            "named": [{name: incident[name] for name in shown} for incident in self.told],
        }


def judge(plan: Plan, folder: Path) -> Judged:
    """Diagnose what the ranks logged. Raises ``InputError`` where that cannot be read."""
    told = diagnose([folder], Reading(), Settings()).answer["incidents"]
    return Judged(plan, outcome(plan, told), told)


def outcome(plan: Plan, told: Sequence[Mapping[str, Any]]) -> Outcome:
    """Whom these incidents name."""
    if not told:
        return Outcome.NOBODY
    slow = None if plan.fault is None else plan.fault.rank
    if any(slow not in incident["ranks"] for incident in told):
        return Outcome.OTHERS
    return Outcome.ALONE if all(incident["ranks"] == [slow] for incident in told) else Outcome.AMONG


def counted(judged: Sequence[Judged]) -> dict[str, int]:
    """How many jobs there are, and of each outcome."""
    counts = Counter(one.outcome for one in judged)
    return {"jobs": len(judged), **{str(each): counts[each] for each in Outcome}}
