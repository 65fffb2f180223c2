"""The ledgers of the jobs of one partition, and the pages that are due of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from diagnosis.job import Job
from sinks.webhook.content import Row, incident_page
from sinks.webhook.ledger import Known, Ledger, Summary, Verdict
from sinks.webhook.page import Page
from sinks.webhook.silences import Silence
from sinks.webhook.summary import summary_page
from sinks.webhook.verdicts import RateLimit, Silenced, judge, pending, pending_summaries

Key = tuple[str, str]
"""Job, and id of an incident or a summary."""


@dataclass(frozen=True, slots=True)
class Due:
    """A page to be sent, and what it tells of; ``news`` where the receiver has not heard it."""

    page: Page
    told_of: Known | Summary
    news: bool

    @property
    def key(self) -> Key:
        """Names what it tells of."""
        return self.page.job, self.page.id


class Ledgers:
    """Takes records of incidents and says what is due.

    ``jobs`` says where ranks run; ``silences`` are those that last at a time (ns since the epoch); ``limit`` bounds
    the pages of a job; ``link`` leads to more (``content.incident_page``); ``now_ns`` tells the time.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        silences: Callable[[int], Iterable[Silence]],
        limit: RateLimit,
        link: str,
        now_ns: Callable[[], int],
    ) -> None:
        self.of: dict[str, Ledger] = {}
        self._jobs = jobs
        self._silences = silences
        self._limit = limit
        self._link = link
        self._now_ns = now_ns

    def take(self, job: str, row: Row) -> bool:
        """Take a record of an incident in; whether it is a revision that was not known."""
        return self.of[job].take(row)

    def judge(self, job: str) -> dict[str, Verdict]:
        """Decide on what nobody was told of yet; what was decided anew, by incident."""
        return judge(job, self.of[job], self._silenced(job), self._limit)

    def waiting(self, job: str | None = None) -> Iterator[Key]:
        """The incidents that have news for the receiver, of all jobs or of one."""
        for name in self.of if job is None else {job} & set(self.of):
            for incident in pending(self.of[name], self._silenced(name)):
                yield name, incident

    def news(self) -> list[Due]:
        """What the receiver has not heard: incidents, the oldest of a job first, then summaries."""
        incidents = [self._incident(job, incident, news=True) for job, incident in self.waiting()]
        summaries = [
            Due(summary_page(job, summary, self._link), summary, news=True)
            for job, ledger in self.of.items()
            for summary in pending_summaries(ledger, self._limit, self._now_ns())
        ]
        return [*incidents, *summaries]

    def told(self) -> Iterator[Due]:
        """What the receiver has heard and may have forgotten: what goes on, and what has not been over for long."""
        for job, ledger in self.of.items():
            for incident, known in ledger.incidents.items():
                if known.told:
                    yield self._incident(job, incident, news=False)
            for summary in ledger.summaries.values():
                if summary.told and not summary.resolved:
                    yield Due(summary_page(job, summary, self._link), summary, news=False)

    def _incident(self, job: str, incident: str, *, news: bool) -> Due:
        known = self.of[job].incidents[incident]
        return Due(incident_page(job, known.row, self._jobs.get(job), self._link), known, news)

    def _silenced(self, job: str) -> Silenced:
        lasting = list(self._silences(self._now_ns()))
        return lambda row: any(silence.covers(job, row) for silence in lasting)
