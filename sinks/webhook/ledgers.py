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
    """What a page is to be sent of, an incident or a summary; ``news`` where the receiver has not heard it."""

    job: str
    id: str
    subject: Known | Summary
    news: bool

    @property
    def key(self) -> Key:
        """Names the subject."""
        return self.job, self.id

    def delivered(self, at_ns: int) -> None:
        """Note that the receiver was told, at a time of our own clock (ns)."""
        self.subject.delivered_revision, self.subject.delivered_ns = self.subject.revision, at_ns


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
        self._of_job: dict[str, Ledger] = {}
        self._jobs = jobs
        self._silences = silences
        self._limit = limit
        self._link = link
        self._now_ns = now_ns

    @property
    def jobs(self) -> list[str]:
        """The jobs that have a ledger."""
        return list(self._of_job)

    def open(self, job: str) -> None:
        """Begin the ledger of a job that has none."""
        if job not in self._of_job:
            self._of_job[job] = Ledger()

    def restore(self, job: str, state: bytes, form: str) -> None:
        """Go on from a saved ledger; raises ``UndecodableMessage``."""
        self._of_job[job] = Ledger.from_bytes(state, form)

    def saved(self, job: str) -> bytes:
        """A ledger's saved form."""
        return self._of_job[job].to_bytes()

    def over(self) -> set[str]:
        """The jobs that have ended and of which nothing is open and nothing waits."""
        empty = {job: self._jobs.get(job) for job, ledger in self._of_job.items() if ledger.empty}
        return {job for job, known in empty.items() if known is not None and known.ended_ns is not None}

    def drop(self, job: str) -> None:
        """Forget a job."""
        del self._of_job[job]

    def take(self, job: str, row: Row) -> bool:
        """Take a record of an incident in; whether it is a revision that was not known."""
        return self._of_job[job].take(row)

    def judge(self, job: str) -> dict[str, Verdict]:
        """Decide on what nobody was told of yet; what was decided anew, by incident."""
        return judge(job, self._of_job[job], self._silenced(job), self._limit)

    def forget(self, job: str, incident: str) -> None:
        """Forget an incident as if it had never been known."""
        self._of_job[job].forget(incident)

    def settle(self, linger_ns: int) -> set[str]:
        """Forget the incidents that are over and were told ``linger_ns`` ago; the jobs of which there were any."""
        now_ns = self._now_ns()
        return {job for job, ledger in self._of_job.items() if ledger.settle(now_ns, linger_ns)}

    def waiting(self, job: str | None = None) -> Iterator[Key]:
        """The incidents that have news for the receiver, of all jobs or of one."""
        for name in self._of_job if job is None else {job} & self._of_job.keys():
            for incident in pending(self._of_job[name], self._silenced(name)):
                yield name, incident

    def news(self) -> list[Due]:
        """What the receiver has not heard: incidents, the oldest of a job first, then summaries."""
        incidents = [
            Due(job, incident, self._of_job[job].incidents[incident], news=True) for job, incident in self.waiting()
        ]
        summaries = [
            Due(job, summary.id, summary, news=True)
            for job, ledger in self._of_job.items()
            for summary in pending_summaries(ledger, self._limit, self._now_ns())
        ]
        return [*incidents, *summaries]

    def told(self) -> Iterator[Due]:
        """What the receiver has heard and may have forgotten: what goes on, and what has not been over for long."""
        for job, ledger in self._of_job.items():
            for incident, known in ledger.incidents.items():
                if known.delivered_revision:
                    yield Due(job, incident, known, news=False)
            for summary in ledger.summaries.values():
                if summary.delivered_revision and not summary.resolved:
                    yield Due(job, summary.id, summary, news=False)

    def page(self, due: Due) -> Page:
        """What is to be sent."""
        if isinstance(due.subject, Summary):
            return summary_page(due.job, due.subject, self._link)
        return incident_page(due.job, due.subject.row, self._jobs.get(due.job), self._link)

    def _silenced(self, job: str) -> Silenced:
        lasting = list(self._silences(self._now_ns()))
        return lambda row: any(silence.covers(job, row) for silence in lasting)
