"""Who hears of an incident: everyone, nobody, or whoever reads the summary.

An incident is judged when its first record comes, and again with every record of its job while it is held back.
Once it is told it stays told, to its end. What is decided depends on the order of the records and on the silences,
never on when pages are sent, so a restart that reads records again decides as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagnosis.incidents.evidence import hangs
from sinks.webhook.content import Row, headline
from sinks.webhook.inhibition import explains
from sinks.webhook.ledger import Known, Ledger, Summary, Verdict

Silenced = Callable[[Row], bool]
"""Whether an incident is what nobody wants to be paged for."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most so many incidents of a job get a page of their own in a window; the others share a summary.

    The window is in the messages' time. A hang has a page of its own, however many there are.
    """

    pages: int = 5
    window_s: float = 600.0

    @property
    def window_ns(self) -> int:
        """The window in nanoseconds."""
        return int(self.window_s * 1e9)


def judge(job: str, ledger: Ledger, silenced: Silenced, limit: RateLimit) -> dict[str, Verdict]:
    """Decide on every incident of a job that nobody was told of yet; what was decided anew, by incident."""
    decided: dict[str, Verdict] = {}
    # Hangs first, then the widest: what it brought about may have come in the same record.
    for incident, known in sorted(
        ledger.incidents.items(), key=lambda item: (not hangs(item[1].row["cause"]), -len(item[1].row["ranks"]))
    ):
        if known.verdict in {Verdict.TOLD, Verdict.SUMMARISED}:
            continue
        held = known.verdict is not Verdict.UNDECIDED
        verdict = known.verdict if held and known.resolved else _verdict(ledger, known, silenced)
        if verdict is Verdict.TOLD and not _admitted(ledger, known, limit):
            verdict = Verdict.SUMMARISED
            ledger.summarise(incident, headline(job, {**known.row, "state": "open"}), limit.window_ns)
        if verdict is not known.verdict:
            known.verdict = decided[incident] = verdict
    for incident, known in list(ledger.incidents.items()):
        if known.resolved and known.verdict is Verdict.SUMMARISED:
            ledger.summarised_is_over(incident)
        elif known.resolved and known.verdict in {Verdict.INHIBITED, Verdict.SILENCED}:
            ledger.drop(incident)
    return decided


def pending(ledger: Ledger, silenced: Silenced) -> list[str]:
    """The incidents that have news for the receiver; of a silenced one only its end is."""
    return [
        incident
        for incident, known in ledger.incidents.items()
        if known.verdict is Verdict.TOLD
        and known.has_news
        and (known.resolved or not known.delivered_revision or not silenced(known.row))
    ]


def pending_summaries(ledger: Ledger, limit: RateLimit, now_ns: int) -> list[Summary]:
    """The summaries that have news; while one goes on it is told once a window of our own clock."""
    return [
        summary
        for summary in ledger.summaries.values()
        if summary.has_news
        and (not summary.delivered_revision or summary.resolved or now_ns - summary.delivered_ns >= limit.window_ns)
    ]


def _verdict(ledger: Ledger, known: Known, silenced: Silenced) -> Verdict:
    if silenced(known.row):
        return Verdict.SILENCED
    return Verdict.INHIBITED if _explained(ledger, known) else Verdict.TOLD


def _explained(ledger: Ledger, known: Known) -> bool:
    """Whether a known cause explains the incident, or did and the incident has not outlasted it."""
    for incident, cause in ledger.incidents.items():
        if cause.verdict in {Verdict.UNDECIDED, Verdict.INHIBITED}:
            continue
        if incident == known.because:
            known.because_last = cause.extent.last
        if not cause.resolved and explains(cause.row, cause.extent, known.row, known.extent):
            known.because, known.because_last = incident, cause.extent.last
            return True
    cause_is_over = known.because not in ledger.incidents or ledger.incidents[known.because].resolved
    if known.because and cause_is_over and None not in {known.extent.last, known.because_last}:
        return (known.extent.last or 0) <= (known.because_last or 0)
    return False


def _admitted(ledger: Ledger, known: Known, limit: RateLimit) -> bool:
    now_ns = max([*ledger.admitted, known.row["updated_ns"]])
    ledger.admitted = [at_ns for at_ns in ledger.admitted if now_ns - at_ns < limit.window_ns]
    if len(ledger.admitted) >= limit.pages and not hangs(known.row["cause"]):
        return False
    ledger.admitted.append(now_ns)
    return True
