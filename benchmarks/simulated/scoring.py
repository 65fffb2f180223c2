"""What was said of a run, beside the truth.

A fault must be named if it alone makes an iteration at least 10 % longer; naming one that bubbles absorb is as wrong
as naming a healthy device. What lies between is not scored. Devices that carry identical traffic form one set: the
set is to be named, no less and no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from benchmarks.simulated.detection import Detection, Row
from diagnosis.job import Job
from diagnosis.topology import are_switches
from producers.simulation.cluster import Cluster
from producers.simulation.fabric import Fabric
from producers.simulation.faults import Fault, Kind
from producers.simulation.scenario import Scenario
from producers.simulation.truth import ABSORBED, FaultTruth, Truth

TOP_K = 2
"""Holmes' default."""

REQUIRED, BETWEEN, HIDDEN = "required", "between", "absorbed"
NAMED, NARROWED, PART, MISSED = "named", "narrowed", "part", "missed"

_CARRYING = (Kind.NIC_SLOW, Kind.LINK_SLOW, Kind.NVLINK_SLOW, Kind.TOR_SLOW, Kind.SPINE_SLOW)
"""Faults of the devices that carry traffic, where a fabric is described."""


@dataclass(frozen=True, slots=True)
class FaultScore:
    """One fault and what was said of it.

    ``weight`` is required, between or absorbed. ``outcome``: an incident names the ranks of the fault's set
    (named), candidates of which the set is a part (narrowed), only a part of the set (part), or none does (missed).
    ``cause_right``: the incident names the very devices. ``named_ranks`` is how many ranks it names. ``shadowed``:
    whenever the fault costs time by itself, another one is at work as well. ``places`` are those of the fault's set
    in the rankings of the compared methods, from 1; None: not ranked.
    """

    kind: str
    pattern: str
    part: str
    rank: int
    inseparable: tuple[str, ...]
    iterations: tuple[int, int]
    slowdown: float
    positives: int
    weight: str
    outcome: str
    cause_right: bool
    named_ranks: int
    shadowed: bool
    places: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IterationScore:
    """Iterations that were called irregular and are (``hit``), are not (``false``), and those that were ``missed``.

    ``regular`` were rightly not called irregular. Iterations between positive and absorbed count nowhere.
    """

    hit: int
    false: int
    missed: int
    regular: int


@dataclass(frozen=True, slots=True)
class Said:
    """An incident in short. ``verdict``: right, wrong_cause, narrowed, part, between (not scored) or false."""

    cause: str
    level: str
    ranks: tuple[int, ...]
    devices: tuple[str, ...]
    iterations: tuple[int, int]
    confidence: float
    verdict: str


def score_faults(
    truth: Truth, job: Job, detection: Detection, shift: int, rankings: Mapping[str, Mapping[str, float]]
) -> tuple[FaultScore, ...]:
    """Every fault's score; ``shift`` as ``shift_of``."""
    incidents = list(detection.incidents.values())
    sets = device_sets(truth.scenario, {device for scores in rankings.values() for device in scores})
    return tuple(_score_fault(fault, truth, job, incidents, shift, sets, rankings) for fault in truth.faults)


def _score_fault(
    fault: FaultTruth,
    truth: Truth,
    job: Job,
    incidents: Sequence[Row],
    shift: int,
    sets: Mapping[str, frozenset[str]],
    rankings: Mapping[str, Mapping[str, float]],
) -> FaultScore:
    about = [row for row in incidents if _concerns(row, fault, job, shift)]
    verdicts = [(_naming(row, fault, job), row) for row in about]
    outcome, best = MISSED, None
    for kind in (NAMED, NARROWED, PART):
        fitting = [row for naming, row in verdicts if naming == kind]
        if fitting:
            outcome = kind
            best = min(fitting, key=lambda row: (not _devices_right(row, fault), len(row["ranks"])))
            break
    others = {i for other in truth.faults if other is not fault for i in other.iterations}
    return FaultScore(
        kind=fault.kind,
        pattern=fault.pattern,
        part=fault.part,
        rank=fault.rank,
        inseparable=fault.inseparable,
        iterations=(fault.iterations[0], fault.iterations[-1]),
        slowdown=round(median(fault.slowdowns), 4),
        positives=len(fault.positives),
        weight=weight(fault),
        outcome=outcome,
        cause_right=best is not None and _devices_right(best, fault),
        named_ranks=len(best["ranks"]) if best is not None else 0,
        shadowed=bool(fault.positives) and set(fault.positives) <= others,
        places={name: place(frozenset(fault.inseparable), scores, sets) for name, scores in rankings.items()},
    )


def score_incidents(truth: Truth, job: Job, detection: Detection, shift: int) -> tuple[Said, ...]:
    """Every incident with its verdict."""
    return tuple(_said(row, _verdict(row, truth.faults, job, shift)) for row in detection.incidents.values())


def score_iterations(truth: Truth, detection: Detection, shift: int) -> IterationScore:
    """How well irregular iterations were told from the others."""
    irregular = {iteration + shift for iteration in detection.irregular}
    positives = set(truth.positives)
    negatives = {i for i, slowdown in enumerate(truth.slowdowns) if slowdown < ABSORBED}
    return IterationScore(
        hit=len(irregular & positives),
        false=len(irregular & negatives),
        missed=len(positives - irregular),
        regular=len(negatives - irregular),
    )


def weight(fault: FaultTruth) -> str:
    """Whether a fault must be named."""
    if fault.positives:
        return REQUIRED
    return HIDDEN if max(fault.slowdowns) < ABSORBED else BETWEEN


def place(own: frozenset[str], scores: Mapping[str, float], sets: Mapping[str, frozenset[str]]) -> int | None:
    """Place of a set of devices: from 1, and of equal ones the last; None where nothing speaks against it."""
    of_set: dict[frozenset[str], float] = {}
    for device, score in scores.items():
        group = sets.get(device, frozenset({device}))
        of_set[group] = max(score, of_set.get(group, 0.0))
    mine = of_set.get(own, 0.0)
    return sum(score >= mine for score in of_set.values()) if mine > 0 else None


def device_sets(scenario: Scenario, devices: Collection[str]) -> dict[str, frozenset[str]]:
    """The set that each of some devices belongs to: those that carry identical traffic."""
    fabric = Fabric(Cluster(scenario))
    kinds = _CARRYING if scenario.fabric is not None else (Kind.NIC_SLOW,)
    sets: dict[str, frozenset[str]] = {}
    for kind in kinds:
        places = fabric.shape.spines if kind is Kind.SPINE_SLOW else scenario.world
        for rank in range(places):
            fault = Fault(kind, rank, iterations=(0,), factor=1.0)
            name = fabric.device(fault)
            if name in devices and name not in sets:
                alike = frozenset(fabric.inseparable(fault))
                sets |= dict.fromkeys(alike, alike)
    return sets


def shift_of(truth: Truth, job: Job, detection: Detection) -> int:
    """What to add to an iteration of the pipeline to get the truth's: inferred ones are counted from elsewhere."""
    began = (job.started_ns or 0) + np.cumsum([0, *truth.durations_ns[:-1]])
    seen = {iteration: min(row["start_ns"] for row in rows) for iteration, rows in detection.iterations.items()}
    if not seen:
        return 0
    return round(median(int(np.abs(began - at).argmin()) - iteration for iteration, at in seen.items()))


def _concerns(incident: Row, fault: FaultTruth, job: Job, shift: int) -> bool:
    """Whether an incident falls into a fault's time and names some of its ranks."""
    first, last = incident["first_iteration"] + shift, incident["last_iteration"] + shift
    in_time = first <= fault.iterations[-1] + 1 and last >= fault.iterations[0]  # a delay reaches the next iteration
    return in_time and bool(set(incident["ranks"]) & _ranks(fault.inseparable, job))


def _naming(incident: Row, fault: FaultTruth, job: Job) -> str | None:
    named, own = set(incident["ranks"]), _ranks(fault.inseparable, job)
    if are_switches(device["kind"] for device in incident["devices"]):
        # it names ranks whose traffic shows it, of spines not all that are below
        devices, slow = _devices(incident), set(fault.inseparable)
        return NAMED if devices == slow else NARROWED if devices > slow else None
    if named == own:
        return NAMED
    if named > own:
        return NARROWED if incident["candidates"] else None
    return PART if named < own and _leads_there(_devices(incident), fault) else None


def _leads_there(devices: set[str], fault: FaultTruth) -> bool:
    """Whether devices that are named for some ranks of a fault are its own, or what a single slow ToR makes slow: a
    healthy GPU on a slow host, or a NIC of all whose traffic a slow spine may take, sends people elsewhere.
    """
    below_tor = fault.kind == Kind.TOR_SLOW and all(name.startswith(("nic:", "link:")) for name in devices)
    return below_tor or not devices.isdisjoint(fault.inseparable)


def _devices_right(incident: Row, fault: FaultTruth) -> bool:
    return _devices(incident) == set(fault.inseparable)


def _verdict(incident: Row, faults: Iterable[FaultTruth], job: Job, shift: int) -> str:
    about = [fault for fault in faults if _concerns(incident, fault, job, shift) and weight(fault) != HIDDEN]
    namings = {_naming(incident, fault, job): fault for fault in about}
    if NAMED in namings:
        fault = namings[NAMED]
        if weight(fault) == BETWEEN:
            return BETWEEN
        return "right" if _devices_right(incident, fault) else "wrong_cause"
    return next((naming for naming in (NARROWED, PART) if naming in namings), "false")


def _said(incident: Row, verdict: str) -> Said:
    return Said(
        cause=incident["cause"],
        level=incident["level"],
        ranks=tuple(incident["ranks"]),
        devices=tuple(sorted(_devices(incident))),
        iterations=(incident["first_iteration"], incident["last_iteration"]),
        confidence=incident["confidence"],
        verdict=verdict,
    )


def _devices(incident: Row) -> set[str]:
    return {device["device"] for device in incident["devices"]}


def _ranks(devices: Iterable[str], job: Job) -> set[int]:
    """The ranks that some devices serve: of a switch all below it."""
    wanted = set(devices)
    return {rank for rank in job.ranks if not wanted.isdisjoint(_serving(rank, job))}


def _serving(rank: int, job: Job) -> Iterator[str]:
    """Names of the devices that serve a rank."""
    yield job.gpu(rank).device
    yield f"cpu:{job.place[rank].host}"
    yield from (device.device for device in job.carriers((rank,)))
    nics = [nic.device for nic in job.nics(rank)]
    yield from nics
    if job.topology is not None:
        for cable, tor in (pair for nic in nics for pair in job.topology.uplinks.get(nic, ())):
            yield from (cable, tor, *job.topology.spines.get(tor, ()))
