"""Whom the diagnosis names in a recorded job, beside whom the plan made slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.real_jobs.plan import Fault, Plan
from offbeat.diagnose import diagnose
from offbeat.reading import Reading
from offbeat.settings import Settings

_CAUSES = {"gpu": "compute_slow", "nic": "communication_slow"}


class Outcome(StrEnum):
    """Whom the incidents of a job name, all together, and for what."""

    ALONE = "alone"
    """The slow rank and nobody else."""
    AMONG = "among"
    """Ranks that the slow one is among, in every incident: they are not told apart."""
    OTHERS = "others"
    """In an incident at least only others, or it is of something else or of another time; of a healthy job: anybody."""
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
    fault = plan.fault
    if fault is None or not all(_is_of(fault, incident) for incident in told):
        return Outcome.OTHERS
    return Outcome.ALONE if all(incident["ranks"] == [fault.rank] for incident in told) else Outcome.AMONG


def _is_of(fault: Fault, incident: Mapping[str, Any]) -> bool:
    """Whether an incident is of a fault: of its rank, of its kind, and of some of its iterations."""
    first, last = incident["iterations"]
    in_time = any(first <= iteration <= last for iteration in fault.iterations)
    return in_time and fault.rank in incident["ranks"] and incident["cause"] == _CAUSES[fault.device]


def counted(judged: Sequence[Judged]) -> dict[str, int]:
    """How many jobs there are, and of each outcome."""
    counts = Counter(one.outcome for one in judged)
    return {"jobs": len(judged), **{str(each): counts[each] for each in Outcome}}
