"""What was said of a run, beside its truth, by the definitions of Pulse 8.1.

A faulty node with the right kind of anomaly is a true positive. A normal node that is named, or the faulty one with
another kind, is a false one. A node is a host; whether the device is the right one is told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagnosis.job import Job
from producers.simulation.nic import Class, FaultTruth, Injection, NicTruth, Setup

RIGHT, CANDIDATES, GROUP, WRONG_CLASS, FALSE, HOT, NOT_HOT = (
    "right",
    "candidates",
    "group",
    "wrong_class",
    "false",
    "hot",
    "not_hot",
)
"""The faulty machine; as one of two, where no more can be told; within a group; of another kind; another. And of
nobody at fault: the machine whose experts get most, another one."""
NO_DEVICE = frozenset({HOT, NOT_HOT})

_CLASSES_OF = {
    "compute_slow": {Class.COMPUTATION_SLOW},
    "host_slow": {Class.COMPUTATION_SLOW},
    "communication_slow": {Class.COMMUNICATION_SLOW},
    "mixed_slow": {Class.COMPUTATION_SLOW, Class.COMMUNICATION_SLOW},  # the search through logs says so
    "hang_not_entered": {Class.COMPUTATION_STOP},
    "hang_hardware": {Class.COMMUNICATION_STOP},
}
_COMPUTES = {Class.COMPUTATION_SLOW, Class.COMPUTATION_STOP}
_OF_CPUS = {Injection.CPU_THROTTLING, Injection.CPU_CONTENTION}
_OF_NOBODY = "imbalance"

_PIPELINED = frozenset({Setup.GPT2_70B, Setup.GPT2_70B_DEEP})
"""Where a stage that waits cannot be told from one that computes, so that two candidates are allowed (D.4, D.5)."""

_CLOCKS_NS = 20_000_000
"""Hosts' clocks are off by less."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """An answer in short, and what it is worth. ``normal_hosts``: hosts without a fault that it names for one."""

    cause: str
    level: str
    ranks: tuple[int, ...]
    verdict: str
    normal_hosts: tuple[str, ...]
    device_right: bool


@dataclass(frozen=True, slots=True)
class FaultScore:
    """What was injected. ``slowdown``: of an iteration after its beginning over the same one without it; None where it
    hangs, or nothing was left to slow down."""

    injection: str
    kind: str
    severity: float
    ranks: tuple[int, ...]
    slowdown: float | None


def said_of(incident: Row, truth: NicTruth, job: Job, setup: Setup) -> Said:
    """An incident as an answer on the run's only fault, if it has one."""
    named = _hosts(incident["ranks"], job)
    fault = _whole(truth)
    routed = incident["cause"] == _OF_NOBODY
    verdict = _routed(incident, truth, job) if routed else _verdict(incident, fault, job, setup)
    innocent = named if fault is None or verdict in {FALSE, WRONG_CLASS} else named - _hosts(fault.ranks, job)
    counted = verdict not in NO_DEVICE and verdict != CANDIDATES
    return Said(
        cause=incident["cause"],
        level=incident["level"],
        ranks=tuple(incident["ranks"]),
        verdict=verdict,
        normal_hosts=tuple(sorted(innocent)) if counted else (),
        device_right=fault is not None and verdict == RIGHT and set(incident["ranks"]) <= set(fault.ranks),
    )


def _verdict(incident: Row, fault: FaultTruth | None, job: Job, setup: Setup) -> str:
    if fault is None or incident["opened_ns"] < fault.at_ns - _CLOCKS_NS:
        return FALSE
    named, own = _hosts(incident["ranks"], job), _hosts(fault.ranks, job)
    if not named & own:
        return FALSE
    if fault.kind not in _CLASSES_OF.get(incident["cause"], ()):
        return WRONG_CLASS
    if own == _hosts(job.ranks, job):  # whoever names some of them makes others look for what is wrong there
        return RIGHT if named == own else FALSE
    if named <= own:
        return RIGHT
    computes = fault.kind in _COMPUTES and fault.injection not in _OF_CPUS
    two = len(incident["candidates"] or ()) == 2 and len(named) == 2
    return CANDIDATES if computes and setup in _PIPELINED and two else GROUP


def _routed(incident: Row, truth: NicTruth, job: Job) -> str:
    """Whether experts of the machine that is named got most in the iterations that it is named for.

    Telemetry begins with the run, so that both number iterations alike.
    """
    if not len(truth.tokens):
        return NOT_HOT
    first, last = (min(incident[name] or 0, len(truth.tokens) - 1) for name in ("first_iteration", "last_iteration"))
    most = truth.hosts[int(truth.tokens[first : max(first, last) + 1].sum(axis=0).argmax())]
    return HOT if _hosts(incident["ranks"], job) == {most} else NOT_HOT


def _whole(truth: NicTruth) -> FaultTruth | None:
    """The fault, with the ranks of all places where it is."""
    if not truth.faults:
        return None
    ranks = sorted({rank for fault in truth.faults for rank in fault.ranks})
    return replace(truth.faults[0], ranks=tuple(ranks))


def fault_of(truth: NicTruth, without: NicTruth | None) -> FaultScore | None:
    """The run's fault, if it has one; ``without``: the truth of the same run without it, of one that does not hang."""
    fault = _whole(truth)
    if fault is None:
        return None
    slowdown = None if without is None else _slowdown(truth, without, fault.at_ns)
    return FaultScore(fault.injection, fault.kind, fault.severity, fault.ranks, slowdown)


def _slowdown(truth: NicTruth, without: NicTruth, at_ns: int) -> float | None:
    """Median over the iterations that begin after the fault; of one that begins in the last, of that."""
    ends, usual = (one.iteration_ends_ns.max(axis=1) for one in (truth, without))
    ratios = np.diff(ends) / np.diff(usual)
    after = ratios[ends[:-1] >= at_ns] if (ends[:-1] >= at_ns).any() else ratios[ends[1:] >= at_ns]
    return round(float(np.median(after)), 4) if len(after) else None


def _hosts(ranks: Iterable[int], job: Job) -> set[str]:
    return {job.clock(rank) for rank in ranks}
