"""The processor ``page``: reads incidents, tells the receiver of every revision that is news to it.

What holds:

- A revision is sent only if it is higher than the last delivered one of its incident. Of the revisions that wait,
  the newest alone is sent, so an outage ends with one page an incident.
- ``process`` queues, ``flush`` delivers, and offsets are committed after it: nothing is lost while the receiver is
  away. ``flush`` tries again within its patience and then raises; what it could not deliver stays queued, and the
  worker may call it again or restart from its committed offset. So does what a slow receiver leaves no time for.
- What waits is saved before it is delivered. After a crash between delivery and commit the records above the committed
  offset come again, under the same ids and revisions, and what was saved says which of them are older than what the
  receiver may have: a page is repeated, under its ``Idempotency-Key`` (id/revision), but never followed by an older
  one. Only a full queue is delivered unsaved.
- An incident that is over before anyone was told of it is sent once, as resolved: nobody is woken for what has
  passed, and a firing page that was delivered just before a crash is never left open.
- What is held back (``verdicts.py``) is saved, and told when the reason has gone. Of an incident that nobody was told
  of, nobody is told the end (were it told just before a crash, and silenced before the restart, its page would stay).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import structlog
from prometheus_client import CollectorRegistry
from tenacity.nap import sleep_using_event

from diagnosis.job import Job
from schemas.catalogue import INCIDENTS
from schemas.errors import ReceiverError
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from schemas.topic import Topic
from sinks.webhook.content import Row
from sinks.webhook.delivery import PageRefused, Post, ReceiverAway
from sinks.webhook.ledger import FORMAT, FORMER_FORMAT, Summary, Verdict
from sinks.webhook.ledgers import Due, Key, Ledgers
from sinks.webhook.metrics import PageMetrics
from sinks.webhook.page import Page
from sinks.webhook.receiver import Receiver
from sinks.webhook.retry import Patience, RetryPolicy
from sinks.webhook.silences import Silence
from sinks.webhook.verdicts import RateLimit

_log = structlog.get_logger(__name__)

Refusal = Callable[[Message, PageRefused], None]
"""Takes a record that the receiver will never accept, and why; returns once it is safe in dead_letters."""


class WebhookSink:
    """Pages one receiver; a ``Sink`` and ``Stateful``, one instance a partition.

    ``jobs`` says where ranks run and which jobs have ended; an ended job with no open incident is forgotten.
    ``refusal`` takes what the receiver refuses for good. ``silences`` are those that last at a time (ns since the
    epoch); ``limit`` bounds the pages of a job; ``link`` leads to more (``content.incident_page``). ``max_waiting``
    bounds the queue: a full one is delivered before more is taken. ``clock`` and ``sleep`` count seconds, ``now_ns``
    tells the time; the default ``sleep`` ends when ``stop`` is called.
    """

    name = "page"
    reads: tuple[Topic, ...] = (INCIDENTS,)
    writes: tuple[Topic, ...] = ()

    def __init__(
        self,
        receiver: Receiver,
        delivery: Post,
        refusal: Refusal,
        *,
        jobs: Mapping[str, Job] | None = None,
        silences: Callable[[int], Iterable[Silence]] = lambda _: (),
        limit: RateLimit | None = None,
        link: str = "",
        policy: RetryPolicy | None = None,
        metrics: PageMetrics | None = None,
        max_waiting: int = 256,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._receiver = receiver
        self._delivery = delivery
        self._jobs: Mapping[str, Job] = {} if jobs is None else jobs
        self._refusal = refusal
        self._policy = policy or RetryPolicy()
        self._metrics = metrics or PageMetrics(CollectorRegistry())
        self._max_waiting = max_waiting
        self._clock = clock
        self._now_ns = now_ns
        self._stopping = threading.Event()
        self._sleep = sleep_using_event(self._stopping) if sleep is None else sleep
        self._ledgers = Ledgers(self._jobs, silences, limit or RateLimit(), link, now_ns)
        self._counted: dict[str, int] = {}  # a job's records below are in its ledger
        self._records: dict[Key, Message] = {}
        self._waiting: Counter[str] = Counter()  # how many incidents of a job waited when that was looked at last
        self._sent_at: dict[Key, float] = {}
        self._changed: set[str] = set()
        self._next_offset = -1  # of the partition
        self._away = False

    def process(self, message: Message) -> Iterable[Message]:
        """Queue the revisions that are news.

        Raises ``MessageError`` for a bad record, and what ``flush`` raises where the queue was full: the record is
        not taken then.
        """
        if self._waiting.total() >= self._max_waiting:
            self.flush()
        self._next_offset = message.offset + 1
        if message.offset >= self._counted.get(message.job, -1):
            rows = decode(message, INCIDENTS).to_pylist()
            self._ledgers.open(message.job)
            for row in rows:
                self._take(message, row)
            self._counted[message.job] = self._next_offset
            self._changed.add(message.job)
            self._judge(message.job)
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Nothing: what is due by time is sent by ``flush``."""
        return ()

    def flush(self) -> None:
        """Deliver what is queued, and what the receiver wants to hear again by now, as far as the policy's time goes.

        Raises ``ReceiverError`` when the receiver stayed away too long or takes no pages at all; what was not
        delivered stays queued.
        """
        self._judge_all()
        if self._due():
            self._deliver()
        resending = self._receiver.resending
        linger_ns = 0 if resending is None else int(resending.linger_s * 1e9)
        self._changed |= self._ledgers.settle(linger_ns)
        self._forget_what_is_past()

    def stop(self) -> None:
        """End the waiting between attempts; a flush under way raises. May be called from any thread."""
        self._stopping.set()

    def safe_offsets(self) -> Mapping[Topic, int]:
        """The oldest record that is still to be delivered, or the next one."""
        offset = self._held_at(None, self._next_offset)
        return {} if offset < 0 else {INCIDENTS: offset}

    def changed_states(self) -> Mapping[str, SavedState | None]:
        """What is known of every job of which something has changed, as it will be delivered; None for a job that is
        over.
        """
        self._judge_all()
        self._keep_waiting()  # or what no longer waits would hold back one state and not the next
        over = self._ledgers.over()
        states: dict[str, SavedState | None] = {job: self._state(job) for job in self._changed - over}
        for job in over:
            self._ledgers.drop(job)
            del self._counted[job]
            states[job] = None
        self._changed.clear()
        return states

    def restore(self, states: Mapping[str, SavedState]) -> None:
        """Go on from saved states; raises ``MessageError`` for one that this version cannot read."""
        for job, saved in states.items():
            form = FORMER_FORMAT if saved.format == FORMER_FORMAT else FORMAT
            self._ledgers.restore(job, saved.in_format(form), form)
            self._counted[job] = saved.offsets.get(INCIDENTS.name, -1)
        self._keep_waiting()

    def _take(self, message: Message, row: Row) -> None:
        key = (message.job, row["id"])
        waited = key in set(self._ledgers.waiting(message.job))
        if self._ledgers.take(message.job, row):
            self._records[key] = message
            if waited:
                self._metrics.superseded.inc()

    def _judge_all(self) -> None:
        """Decide anew: silences may have ended."""
        for job in self._ledgers.jobs:
            self._judge(job)

    def _judge(self, job: str) -> None:
        for incident, verdict in self._ledgers.judge(job).items():
            self._changed.add(job)
            if verdict is not Verdict.TOLD:
                _log.info("no page of its own", job=job, incident=incident, verdict=verdict.value)
                self._metrics.held_back.labels(verdict.value).inc()
        self._waiting[job] = len(list(self._ledgers.waiting(job)))

    def _due(self) -> list[Due]:
        """What is to be sent now: first the news, then what the receiver wants to hear again."""
        news = self._ledgers.news()
        resending = self._receiver.resending
        if resending is None:
            return news
        unheard, before = {due.key for due in news}, self._clock() - resending.every_s
        # What this process has not sent yet it may have sent, in its former life, any time ago.
        long_ago = (due for due in self._ledgers.told() if self._sent_at.get(due.key, before) <= before)
        return [*news, *(due for due in long_ago if due.key not in unheard)]

    def _deliver(self) -> None:
        patience = Patience(self._policy, self._clock)
        retrying = patience.retrying(self._sleep, self._stopping.is_set, self._tell)
        try:
            retrying(self._try_all, patience)
        except ReceiverAway as error:
            raise ReceiverError(
                f"page: {len(self._due())} incidents wait, none was taken for the last "
                f"{self._policy.patience_s:g} s; they stay on {INCIDENTS.name} until the receiver is back: {error}"
            ) from error

    def _try_all(self, patience: Patience) -> None:
        """Try every page that is due once, unless one shows that the others would fare the same, or time is up."""
        failure: ReceiverAway | None = None
        until = self._clock() + self._policy.flush_s
        for number, due in enumerate(self._due()):
            if number and self._clock() >= until:
                break
            page = self._ledgers.page(due)
            try:
                self._delivery.post(self._receiver.request(page, self._now_ns()), page.idempotency_key)
            except PageRefused as error:
                self._refuse(due, page, error)
            except ReceiverAway as error:
                self._metrics.failed_attempts.labels(error.reason).inc()
                failure = error
                if error.wholly:
                    break
            except ReceiverError:
                self._metrics.failed_attempts.labels("final").inc()
                raise
            else:
                self._note(due, page)
                patience.delivered()
        if failure is not None:
            raise failure

    def _note(self, due: Due, page: Page) -> None:
        if self._away:
            self._away = False
            _log.info("receiver back", waiting=len(self._due()))
        self._sent_at[due.key] = self._clock()
        if not due.news:
            self._metrics.resent.inc()
            return
        _log.info("page delivered", job=page.job, incident=page.id, revision=page.revision, state=page.status)
        due.delivered(self._now_ns())
        self._changed.add(due.job)
        self._metrics.delivered.labels(page.status).inc()

    def _refuse(self, due: Due, page: Page, error: PageRefused) -> None:
        """Give a refused page away. It is not noted as delivered, so a replay from dead_letters is sent."""
        self._metrics.refused.inc()
        _log.error("page refused", incident=page.id, revision=page.revision, job=page.job, error=str(error))
        self._sent_at[due.key] = self._clock()
        self._changed.add(due.job)
        if isinstance(due.subject, Summary):
            due.subject.delivered_revision = page.revision  # nothing is lost with it: its incidents are on their topic
        elif due.news:
            record = self._records[due.key] if due.key in self._records else _record(due.job, due.subject.row)
            self._refusal(record, error)
            self._ledgers.forget(due.job, due.id)

    def _tell(self, failure: ReceiverAway) -> None:
        self._away = True
        _log.warning("receiver away", waiting=len(self._due()), error=str(failure))

    def _keep_waiting(self) -> None:
        """Keep of the records only those that wait, and count what does."""
        waiting = set(self._ledgers.waiting())
        self._waiting = Counter(job for job, _ in waiting)
        self._records = {key: message for key, message in self._records.items() if key in waiting}

    def _forget_what_is_past(self) -> None:
        """Let go of the records of delivered pages, and of when pages were sent that nobody will send again."""
        self._keep_waiting()
        told = {due.key for due in self._ledgers.told()} if self._receiver.resending else set()
        self._sent_at = {key: at for key, at in self._sent_at.items() if key in told}

    def _held_at(self, job: str | None, following: int) -> int:
        """The offset of the oldest record that waits, of all jobs or of one; ``following`` where none does."""
        waiting = (key for key in self._ledgers.waiting(job) if key in self._records)
        return min((self._records[key].offset for key in waiting), default=following)

    def _state(self, job: str) -> SavedState:
        offset = self._held_at(job, self._counted[job])
        return SavedState({INCIDENTS.name: offset}, FORMAT, self._ledgers.saved(job))


def _record(job: str, row: Row) -> Message:
    """A record of analysis.incidents that holds one incident: of one that came before a restart."""
    return encode(INCIDENTS, INCIDENTS.from_rows([dict(row)]), job=job, watermark_ns=row["updated_ns"])
