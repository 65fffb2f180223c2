"""When an incident is over: a method says that one of its runs is, or everything, and none goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnosis.incidents import spans
from diagnosis.incidents.evidence import Evidence, Incident, hangs
from diagnosis.incidents.memory import Memory
from diagnosis.irregularity.run import DEGRADATION


def is_about(over: Evidence, incident: Incident) -> bool:
    """Whether a cleared finding is about an incident: what names ranks is about theirs alone, and a hang that is over
    about hangs.
    """
    if hangs(over.cause) and not hangs(incident.cause):
        return False
    return not over.ranks or not set(over.ranks).isdisjoint(incident.ranks)


def after_clearing(incident: Incident, over: Evidence, memory: Memory, comparable: float) -> Incident:
    """An open incident after its run, or all that the method said of it, is over.

    The run's last word counts: not every iteration of it was searched, nor its pattern known from the first. But
    where others alone explain what searches have found since, the run goes on without the incident's culprit.
    """
    if over.first_iteration is not None:
        if spans.run_of(over) not in incident.runs:
            return incident
        incident = _run_told(incident, over, memory, comparable)
    if not _ends(over, incident) or any(_goes_on(incident, method, memory.findings) for method in incident.methods):
        return incident
    return replace(incident, state="resolved", resolved_ns=over.found_ns, revision=incident.revision + 1)


def _run_told(incident: Incident, over: Evidence, memory: Memory, comparable: float) -> Incident:
    run, runs = spans.run_of(over), dict(incident.runs)
    of_run = [known for known in memory.told(incident) if spans.run_of(known) == run]
    if not of_run or not spans.is_taken_over(of_run[-1], memory.findings, comparable):
        runs[run] = spans.whole(runs[run], over)
    pattern = spans.pattern(incident.pattern, over.pattern)
    return replace(incident, runs=runs, pattern=pattern, period=over.period or incident.period)


def _ends(over: Evidence, incident: Incident) -> bool:
    """Whether it says that an incident is over: that of spikes ends with no run of them."""
    if over.active or not is_about(over, incident):
        return False
    run_of_it = incident.pattern == DEGRADATION and spans.run_of(over) in incident.runs
    return over.first_iteration is None or run_of_it


def _goes_on(incident: Incident, method: str, findings: Sequence[Evidence]) -> bool:
    """Whether a method's last word on an incident, of what is remembered, is that it found it."""
    words = [
        known
        for known in findings
        if known.method == method and (known.id in incident.findings or _ends(known, incident))
    ]
    return bool(words) and words[-1].active
