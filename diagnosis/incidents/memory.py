"""What of a job's findings is remembered, and which of them nobody accounts for.

Of what lies too far back only that is kept by which a long run is still told (``spans.lasting``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from diagnosis.incidents import spans
from diagnosis.incidents.evidence import Evidence, Incident

MOST_FINDINGS = 200


class Past(NamedTuple):
    """What is forgotten once a method has found something: of its own what is before iteration ``oldest``, of others,
    which number iterations apart, what was found or over by ``until_ns``.
    """

    method: str
    oldest: int
    until_ns: int

    def holds(self, incident: Incident) -> bool:
        """Whether a resolved incident lies before what is remembered: by the iterations of the method that opened it,
        or by when it was over.
        """
        if incident.methods[0] == self.method:
            return incident.last_iteration < self.oldest
        return (incident.resolved_ns or 0) <= self.until_ns


@dataclass
class Memory:
    """Findings in the order in which they came. ``moments`` are the ids of those that speak neither for nor against
    anybody; None: not worked out yet.
    """

    findings: list[Evidence] = field(default_factory=list)
    moments: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)

    def is_momentary(self, finding: Evidence) -> bool:
        """Whether it is of a moment, of which nobody is accused."""
        return finding.id in (self.moments or ())

    def told(self, incident: Incident) -> list[Evidence]:
        """The findings of an incident."""
        own = set(incident.findings)
        return [known for known in self.findings if known.id in own]

    def loose(self, incidents: Iterable[Incident]) -> list[Evidence]:
        """The findings that no incident accounts for, nor a moment; those of a resolved one are not the beginning of
        the next.
        """
        accounted = {finding for incident in incidents for finding in incident.findings}
        active = [known for known in self.findings if known.active and known.id not in accounted]
        return [known for known in active if not self.is_momentary(known)]

    def unexplained(self, own: Sequence[Evidence], incidents: Iterable[Incident]) -> set[int | None]:
        """Iterations that no incident accounts for, of those that a method searched since the first of its findings."""
        since, method = min(known.at for known in own), own[0].method
        searched = [known for known in self.findings if known.active and known.method == method and known.at >= since]
        searched = [known for known in searched if not self.is_momentary(known)]
        loose = {known.id for known in self.loose(incidents)}
        return {k.iteration for k in searched} - {k.iteration for k in searched if k.id not in loose}

    def remember(self, finding: Evidence, window: int, latest: Collection[str]) -> Past:
        """Take a finding in, and let go of what lies more than ``window`` iterations before it; of other methods, which
        number them apart, of what was found no later than the latest of these. At most ``MOST_FINDINGS`` stay, and what
        still tells of the runs of the ``latest`` ones, by id. Returns what is forgotten.
        """
        oldest = finding.at - window
        own = [known for known in self.findings if known.method == finding.method and known.at < oldest]
        until_ns = max((known.found_ns for known in own), default=-1)
        others = [known for known in self.findings if known.method != finding.method and known.found_ns <= until_ns]
        passed = {known.id for known in (*own, *others)}
        lasting = spans.lasting(self.findings, latest, passed)
        recent = [known for known in self.findings if known.id not in passed][-MOST_FINDINGS:]
        self.findings = [*lasting, *recent, finding]
        return Past(finding.method, oldest, until_ns)
