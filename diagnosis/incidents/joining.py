"""Findings joined into incidents: one fault, one incident, from its first iteration to its last.

A single irregular iteration proves little (Holmes 4.4): an incident opens when findings on different
iterations agree on a culprit, and on enough of what was searched meanwhile. It follows its findings: a cleared
run of a persistent degradation, or a long quiet, ends it. There are no timers. A culprit whose first finding in a run
is on a step of it came on top of what else was slow: its incident begins with the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from diagnosis.incidents.evidence import (
    Evidence,
    Incident,
    Ranks,
    Span,
    evidence_from_state,
    evidence_to_state,
)

DEGRADATION = "persistent_degradation"
FLUCTUATION = "performance_fluctuation"
_HANG = "hang_"
"""What causes of iterations begin with that never end."""

_HOSTS = "host_slow"
_UNEVEN = "imbalance"

_COMPARABLE = 0.5
"""What explains less of the delay than this part of what another finding does says nothing of that one's ranks."""

_MOST_FINDINGS = 200
_MOST_RUNS = 200


@dataclass(frozen=True, slots=True)
class JoiningSettings:
    """``confirmations`` findings on different iterations open an incident, of a hang one, if they are at least
    ``agreement`` of the iterations searched since the first of them and together leave little doubt
    (``least_confidence``); findings are remembered for ``window`` iterations.
    """

    confirmations: int = 2
    least_confidence: float = 0.75
    agreement: float = 0.34
    window: int = 100


class Rule(IntEnum):
    """What findings must meet to open an incident, in the order in which it is asked."""

    CONFIRMATIONS = 1
    AGREEMENT = 2
    CONFIDENCE = 3
    LASTING = 4


@dataclass
class IncidentJoiner:
    """Joins the findings of one job of ``world`` ranks. ``make_id`` names an incident after its opening finding."""

    make_id: Callable[[Evidence], str]
    settings: JoiningSettings = field(default_factory=JoiningSettings)
    recent: list[Evidence] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)
    world: int | None = None

    def take(self, finding: Evidence) -> list[Incident]:
        """Take a finding in; returns the incidents that changed."""
        if finding.iteration is None or any(known.id == finding.id for known in self.recent):
            return []
        finding = self._since(finding)
        self._remember(finding)
        if not finding.active:
            return self._clear(finding)
        if not finding.ranks:
            return []
        known = next((i for i in self.incidents.values() if self._concerned(i, finding)), None)
        if known is not None:
            supported = _supported(known, finding)
            return [self._put(supported)] if supported != known else []
        opened = self._open(finding, finding.found_ns)
        return [opened, *self._open_others(finding.found_ns)] if opened else []

    def _open_others(self, now_ns: int) -> Iterator[Incident]:
        """What an opened incident explains no longer speaks against the others: which of them open now?"""
        for known in self._loose():
            if known.ranks and not any(self._concerned(incident, known) for incident in self.incidents.values()):
                opened = self._open(known, now_ns)
                if opened:
                    yield opened
                    yield from self._open_others(now_ns)
                    return

    def _open(self, finding: Evidence, now_ns: int) -> Incident | None:
        judged = self._judged(finding)
        if isinstance(judged, Rule):
            return None
        return self._put(replace(judged, revision=1, opened_ns=now_ns, updated_ns=now_ns))

    def _judged(self, finding: Evidence) -> Incident | Rule:
        """What a finding and those that agree with it make together, or the rule that they do not meet.

        One that points at fewer ranks, but leaves so much doubt about them that nothing opens, is left out.
        """
        others = [known for known in self._loose() if self._alike(known) == self._alike(finding)]
        while True:
            agreeing = _agreeing(finding, others)
            judged = self._together(agreeing)
            narrowest = min(agreeing, key=lambda known: len(known.ranks))
            if judged is not Rule.CONFIDENCE or len(narrowest.ranks) >= len(finding.ranks):
                return judged
            others = [known for known in others if known.id != narrowest.id]

    def _together(self, agreeing: list[Evidence]) -> Incident | Rule:
        """The incident that findings make which agree, or the rule that they do not meet."""
        iterations = {known.iteration for known in agreeing}
        hangs = any((known.cause or "").startswith(_HANG) for known in agreeing)
        if len(iterations) < self.settings.confirmations and not hangs:  # no other iteration comes to confirm a hang
            return Rule.CONFIRMATIONS
        if len(iterations) < self.settings.agreement * len(self._unexplained(agreeing) | iterations):
            return Rule.AGREEMENT
        first, *later = sorted(agreeing, key=lambda known: known.iteration or 0)
        incident = _opened(first, self.make_id(first))
        for known in later:
            incident = _supported(incident, known)
        if incident.confidence < self.settings.least_confidence:
            return Rule.CONFIDENCE
        return Rule.LASTING if self._passing(incident) else incident

    def _loose(self) -> list[Evidence]:
        """The findings that no incident accounts for; those of a resolved one are not the beginning of the next."""
        accounted = {finding for incident in self.incidents.values() for finding in incident.findings}
        return [known for known in self.recent if known.active and known.id not in accounted]

    def _unexplained(self, agreeing: list[Evidence]) -> set[int | None]:
        """Iterations searched since the first of the findings that no incident accounts for."""
        since = min(known.iteration or 0 for known in agreeing)
        searched = [known for known in self.recent if known.active and (known.iteration or 0) >= since]
        loose = {known.id for known in self._loose()}
        return {k.iteration for k in searched} - {k.iteration for k in searched if k.id not in loose}

    def _passing(self, incident: Incident) -> bool:
        """Whether it says something only if it lasts. All ranks are slow together for a moment: a burst of other
        traffic is no fault of theirs. Some have more to do for a moment: so has each now and then.

        Slow hosts are told by what the network does not explain.
        """
        return (self._of_all(incident) or incident.cause == _UNEVEN) and incident.pattern != DEGRADATION

    def _of_all(self, known: Evidence | Incident) -> bool:
        """Whether it names all ranks."""
        return len(known.ranks) == self.world and known.level == "group" and known.cause != _HOSTS

    def _alike(self, known: Evidence | Incident) -> bool:
        """Whether all ranks are slow, not one of them: that says nothing of any of them alone."""
        return self._of_all(known) and not known.candidates

    def _concerned(self, incident: Incident, finding: Evidence) -> bool:
        """Whether a finding belongs to an incident. That all are slow is not narrowed by what is said of some."""
        return (self._alike(finding) or not self._alike(incident)) and _concerns(incident, finding)

    def _clear(self, finding: Evidence) -> list[Incident]:
        """End what the method says is over: one run, or (no first iteration) everything."""
        cleared = [
            (incident, self._cleared(incident, finding))
            for incident in self.incidents.values()
            if incident.state == "open" and finding.method in incident.methods and _is_about(finding, incident)
        ]
        return [self._put(replace(after, updated_ns=finding.found_ns)) for before, after in cleared if after != before]

    def _cleared(self, incident: Incident, finding: Evidence) -> Incident:
        """An open incident after its run, or all that the method said of it, is over.

        The run's last word counts: not every iteration of it was searched, nor its pattern known from the first. But
        where others alone explain what searches have found since, the run goes on without the incident's culprit.
        """
        first = finding.first_iteration
        if first is not None:
            if first not in incident.runs:
                return incident
            incident = self._run_told(incident, first, finding)
        if first is not None and finding.pattern != DEGRADATION:
            return incident
        return replace(incident, state="resolved", resolved_ns=finding.found_ns, revision=incident.revision + 1)

    def _run_told(self, incident: Incident, first: int, finding: Evidence) -> Incident:
        span, runs = incident.runs[first], incident.runs
        of_run = [k for k in self.recent if k.id in incident.findings and k.first_iteration == first]
        since = [known for known in self._of_run(of_run[-1]) if _speaks_against(known, of_run[-1])] if of_run else []
        if not of_run or not _without(of_run[-1], since):
            lost = max([span.lost_ns, *(_lost(replace(finding, share=k.share), span.before_ns) for k in of_run[-1:])])
            last = max(span.last, finding.last_iteration or span.last)
            runs = {**runs, first: span._replace(last=last, lost_ns=lost)}
        return replace(incident, runs=runs, pattern=_pattern(incident, finding))

    def _remember(self, finding: Evidence) -> None:
        oldest = (finding.iteration or 0) - self.settings.window
        recent = [known for known in self.recent if (known.iteration or 0) >= oldest][-_MOST_FINDINGS:]
        self.recent = [*self._latest(oldest), *recent, finding]
        self.incidents = {
            key: incident
            for key, incident in self.incidents.items()
            if incident.state == "open" or incident.last_iteration >= oldest
        }

    def _since(self, finding: Evidence) -> Evidence:
        """A finding with where its culprit began within the run: where searches of it have named others alone so far,
        after the last one that these explain.
        """
        before = [known for known in self._of_run(finding) if _is_later(finding, known)]
        without = _without(finding, before)
        if finding.step_from is not None or not without or any(compatible(known, finding) for known in before):
            return finding
        last = max(without, key=lambda known: known.iteration or 0)
        since_ns = max(0, finding.run_excess_ns - last.run_excess_ns)
        return replace(finding, since=(last.iteration or 0) + 1, since_excess_ns=since_ns)

    def _of_run(self, finding: Evidence) -> list[Evidence]:
        """What the same method has found in the same run, where it names ranks."""
        if finding.first_iteration is None or not (finding.active and finding.ranks):
            return []
        run = finding.method, finding.first_iteration
        return [k for k in self.recent if k.active and k.ranks and (k.method, k.first_iteration) == run]

    def _latest(self, oldest: int) -> list[Evidence]:
        """Of findings that are older, the latest one of each open incident and what was found in its run since: by it
        a long run is told what it costs, and whom.
        """
        ids = {incident.findings[-1] for incident in self.incidents.values() if incident.state == "open"}
        latest = [known for known in self.recent if known.id in ids]
        return [
            known
            for known in self.recent
            if (known.iteration or 0) < oldest
            and any(known is of or (known in self._of_run(of) and _is_later(known, of)) for of in latest)
        ]

    def _put(self, incident: Incident) -> Incident:
        self.incidents[incident.id] = incident
        return incident

    def to_state(self) -> dict[str, Any]:
        """What a restart needs to go on as if there had been none."""
        return {
            "recent": [evidence_to_state(known) for known in self.recent],
            "incidents": [incident.to_state() for incident in self.incidents.values()],
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], make_id: Callable[[Evidence], str], settings: JoiningSettings
    ) -> IncidentJoiner:
        """The joiner that ``to_state`` described."""
        incidents = [Incident.from_state(incident) for incident in state["incidents"]]
        return cls(
            make_id=make_id,
            settings=settings,
            recent=[evidence_from_state(known) for known in state["recent"]],
            incidents={incident.id: incident for incident in incidents},
        )


def _is_later(one: Evidence, other: Evidence) -> bool:
    return (one.iteration or 0) > (other.iteration or 0)


def _speaks_against(known: Evidence, finding: Evidence) -> bool:
    """Whether it is later and would tell of a finding's culprit as well: beside what has come on top, on a step, who
    costs less is not told.
    """
    on_top = known.step_from is not None and (finding.step_from is None or known.step_from > finding.step_from)
    return _is_later(known, finding) and not on_top


def _without(finding: Evidence, others: list[Evidence]) -> list[Evidence]:
    """Those of what searches found of others that is of iterations which leave less than half of a culprit's share."""
    explained: Counter[int] = Counter()  # in thousandths, so that sums depend on no order
    for known in others:
        explained[known.iteration or 0] += round(1000 * known.share)
    return [known for known in others if explained[known.iteration or 0] > 1000 - 500 * finding.share]


def _is_about(cleared: Evidence, incident: Incident) -> bool:
    """Whether a cleared finding is about an incident: what names ranks is about theirs alone."""
    return not cleared.ranks or not set(cleared.ranks).isdisjoint(incident.ranks)


def held_back(findings: Iterable[Evidence], settings: JoiningSettings, world: int | None = None) -> Rule | None:
    """The rule that kept a job's findings, in their order, from opening an incident: the last one that any came to.

    None where no finding names a rank, or an incident opened.
    """
    joiner, furthest = IncidentJoiner(lambda opening: opening.id, settings, world=world), None
    for finding in findings:
        if joiner.take(finding):
            return None
        if finding.active and finding.ranks:
            judged = joiner._judged(finding)
            if isinstance(judged, Rule):
                furthest = judged if furthest is None else max(furthest, judged)
    return furthest


def compatible(one: Evidence | Incident, other: Evidence | Incident) -> bool:
    """Whether two can be about one fault: the same kind, and one's ranks among the other's.

    Two groups that cannot tell their members apart need only overlap: the culprit is where they do. Groups that the
    same devices carry need not even do that: these are the culprit, as the NVLinks of a host with several groups.
    """
    if one.cause != other.cause and "mixed_slow" not in {one.cause, other.cause}:
        return False
    if _of_the_same_devices(one, other):
        return True
    here, there = set(one.ranks), set(other.ranks)
    if one.candidates and other.candidates:
        return bool(here & there)
    return bool(here and there) and (here <= there or there <= here)


def _of_the_same_devices(one: Evidence | Incident, other: Evidence | Incident) -> bool:
    """Whether both are about groups that the same devices carry."""
    here, there = ({device.device for device in of.devices} for of in (one, other))
    return bool(here) and here == there and one.level == other.level == "group"


def _agreeing(finding: Evidence, recent: list[Evidence]) -> list[Evidence]:
    """The findings that can all be about one fault with this one, the narrowest first."""
    agreeing, common = [finding], set(finding.ranks)
    others = [known for known in recent if known.id != finding.id and compatible(known, finding)]
    for known in sorted(others, key=lambda known: (len(known.ranks), -(known.iteration or 0))):
        if _of_the_same_devices(known, finding):
            agreeing.append(known)
        elif common & set(known.ranks):
            agreeing.append(known)
            common &= set(known.ranks)
    return agreeing


def _concerns(incident: Incident, finding: Evidence) -> bool:
    """Whether a finding belongs to an incident that is open, or to the span of one that was."""
    return compatible(incident, finding) and (
        incident.state == "open"
        or (finding.iteration is not None and incident.first_iteration <= finding.iteration <= incident.last_iteration)
    )


def _opened(finding: Evidence, identity: str) -> Incident:
    return Incident(
        id=identity,
        revision=1,
        state="open",
        cause=finding.cause or "",
        level=finding.level or "group",
        ranks=finding.ranks,
        candidates=finding.candidates,
        devices=finding.devices,
        stage=finding.stage,
        pattern=finding.pattern,
        runs={_run_of(finding): _span(finding)},
        doubt=_doubt(finding, finding.ranks),
        methods=(finding.method,),
        findings=(finding.id,),
        opened_ns=finding.found_ns,
        updated_ns=finding.found_ns,
        share=finding.share,
    )


def _supported(incident: Incident, finding: Evidence) -> Incident:
    """The incident with one more finding; its revision rises where a person must hear of the change."""
    if finding.id in incident.findings:
        return incident
    runs, first = dict(incident.runs), _run_of(finding)
    runs[first] = _span(finding, runs.get(first))
    pattern = _pattern(incident, finding)
    about, changes, doubt = _about(incident, finding)
    told = set(about) != set(incident.ranks) or pattern != incident.pattern
    runs, folded = _folded(runs)
    return replace(
        incident,
        **changes,
        revision=incident.revision + int(told),
        pattern=pattern,
        runs=runs,
        folded=incident.folded + folded,
        doubt=doubt * _doubt(finding, about),
        methods=tuple(dict.fromkeys((*incident.methods, finding.method))),
        findings=(*incident.findings, finding.id)[-_MOST_FINDINGS:],
        updated_ns=max(incident.updated_ns, finding.found_ns),
        share=max(incident.share, finding.share) if set(finding.ranks) <= set(about) else incident.share,
    )


def _about(incident: Incident, finding: Evidence) -> tuple[Ranks, dict[str, Any], float]:
    """Whom an incident is about with one more finding, what changes by that, and what doubt is left of before.

    Both name the culprit; but where one of them explains less than half of what the other does, it does not narrow it:
    of what slows several ranks, each of them alone sometimes shows a part.
    """
    here, there = set(incident.ranks), set(finding.ranks)
    if _of_the_same_devices(incident, finding):
        about = tuple(sorted(here | there))
        return about, {"ranks": about, "candidates": tuple((r,) for r in about)} if there - here else {}, incident.doubt
    if there < here and finding.share < _COMPARABLE * incident.share:
        return incident.ranks, {}, incident.doubt
    if here < there and 0 < incident.share < _COMPARABLE * finding.share:
        return finding.ranks, _narrowed(incident, finding, finding.ranks), incident.doubt
    about = tuple(rank for rank in incident.ranks if rank in there)
    # what was said of the wider group says less of each of its members
    doubt = incident.doubt ** (len(about) / len(incident.ranks))
    return about, _narrowed(incident, finding, about) if len(about) < len(incident.ranks) else {}, doubt


def _run_of(finding: Evidence) -> int:
    return finding.first_iteration if finding.first_iteration is not None else finding.iteration or 0


def _span(finding: Evidence, known: Span | None = None) -> Span:
    """What is affected of a finding's run, with what was known of it: the first finding tells where it begins."""
    last = finding.last_iteration if finding.last_iteration is not None else finding.iteration or 0
    if known is None:
        began, since_ns = finding.step_from, finding.step_excess_ns
        if began is None:
            began, since_ns = finding.since, finding.since_excess_ns
        if began is None:
            return Span(_run_of(finding), last, _lost(finding, 0))
        before_ns = max(0, finding.run_excess_ns - since_ns)
        return Span(began, last, _lost(finding, before_ns), before_ns)
    lost_ns = max(known.lost_ns, _lost(finding, known.before_ns))
    return known._replace(last=max(known.last, last), lost_ns=lost_ns)


def _folded(runs: dict[int, Span]) -> tuple[dict[int, Span], int]:
    """Runs without more than are kept apart, and how many the oldest took in: a state must not grow for months."""
    beyond = len(runs) - _MOST_RUNS
    if beyond <= 0:
        return runs, 0
    ordered = sorted(runs.items())
    oldest = ordered[: beyond + 1]
    spans = [span for _, span in oldest]
    whole = Span(spans[0].began, max(span.last for span in spans), sum(span.lost_ns for span in spans))
    return {oldest[0][0]: whole, **dict(ordered[beyond + 1 :])}, beyond


def _narrowed(incident: Incident, finding: Evidence, ranks: Ranks) -> dict[str, Any]:
    """What an incident says once it is about other ranks: of devices, what both sides name."""
    if ranks == finding.ranks:
        return {name: getattr(finding, name) for name in ("level", "ranks", "candidates", "devices", "stage")}
    alone = len(ranks) == 1
    return {
        "level": "device" if alone else "group",
        "ranks": ranks,
        "candidates": () if alone else tuple((rank,) for rank in ranks),
        "devices": tuple(device for device in incident.devices if device in finding.devices),
    }


def _pattern(incident: Incident, finding: Evidence) -> str | None:
    """What lasts longer counts: a fluctuation begins as spikes, and so may a degradation."""
    both = (incident.pattern, finding.pattern)
    return next((pattern for pattern in (DEGRADATION, FLUCTUATION) if pattern in both), incident.pattern)


def _lost(finding: Evidence, before_ns: int) -> int:
    """What the culprit cost its run, which had lost ``before_ns`` to others when it came."""
    return int(max(0, finding.run_excess_ns - before_ns) * finding.share)


def _doubt(finding: Evidence, about: Ranks) -> float:
    """What a finding leaves open about some ranks: one about a wider group says less of each of its members."""
    narrowness = min(1.0, len(about) / len(finding.ranks))
    return max(0.05, 1.0 - finding.share * finding.coverage * narrowness)
