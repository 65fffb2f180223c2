"""The answer of a diagnosis: gathered from what the pipeline publishes, in the shape that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, median_low
from typing import Any, NamedTuple

from diagnosis.incidents.evidence import Evidence
from diagnosis.incidents.joining import JoiningSettings, Rule, held_back
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import Job
from diagnosis.partial_logs import PartialLog
from diagnosis.standstill import Standstill
from offbeat.terminal import counted
from schemas import catalogue
from schemas.message import Message, decode
from schemas.topic import Topic
from sinks.webhook.content import ranges
from streams.traffic_rows import METHOD as BY_TRAFFIC

Row = Mapping[str, Any]

_MOST_UNTOLD = 3

_OF_DEVICES = {"compute_slow", "communication_slow", "mixed_slow"}


class Measured(NamedTuple):
    """By which rule and numbers a finding came about."""

    rule: str
    measures: dict[str, float]


@dataclass
class Gathered:
    """Listens to one job's pipeline: how long its iterations took, findings, and each incident's newest revision.

    A processor that publishes nothing. ``on_iteration`` is called with the number of iterations told of so far,
    ``on_incident`` with each record of an incident. ``judged`` are the iterations with a verdict, regular or
    ``irregular``. ``refused`` holds why messages went to dead_letters: an answer that rests on part of the telemetry
    must say so. ``measured`` are the findings whose method tells what it decided by, by their ids. What findings by NIC
    traffic tell of iterations: ``passed`` are the first ones, up to the newest that was judged, None before any was;
    ``slow`` those of slow runs; ``traffic_over``: all of the traffic is judged.
    """

    on_iteration: Callable[[int], None] = lambda _: None
    on_incident: Callable[[Row], None] = lambda _: None
    durations_ns: dict[int, int | None] = field(default_factory=dict)
    judged: set[int] = field(default_factory=set)
    irregular: set[int] = field(default_factory=set)
    pauses_ns: dict[int, int] = field(default_factory=dict)
    findings: list[Evidence] = field(default_factory=list)
    incidents: dict[str, Row] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    measured: dict[str, Measured] = field(default_factory=dict)
    passed: int | None = None
    slow: set[int] = field(default_factory=set)
    traffic_over: bool = False

    name = "answer"
    reads: tuple[Topic, ...] = (
        catalogue.ITERATIONS,
        catalogue.FINDINGS,
        catalogue.INCIDENTS,
        catalogue.DEAD_LETTERS,
    )
    writes: tuple[Topic, ...] = ()

    def process(self, message: Message) -> Iterable[Message]:
        if message.topic == catalogue.ITERATIONS.name:
            self._take_iteration(decode(message, catalogue.ITERATIONS).to_pylist())
        elif message.topic == catalogue.FINDINGS.name:
            rows = decode(message, catalogue.FINDINGS).to_pylist()
            self.findings += map(Evidence.from_row, rows)
            self._take_findings(rows)
        elif message.topic == catalogue.INCIDENTS.name:
            for row in decode(message, catalogue.INCIDENTS).to_pylist():
                self.incidents[row["id"]] = row
                self.on_incident(row)
        else:
            self.refused += decode(message, catalogue.DEAD_LETTERS).column("reason").to_pylist()
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def _take_iteration(self, rows: list[dict[str, Any]]) -> None:
        """One iteration as each pivot saw it; the job's ranks move in lockstep, so the median is the iteration's."""
        iteration = rows[0]["iteration"]
        known = [row["duration_ns"] for row in rows if row["duration_ns"] is not None]
        pause_ns = rows[0]["pause_ns"]
        if pause_ns is not None:
            self.pauses_ns[iteration] = pause_ns
        self.durations_ns[iteration] = median_low(known) - (pause_ns or 0) if known else None
        if rows[0]["irregular"] is not None:
            self.judged.add(iteration)
        if rows[0]["irregular"]:
            self.irregular.add(iteration)
        self.on_iteration(len(self.durations_ns))

    def _take_findings(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["measures"] is not None:
                self.measured[row["id"]] = Measured(row["rule"], {one["name"]: one["value"] for one in row["measures"]})
            if row["method"] == BY_TRAFFIC:
                self.passed = max(self.passed or 0, row["iteration"] + 1)
                self.traffic_over |= bool(row["last"])
                if row["pattern"] is not None:
                    self.slow |= set(range(row["first_iteration"], row["last_iteration"] + 1))

    def last_measured(self, incident: Row) -> Measured | None:
        """What the newest of an incident's findings was decided by; None: their methods do not tell."""
        return next((self.measured[one] for one in reversed(incident["findings"]) if one in self.measured), None)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What it takes to say something: regular iterations before one is judged, and what opens an incident.

    ``regular_before`` is None where no operators were logged: ranks are compared by NIC traffic from the first
    iteration on.
    """

    regular_before: int | None
    joining: JoiningSettings

    @classmethod
    def of(cls, monitor: MonitorSettings, joining: JoiningSettings, *, of_operators: bool = True) -> Verdicts:
        """Under these settings."""
        baseline = max(1, min(monitor.least_baseline, monitor.window))
        return cls(monitor.warm_up + baseline if of_operators else None, joining)


def as_json(
    job: Job,
    gathered: Gathered,
    verdicts: Verdicts,
    *,
    ranks_seen: Collection[int],
    lines_read: int,
    lost_lines: int,
    untold: Sequence[str] = (),
    partial: Sequence[PartialLog] = (),
    silent_ns: int | None = None,
    stands: Standstill | None = None,
) -> dict[str, Any]:
    """The answer as one JSON object; what is not known is null.

    ``notes`` say why nothing was found although something may be wrong: without incidents and without notes nothing
    is. Beside incidents they say what these may be instead. ``lines_read`` counts the operators and calls that were
    read. ``untold``: what hosts did not record, a line each; ``partial``: ranks that logged a part of the iterations
    alone. What is a hang unless the job was over: ``silent_ns``, for how long nothing was called in the end, and
    ``stands``, whom all ranks wait for there.
    """
    seen = {"ranks_seen": len(ranks_seen), "ranks_expected": len(job.ranks)}
    lines = {"lines_read": lines_read, "lost_lines": lost_lines}
    coverage = {**seen, **lines, "partial": list(map(_partial, partial)), "untold": list(untold)}
    of_operators = verdicts.regular_before is not None
    missing = set(job.ranks).difference(ranks_seen)
    notes = _notes(job, gathered, verdicts, missing=missing, partial=partial)
    if silent_ns is not None and not gathered.incidents:
        notes.insert(0, _silence_note(silent_ns, untold))
    if stands is not None and not gathered.incidents:
        notes.insert(0, _standstill_note(stands))
    if _may_share_a_host(job, gathered.incidents.values()):
        notes.append(
            "several of the incidents may be one slow host: which ranks share one is not known; give hosts in job.json"
        )
    return {
        "job": job.job,
        "layout": _layout(job),
        "iterations": _iterations(gathered) if of_operators else _iterations_by_traffic(gathered),
        "coverage": coverage,
        "incidents": [_with_rule(row, gathered) for row in gathered.incidents.values()],
        "notes": notes,
    }


def _iterations(gathered: Gathered) -> dict[str, Any]:
    durations = [ns for ns in gathered.durations_ns.values() if ns is not None]
    return {
        "count": len(gathered.durations_ns),
        "judged": len(gathered.judged),
        "median_ms": round(median(durations) / 1e6, 3) if durations else None,
        "irregular": sorted(gathered.irregular),
        "pauses": [{"after": after, "ms": round(ns / 1e6, 3)} for after, ns in sorted(gathered.pauses_ns.items())],
    }


def _iterations_by_traffic(gathered: Gathered) -> dict[str, Any]:
    """Findings alone tell of iterations: how many passed, and which were slow, not how long the others took."""
    passed = gathered.passed
    return {"count": passed, "judged": passed, "median_ms": None, "irregular": sorted(gathered.slow), "pauses": []}


def _with_rule(incident: Row, gathered: Gathered) -> dict[str, Any]:
    decided = gathered.last_measured(incident)
    rule, measures = (None, None) if decided is None else decided
    return {**incident_json(incident), "rule": rule, "measures": measures}


def _partial(log: PartialLog) -> dict[str, Any]:
    return {"ranks": list(log.ranks), "iterations": None if log.first is None else [log.first, log.last]}


def _notes(
    job: Job, gathered: Gathered, verdicts: Verdicts, *, missing: set[int], partial: Sequence[PartialLog]
) -> list[str]:
    if gathered.incidents:
        return []
    notes = [_few_iterations_note(gathered, verdicts.regular_before, nobody=len(missing) == len(job.ranks))]
    irregular = gathered.irregular | gathered.slow
    if irregular and missing:
        notes.append(f"slow at times, and nobody could be named: there is no telemetry of {_of_ranks(missing)}")
    elif irregular:
        rule = held_back(gathered.findings, verdicts.joining, len(job.ranks), len(job.spines))
        why = _why_held_back(rule, verdicts.joining)
        if partial:
            of = _of_ranks([rank for log in partial for rank in log.ranks])
            why += f"; and the log of {of} covers a part of the iterations alone"
        notes.append(f"slow at times, and nobody could be named: {why}")
    return [note for note in notes if note is not None]


def _may_share_a_host(job: Job, incidents: Iterable[Row]) -> bool:
    """Whether devices of ranks whose hosts are not known were slow at the same time, as those of a slow host are."""
    unplaced = {place.rank for place in job.places if place.host is None}
    spans = sorted(
        (row["first_iteration"], row["last_iteration"])
        for row in incidents
        if row["cause"] in _OF_DEVICES and row["last_iteration"] is not None and unplaced.issuperset(row["ranks"])
    )
    return any(began <= last for (_, last), (began, _) in pairwise(spans))


def _silence_note(silent_ns: int, untold: Sequence[str]) -> str:
    why = f"; {'; '.join(untold[:_MOST_UNTOLD])}" if untold else ""
    return (
        f"no rank called anything in the last {silent_ns / 1e9:.0f} s, while NICs were polled: the job hangs, unless "
        f"it was over, and nobody could be named{why}"
    )


def _standstill_note(stands: Standstill) -> str:
    operator, wait, whom = stands.operator, counted(len(stands.waiting), "rank"), _of_ranks(stands.awaited)
    return (
        f"the log ends while {wait} wait for {whom}, not known to have called the {operator.op} of "
        f"{operator.communicator} in iteration {stands.iteration} that rank {operator.rank} called: a hang, unless the "
        "log was copied or the job stopped just then"
    )


def _of_ranks(ranks: Collection[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(sorted(ranks))}"


def _few_iterations_note(gathered: Gathered, regular_before: int | None, *, nobody: bool) -> str | None:
    """Why too little was seen to tell anything, as where it was seen of ``nobody``; None: enough was."""
    if regular_before is None and nobody:
        return "nothing can be told: of no rank were calls, queue pairs and epochs recorded"
    if gathered.traffic_over and (gathered.passed or 0) >= 2:
        return None
    if regular_before is None and not gathered.traffic_over:
        return "too little was polled to tell whether anything is wrong"
    if regular_before is None:
        return "too few iterations to tell whether anything is wrong: NICs showed no two whole ones"
    judged, count = len(gathered.judged), len(gathered.durations_ns)
    if count and all(duration_ns is None for duration_ns in gathered.durations_ns.values()):
        return "nothing can be told: of no iteration is it known how long it took"
    if judged < regular_before:
        return (
            f"too few iterations to tell whether anything is wrong: {judged} of {count} could be judged; "
            f"{regular_before} regular ones come before the first that can be"
        )
    return None


def _why_held_back(rule: Rule | None, joining: JoiningSettings) -> str:
    """Why findings made no incident; docs/operations.md says what to do."""
    match rule:
        case None:
            return "no search found a culprit"
        case Rule.MOMENTARY:
            faint = "what culprits alone explain of its spikes hardly stands out of what regular iterations scatter"
            return f"{faint} (prominence), and nobody is named in so many that it is no chance (chance)"
        case Rule.CONFIRMATIONS:
            return f"it takes findings on {counted(joining.confirmations, 'iteration')} that agree (confirmations)"
        case Rule.AGREEMENT:
            least = f"{joining.agreement:.0%} of the iterations that were searched meanwhile (agreement)"
            return f"findings that agree are on less than {least}"
        case Rule.CONFIDENCE:
            return f"findings that agree leave more doubt than {joining.least_confidence:g} allows (least_confidence)"
        case Rule.LASTING:
            return "all ranks were slow together, or some had more to do, and it did not last: nobody's fault"


def incident_json(row: Row) -> dict[str, Any]:
    """A record of analysis.incidents as the answer shows it."""
    lost = row["lost_gpu_seconds"]
    return {
        "id": row["id"],
        "cause": row["cause"],
        "level": row["level"],
        "ranks": row["ranks"],
        "candidates": row["candidates"],
        "devices": [device["device"] for device in row["devices"]],
        "iterations": [row["first_iteration"], row["last_iteration"]],
        "pattern": row["pattern"],
        "period": row["period"],
        "confidence": row["confidence"],
        "lost_gpu_seconds": None if lost is None else round(lost, 3),
        "stage": row["stage"],
        "network": row["network"],
        "methods": row["methods"],
        "explanation": row["explanation"],
    }


def _layout(job: Job) -> dict[str, Any] | None:
    if job.layout is None:
        return None
    degrees = {name: getattr(job.layout, name) for name in ("tp", "pp", "dp")}
    more = {name: degree for name in ("cp", "ep") if (degree := getattr(job.layout, name)) not in {None, 1}}
    return {**degrees, **more, "source": job.layout.source}
