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
from diagnosis.incidents.evidence import Evidence, Span

_MOST_RUNS = 200
_MOST_SINCE = 200


def run_of(finding: Evidence) -> int:
    """The first iteration of a finding's run."""
    return finding.first_iteration if finding.first_iteration is not None else _at(finding)


def span(finding: Evidence, known: Span | None = None) -> Span:
    """What is affected of a finding's run, with what was known of it: the first finding tells where it begins."""
    last = finding.last_iteration if finding.last_iteration is not None else _at(finding)
    if known is not None:
        return known._replace(last=max(known.last, last), lost_ns=max(known.lost_ns, _lost(finding, known.before_ns)))
    began, since_ns = finding.step_from, finding.step_excess_ns
    if began is None:
        began, since_ns = finding.since, finding.since_excess_ns
    if began is None:
        return Span(run_of(finding), last, _lost(finding, 0))
    before_ns = max(0, finding.run_excess_ns - since_ns)
    return Span(began, last, _lost(finding, before_ns), before_ns)


def whole(known: Span, over: Evidence, latest: Evidence | None) -> Span:
    """A span to the end of its run, which is ``over``; what it cost, if the ``latest`` finding is known, whose share it
    takes.
    """
    share = 0.0 if latest is None else latest.share
    return span(replace(over, share=share, last_iteration=over.last_iteration or known.last), known)


def with_since(finding: Evidence, recent: Sequence[Evidence], comparable: float) -> Evidence:
    """A finding with where its culprit began in the run: after the last search that others alone explain, if no search
    before has found it. What is on a step began with the step.
    """
    before = [known for known in _same_run(finding, recent) if _at(known) < _at(finding)]
    without = _explained_without(finding, before, comparable)
    if finding.step_from is not None or not without or any(compatible(known, finding) for known in before):
        return finding
    last = max(without, key=_at)
    since_ns = max(0, finding.run_excess_ns - last.run_excess_ns)
    return replace(finding, since=_at(last) + 1, since_excess_ns=since_ns)


def is_taken_over(latest: Evidence, recent: Sequence[Evidence], comparable: float) -> bool:
    """Whether others alone explain what searches of a run have found since the ``latest`` finding of a culprit. Beside
    what has come on top since, on a step, who costs less is not told.
    """
    since = [known for known in _same_run(latest, recent) if _at(known) > _at(latest) and not _is_on_top(known, latest)]
    return bool(_explained_without(latest, since, comparable))


def lasting(recent: Sequence[Evidence], latest: Collection[str], oldest: int) -> list[Evidence]:
    """Of findings on iterations before ``oldest`` those that still tell something: the ``latest`` one of each open
    incident, by id, and the latest of what was found in their runs since. By these a long run is told what it costs,
    and whom.
    """
    since: dict[tuple[str, int], int] = {}
    for known in recent:
        if known.id in latest and (run := _run(known)) is not None:
            since[run] = min(since.get(run, _at(known)), _at(known))

    def is_since(known: Evidence) -> bool:
        run = _run(known)
        return run is not None and run in since and _at(known) > since[run]

    old = [known for known in recent if _at(known) < oldest]
    kept = {*latest, *[known.id for known in old if is_since(known)][-_MOST_SINCE:]}
    return [known for known in old if known.id in kept]


def folded(runs: Mapping[int, Span]) -> tuple[Mapping[int, Span], int]:
    """Runs without more than are kept apart, and how many the oldest took in: a state must not grow for months."""
    beyond = len(runs) - _MOST_RUNS
    if beyond <= 0:
        return runs, 0
    ordered = sorted(runs.items())
    oldest = ordered[: beyond + 1]
    spans = [of for _, of in oldest]
    together = Span(spans[0].began, max(of.last for of in spans), sum(of.lost_ns for of in spans))
    return {oldest[0][0]: together, **dict(ordered[beyond + 1 :])}, beyond


def _at(finding: Evidence) -> int:
    return finding.iteration or 0


def _run(finding: Evidence) -> tuple[str, int] | None:
    """The run of a finding that names somebody, as its method knows it; None: it names nobody, or is of no run."""
    if finding.first_iteration is None or not (finding.active and finding.ranks):
        return None
    return finding.method, finding.first_iteration


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
    shares = {_at(known): [other.share for other in others if _at(other) == _at(known)] for known in others}
    return [known for known in others if math.fsum(shares[_at(known)]) > 1.0 - comparable * finding.share]


def _lost(finding: Evidence, before_ns: int) -> int:
    """What the culprit cost its run, which had lost ``before_ns`` to others when it came."""
    return int(max(0, finding.run_excess_ns - before_ns) * finding.share)
