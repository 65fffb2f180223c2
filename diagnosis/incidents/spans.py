"""What of a run of irregular iterations is a culprit's: from where to where, and what it has cost the job.

Runs are searched now and then. A culprit that was first found on a step of its run came on top of what else was slow.
Another one may take over: then the first one's part ends with the last search that found it, and the other's begins
after the last one that was explained without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from diagnosis.incidents.agreement import compatible
from diagnosis.incidents.evidence import Evidence, Run, Span
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION

_MOST_RUNS = 200
_MOST_SINCE = 200


def run_of(finding: Evidence) -> Run:
    """The run of a finding; one that is of none is a run by itself."""
    first = finding.first_iteration
    return Run(finding.method, finding.at if first is None else first)


def span(finding: Evidence, known: Span | None = None) -> Span:
    """What is affected of a finding's run, with what was known of it: the first finding tells where it begins.

    What several findings on one iteration are about, they explain together.
    """
    last = finding.last_iteration if finding.last_iteration is not None else finding.at
    if known is not None:
        at, share = known.at, finding.share
        if finding.at == at:
            share = min(1.0, known.share + finding.share)
        lost_ns = max(known.lost_ns, _lost(finding, known.before_ns, share))
        later = (finding.at, share) if finding.at >= at else (at, known.share)
        return Span(known.began, max(known.last, last), lost_ns, known.before_ns, *later)
    began, since_ns = finding.step_from, finding.step_excess_ns
    if began is None:
        began, since_ns = finding.since, finding.since_excess_ns
    before_ns = 0 if began is None else max(0, finding.run_excess_ns - since_ns)
    began = run_of(finding).first if began is None else began
    return Span(began, last, _lost(finding, before_ns, finding.share), before_ns, finding.at, finding.share)


def whole(known: Span, over: Evidence) -> Span:
    """A span to the end of its run, which is ``over``: what it cost is the share that the newest findings had."""
    last = max(known.last, over.last_iteration or known.last)
    return known._replace(last=last, lost_ns=max(known.lost_ns, _lost(over, known.before_ns, known.share)))


def with_since(finding: Evidence, recent: Sequence[Evidence], comparable: float) -> Evidence:
    """A finding with where its culprit began in the run: after the last search that others alone explain, if no search
    before has found it. What is on a step began with the step.
    """
    before = [known for known in _same_run(finding, recent) if known.at < finding.at]
    without = _explained_without(finding, before, comparable)
    if finding.step_from is not None or not without or any(compatible(known, finding) for known in before):
        return finding
    last = max(without, key=lambda known: known.at)
    since_ns = max(0, finding.run_excess_ns - last.run_excess_ns)
    return replace(finding, since=last.at + 1, since_excess_ns=since_ns)


def is_taken_over(latest: Evidence, recent: Sequence[Evidence], comparable: float) -> bool:
    """Whether others alone explain what searches of a run have found since the ``latest`` finding of a culprit. Beside
    what has come on top since, on a step, who costs less is not told.
    """
    since = [known for known in _same_run(latest, recent) if known.at > latest.at and not _is_on_top(known, latest)]
    return bool(_explained_without(latest, since, comparable))


def lasting(recent: Sequence[Evidence], latest: Collection[str], passed: Collection[str]) -> list[Evidence]:
    """Of findings that are ``passed``, by id, those that still tell something: the ``latest`` one of each open
    incident, and the latest of what was found in their runs since. By these a long run is told what it costs, and whom.
    """
    since: dict[Run, int] = {}
    for known in recent:
        if known.id in latest and (run := _run(known)) is not None:
            since[run] = min(since.get(run, known.at), known.at)

    def is_since(known: Evidence) -> bool:
        run = _run(known)
        return run is not None and run in since and known.at > since[run]

    old = [known for known in recent if known.id in passed]
    kept = {*latest, *[known.id for known in old if is_since(known)][-_MOST_SINCE:]}
    return [known for known in old if known.id in kept]


def folded(runs: Mapping[Run, Span], method: str) -> tuple[Mapping[Run, Span], int]:
    """Runs without more of a method than are kept apart, and how many its oldest took in: a state must not grow for
    months.
    """
    ordered = sorted(run for run in runs if run.method == method)
    beyond = len(ordered) - _MOST_RUNS
    if beyond <= 0:
        return runs, 0
    oldest = ordered[: beyond + 1]
    of = [runs[run] for run in oldest]
    together = of[-1]._replace(began=of[0].began, last=max(s.last for s in of), lost_ns=sum(s.lost_ns for s in of))
    kept = {run: span for run, span in runs.items() if run not in oldest}
    return {oldest[0]: together, **kept}, beyond


def pattern(known: str | None, found: str | None) -> str | None:
    """Of two runs, or of what is known of one and found later: a fluctuation begins as spikes, and so may a
    degradation.
    """
    return next((longer for longer in (DEGRADATION, FLUCTUATION) if longer in (known, found)), known)


def _run(finding: Evidence) -> Run | None:
    """The run of a finding that names somebody; None: it names nobody, or is of no run."""
    return run_of(finding) if finding.first_iteration is not None and finding.active and finding.ranks else None


def _same_run(finding: Evidence, recent: Sequence[Evidence]) -> list[Evidence]:
    run = _run(finding)
    return [] if run is None else [known for known in recent if _run(known) == run]


def _is_on_top(known: Evidence, finding: Evidence) -> bool:
    """Whether it is on a step that had not come yet where the other one was found."""
    return known.step_from is not None and (finding.step_from is None or known.step_from > finding.step_from)


def _explained_without(finding: Evidence, others: Sequence[Evidence], comparable: float) -> list[Evidence]:
    """Those of others' findings that are on iterations of which they leave less than a comparable part of the share
    that the culprit has of its own.
    """
    shares = {known.at: [other.share for other in others if other.at == known.at] for known in others}
    return [known for known in others if math.fsum(shares[known.at]) > 1.0 - comparable * finding.share]


def _lost(finding: Evidence, before_ns: int, share: float) -> int:
    """What a share cost a finding's run, which had lost ``before_ns`` to others when the culprit came."""
    return int(max(0, finding.run_excess_ns - before_ns) * share)
