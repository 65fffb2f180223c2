"""Findings joined into incidents: one fault, one incident, from its first iteration to its last.

A single irregular iteration proves little (Holmes 4.4): an incident opens when findings on different
iterations agree on a culprit, and on enough of what was searched meanwhile. It follows its findings: a cleared
run of a persistent degradation, or a long quiet, ends it, unless another method lately found it and has not said the
same since. There are no timers. Whom findings are about together is in ``agreement``, what of a run is a culprit's in
``spans``, what is remembered in ``memory``, and when an incident is over in ``ending``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from typing import Any

from diagnosis.incidents import spans
from diagnosis.incidents.agreement import agreed, agreeing, compatible, doubt
from diagnosis.incidents.ending import after_clearing, is_about
from diagnosis.incidents.evidence import Evidence, Incident, evidence_from_state, evidence_to_state, hangs
from diagnosis.incidents.memory import MOST_FINDINGS, Memory
from diagnosis.incidents.moments import MomentSettings, momentary
from diagnosis.irregularity.run import DEGRADATION

_HOSTS = "host_slow"
_UNEVEN = "imbalance"


@dataclass(frozen=True, slots=True)
class JoiningSettings:
    """When findings make an incident, and whom it is about; ``moments`` are spikes of which nobody is accused."""

    confirmations: int = 2
    """Number of findings of one method, on different iterations, that must agree for an incident to open; of a hang one
    is enough."""
    least_confidence: float = 0.75
    """Confidence, from 0 to 1, that findings must reach together for an incident to open; a higher value waits for more
    evidence."""
    agreement: float = 0.34
    """Part of the iterations searched since the first of them, and explained by no other incident, that such findings
    must be on; and part of the iterations of an incident's findings that those about some of its ranks must be on to
    narrow it."""
    window: int = 100
    """Number of iterations for which findings are remembered."""
    comparable_share: float = 0.5
    """Part of another finding's share that one must have to say anything of its ranks; and part of a culprit's share
    that others must leave it, or they have taken over from it."""
    moments: MomentSettings = field(default_factory=MomentSettings)


class Rule(IntEnum):
    """What findings must meet to open an incident, in the order in which it is asked."""

    MOMENTARY = 1
    CONFIRMATIONS = 2
    AGREEMENT = 3
    CONFIDENCE = 4
    LASTING = 5


@dataclass
class IncidentJoiner:
    """Joins the findings of one job of ``world`` ranks, whose traffic may take so many ``spines`` (0: not known).

    ``make_id`` names an incident after its opening finding.
    """

    make_id: Callable[[Evidence], str]
    settings: JoiningSettings = field(default_factory=JoiningSettings)
    memory: Memory = field(default_factory=Memory)
    incidents: dict[str, Incident] = field(default_factory=dict)
    world: int | None = None
    spines: int = 0

    @property
    def methods(self) -> set[str]:
        """Those that spoke lately, or of what is still open."""
        still = (incident.methods for incident in self.incidents.values() if incident.state == "open")
        return {known.method for known in self.memory.findings}.union(*still)

    def take(self, *findings: Evidence) -> list[Incident]:
        """Take findings in, those of one search together; returns the incidents that changed."""
        return [changed for search in of_searches(findings) for changed in self._taken(search)]

    def _taken(self, search: Sequence[Evidence]) -> list[Incident]:
        memory, heard = self.memory, {known.id for known in self.memory.findings}
        new = {of.id: of for of in search if of.iteration is not None and of.id not in heard}
        if not new:
            return []
        told = [spans.with_since(of, memory.findings, self.settings.comparable_share) for of in new.values()]
        before = self._moments() if memory.moments is None else memory.moments
        for finding in told:
            self._remember(finding)
        memory.moments = self._moments()
        freed = [known for known in memory.findings if known.id in before - memory.moments]
        now_ns = max(finding.found_ns for finding in told)
        return [incident for finding in (*freed, *told) for incident in self._joined(finding, now_ns)]

    def _moments(self) -> frozenset[str]:
        findings, settings = self.memory.findings, self.settings
        return momentary(findings, self.world, settings.moments, settings.comparable_share, self.spines)

    def _remember(self, finding: Evidence) -> None:
        latest = {incident.findings[-1] for incident in self.incidents.values() if incident.state == "open"}
        past = self.memory.remember(finding, self.settings.window, latest)
        self.incidents = {
            key: incident
            for key, incident in self.incidents.items()
            if incident.state == "open" or not past.holds(incident)
        }

    def _joined(self, finding: Evidence, now_ns: int) -> list[Incident]:
        if not finding.active:
            return self._clear(finding)
        if not finding.ranks or self.memory.is_momentary(finding):
            return []
        known = next((i for i in self.incidents.values() if self._concerned(i, finding)), None)
        if known is None:
            opened = self._open(finding, now_ns)
            return [opened, *self._open_others(now_ns)] if opened else []
        supported = self._supported(known, finding)
        return [self._put(supported)] if supported != known else []

    def _open_others(self, now_ns: int) -> Iterator[Incident]:
        """What an opened incident explains no longer speaks against the others: which of them open now?"""
        for known in self.memory.loose(self.incidents.values()):
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
        if self.memory.is_momentary(finding):
            return Rule.MOMENTARY
        loose = self.memory.loose(self.incidents.values())
        others = [known for known in loose if self._alike(known) == self._alike(finding)]
        while True:
            together = agreeing(finding, others)
            judged = self._judged_together(together)
            narrowest = min(together, key=lambda known: len(known.ranks))
            if judged is not Rule.CONFIDENCE or len(narrowest.ranks) >= len(finding.ranks):
                return judged
            others = [known for known in others if known.id != narrowest.id]

    def _judged_together(self, together: list[Evidence]) -> Incident | Rule:
        """The incident that findings make which agree, or the rule that they do not meet.

        Each agrees with the newest one; one that does not with what those before it say together is left out.
        """
        first, *later = sorted(together, key=lambda known: known.at)
        incident, together = _opened(first, self.make_id(first)), [first]
        for known in later:
            if compatible(incident, known):
                incident = self._supported(incident, known)
                together.append(known)
        unmet = [self._unmet([known for known in together if known.method == of]) for of in incident.methods]
        if None not in unmet:
            return max(rule for rule in unmet if rule is not None)
        if incident.confidence < self.settings.least_confidence:
            return Rule.CONFIDENCE
        return Rule.LASTING if self._passing(incident) else incident

    def _unmet(self, own: list[Evidence]) -> Rule | None:
        """The rule that findings of one method which agree do not meet. Methods number iterations each in its own way,
        so that two of them may have seen the same one.
        """
        iterations = {known.iteration for known in own}
        confirmed = len(iterations) >= self.settings.confirmations or any(hangs(known.cause) for known in own)
        if not confirmed:  # no other iteration confirms a hang
            return Rule.CONFIRMATIONS
        unexplained = self.memory.unexplained(own, self.incidents.values())
        if len(iterations) < self.settings.agreement * len(unexplained | iterations):
            return Rule.AGREEMENT
        return None

    def _supported(self, incident: Incident, finding: Evidence) -> Incident:
        """The incident with one more finding; its revision rises where a person must hear of the change."""
        if finding.id in incident.findings:
            return incident
        bounds = self.settings.comparable_share, self.settings.agreement
        ranks, changes, before = agreed(incident, finding, [*self.memory.told(incident), finding], *bounds)
        run, pattern = spans.run_of(finding), spans.pattern(incident.pattern, finding.pattern)
        runs, folded = spans.folded({**incident.runs, run: spans.span(finding, incident.runs.get(run))}, run.method)
        told = set(ranks) != set(incident.ranks) or pattern != incident.pattern
        of_it = (finding.ranks, finding.cause) == (ranks, changes.get("cause", incident.cause))
        of_others = incident.rule if ranks == incident.ranks else None
        return replace(
            incident,
            **changes,
            revision=incident.revision + int(told),
            pattern=pattern,
            period=finding.period or incident.period,
            rule=finding.rule if of_it else of_others,
            runs=runs,
            folded=incident.folded + (folded if run.method == incident.methods[0] else 0),
            doubt=before * doubt(finding, ranks),
            methods=tuple(dict.fromkeys((*incident.methods, finding.method))),
            findings=(*incident.findings, finding.id)[-MOST_FINDINGS:],
            updated_ns=max(incident.updated_ns, finding.found_ns),
            share=max(incident.share, finding.share) if set(finding.ranks) <= set(ranks) else incident.share,
        )

    def _passing(self, incident: Incident) -> bool:
        """Whether it says something only if it lasts. All ranks are slow together for a moment: a burst of other
        traffic is no fault of theirs. Some have more to do for a moment: so has each now and then.

        Slow hosts are told by what the network does not explain, and what hangs does not pass.
        """
        if hangs(incident.cause):
            return False
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
        told = [
            (incident, after_clearing(incident, finding, self.memory, self.settings.comparable_share))
            for incident in self.incidents.values()
            if incident.state == "open" and finding.method in incident.methods and is_about(finding, incident)
        ]
        return [self._put(replace(after, updated_ns=finding.found_ns)) for before, after in told if after != before]

    def _put(self, incident: Incident) -> Incident:
        self.incidents[incident.id] = incident
        return incident

    def to_state(self) -> dict[str, Any]:
        """What a restart needs to go on as if there had been none."""
        return {
            "recent": [evidence_to_state(known) for known in self.memory.findings],
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
            memory=Memory([evidence_from_state(known) for known in state["recent"]]),
            incidents={incident.id: incident for incident in incidents},
        )


def of_searches(findings: Iterable[Evidence]) -> Iterator[list[Evidence]]:
    """Findings that follow each other and are of one method, on one iteration: what one search found, or a clearing."""
    for _, search in groupby(findings, key=lambda of: (of.method, of.iteration, of.active)):
        yield list(search)


def held_back(
    findings: Iterable[Evidence], settings: JoiningSettings, world: int | None = None, spines: int = 0
) -> Rule | None:
    """The rule that kept a job's findings, in their order, from opening an incident: the last one that any came to.

    None where no finding names a rank, or an incident opened.
    """
    joiner, furthest = IncidentJoiner(lambda opening: opening.id, settings, world=world, spines=spines), None
    for search in of_searches(findings):
        if joiner.take(*search):
            return None
        for judged in (joiner._judged(finding) for finding in search if finding.active and finding.ranks):
            if isinstance(judged, Rule):
                furthest = judged if furthest is None else max(furthest, judged)
    return furthest


def _concerns(incident: Incident, finding: Evidence) -> bool:
    """Whether a finding belongs to an incident that is open, or to the span of one that was. What hangs again does so
    anew, within the iteration that hung as well.
    """
    return compatible(incident, finding) and (
        incident.state == "open"
        or (not hangs(incident.cause) and finding.iteration is not None and _falls_into(finding, incident))
    )


def _falls_into(finding: Evidence, incident: Incident) -> bool:
    """Whether a finding is on an iteration that its method sees affected by an incident that is over; of a method that
    has not seen it, which may number iterations apart, whether it was found meanwhile.
    """
    if finding.method in incident.methods:
        return incident.spans(finding.method, finding.at)
    return incident.opened_ns <= finding.found_ns <= (incident.resolved_ns or 0)


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
        period=finding.period,
        rule=finding.rule,
        runs={spans.run_of(finding): spans.span(finding)},
        doubt=doubt(finding, finding.ranks),
        methods=(finding.method,),
        findings=(finding.id,),
        opened_ns=finding.found_ns,
        updated_ns=finding.found_ns,
        share=finding.share,
    )
