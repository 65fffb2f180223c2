"""The processor ``page``: reads incidents, tells the receiver of every revision that is news to it.

What holds:

- A revision is sent only if it is higher than the last delivered one of its incident. Of the revisions that wait,
  the newest alone is sent, so an outage ends with one page an incident.
- ``process`` queues, ``flush`` delivers, and offsets are committed after it: nothing is lost while the receiver is
  away. ``flush`` tries again within its patience and then raises; what it could not deliver stays queued, and the
  worker may call it again or restart from its committed offset.
- After a crash between delivery and commit, the records above the committed offset come again under the same ids
  and revisions. The first of them may be older than what the receiver has; the header ``Idempotency-Key``
  (id/revision) tells it so, and the newest follows.
- An incident that is over before anyone was told of it is sent once, as resolved: nobody is woken for what has
  passed, and a firing page that was delivered just before a crash is never left open.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry
from tenacity.nap import sleep_using_event

from diagnosis.job import Job
from schemas.catalogue import INCIDENTS
from schemas.errors import ReceiverError
from schemas.message import Message
from schemas.processor import SavedState
from schemas.topic import Topic
from sinks.webhook.delivered import FORMAT, DeliveredRevisions
from sinks.webhook.delivery import Delivery, PageRefused, ReceiverAway
from sinks.webhook.metrics import PageMetrics
from sinks.webhook.page import Page, pages
from sinks.webhook.receiver import Receiver
from sinks.webhook.retry import Patience, RetryPolicy

_log = structlog.get_logger(__name__)

Refusal = Callable[[Message, PageRefused], None]
"""Takes a record that the receiver will never accept, and why; returns once it is safe in dead_letters."""


@dataclass(slots=True)
class _Paged:
    """What is known of one job: what was delivered, and the next offset that is news."""

    delivered: DeliveredRevisions = field(default_factory=DeliveredRevisions)
    next_offset: int = -1


class WebhookSink:
    """Pages one receiver; a ``Sink`` and ``Stateful``, one instance a partition.

    ``jobs`` says where ranks run and which jobs have ended; an ended job with no open incident is forgotten.
    ``refusal`` takes what the receiver refuses for good. ``max_waiting`` bounds the queue: a full one is delivered
    before more is taken. ``clock`` and ``sleep`` count seconds; the default ``sleep`` ends when ``stop`` is called.
    """

    name = "page"
    reads: tuple[Topic, ...] = (INCIDENTS,)
    writes: tuple[Topic, ...] = ()

    def __init__(
        self,
        receiver: Receiver,
        delivery: Delivery,
        refusal: Refusal,
        *,
        jobs: Mapping[str, Job] | None = None,
        policy: RetryPolicy | None = None,
        metrics: PageMetrics | None = None,
        max_waiting: int = 256,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._receiver = receiver
        self._delivery = delivery
        self._jobs: Mapping[str, Job] = {} if jobs is None else jobs
        self._refusal = refusal
        self._policy = policy or RetryPolicy()
        self._metrics = metrics or PageMetrics(CollectorRegistry())
        self._max_waiting = max_waiting
        self._clock = clock
        self._stopping = threading.Event()
        self._sleep = sleep_using_event(self._stopping) if sleep is None else sleep
        self._waiting: dict[tuple[str, str], Page] = {}
        self._paged: dict[str, _Paged] = {}
        self._changed: set[str] = set()
        self._next_offset = -1
        self._away = False

    def process(self, message: Message) -> Iterable[Message]:
        """Queue the revisions that are news.

        Raises ``MessageError`` for a bad record, and what ``flush`` raises where the queue was full: the record is
        not taken then.
        """
        if len(self._waiting) >= self._max_waiting:
            self.flush()
        self._next_offset = message.offset + 1
        paged = self._paged.get(message.job)
        if paged is None or message.offset >= paged.next_offset:
            for page in pages(message, self._jobs.get(message.job)):
                self._queue(page)
            self._paged_of(message.job).next_offset = self._next_offset
            self._changed.add(message.job)
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Nothing: paging has no time-outs of its own."""
        return ()

    def flush(self) -> None:
        """Deliver everything queued.

        Raises ``ReceiverError`` when the receiver stayed away too long or takes no pages at all; what was not
        delivered stays queued.
        """
        if not self._waiting:
            return
        patience = Patience(self._policy, self._clock)
        retrying = patience.retrying(self._sleep, self._stopping.is_set, self._tell)
        try:
            retrying(self._try_all, patience)
        except ReceiverAway as error:
            raise ReceiverError(
                f"page: {len(self._waiting)} incidents wait, none was taken for the last "
                f"{self._policy.patience_s:g} s; they stay on {INCIDENTS.name} until the receiver is back: {error}"
            ) from error

    def stop(self) -> None:
        """End the waiting between attempts; a flush under way raises. May be called from any thread."""
        self._stopping.set()

    def safe_offsets(self) -> Mapping[Topic, int]:
        """The oldest record that is still to be delivered, or the next one."""
        waiting = [page.message.offset for page in self._waiting.values()]
        offset = min(waiting, default=self._next_offset)
        return {} if offset < 0 else {INCIDENTS: offset}

    def changed_states(self) -> Mapping[str, SavedState | None]:
        """The revisions delivered of every job that saw a record; None for a job that is over."""
        over = {job for job in self._paged if self._over(job)}
        states: dict[str, SavedState | None] = {
            job: SavedState({INCIDENTS.name: self._safe_offset(job)}, FORMAT, self._paged[job].delivered.to_bytes())
            for job in self._changed - over
        }
        for job in over:
            del self._paged[job]
            states[job] = None
        self._changed.clear()
        return states

    def restore(self, states: Mapping[str, SavedState]) -> None:
        """Go on from saved states; raises ``MessageError`` for one that this version cannot read."""
        for job, saved in states.items():
            delivered = DeliveredRevisions.from_bytes(saved.in_format(FORMAT))
            self._paged[job] = _Paged(delivered, saved.offsets.get(INCIDENTS.name, -1))

    def _queue(self, page: Page) -> None:
        key = (page.job, page.incident)
        queued = self._waiting.get(key)
        known = self._paged_of(page.job).delivered[page.incident] if queued is None else queued.revision
        if page.revision <= known:
            return
        if queued is not None:
            self._metrics.superseded.inc()
        self._waiting[key] = page

    def _try_all(self, patience: Patience) -> None:
        """Try every queued page once, oldest incident first, unless one shows that the others would fare the same."""
        failure: ReceiverAway | None = None
        for page in list(self._waiting.values()):
            try:
                self._delivery.post(self._receiver.request(page), page.idempotency_key)
            except PageRefused as error:
                self._refuse(page, error)
            except ReceiverAway as error:
                self._metrics.failed_attempts.labels(error.reason).inc()
                failure = error
                if error.wholly:
                    break
            else:
                self._note(page)
                patience.delivered()
        if failure is not None:
            raise failure

    def _note(self, page: Page) -> None:
        if self._away:
            self._away = False
            _log.info("receiver back", waiting=len(self._waiting))
        state = "resolved" if page.resolved else "firing"
        _log.info("page delivered", job=page.job, incident=page.incident, revision=page.revision, state=state)
        del self._waiting[page.job, page.incident]
        self._paged_of(page.job).delivered.record(page.incident, page.revision, resolved=page.resolved)
        self._changed.add(page.job)
        self._metrics.delivered.labels(state).inc()

    def _refuse(self, page: Page, error: PageRefused) -> None:
        """Give a refused page away. It is not noted as delivered, so a replay from dead_letters is sent."""
        self._metrics.refused.inc()
        _log.error("page refused", incident=page.incident, revision=page.revision, job=page.job, error=str(error))
        self._refusal(page.message, error)
        del self._waiting[page.job, page.incident]

    def _tell(self, failure: ReceiverAway) -> None:
        self._away = True
        _log.warning("receiver away", waiting=len(self._waiting), error=str(failure))

    def _paged_of(self, job: str) -> _Paged:
        return self._paged.setdefault(job, _Paged())

    def _safe_offset(self, job: str) -> int:
        waiting = (page.message.offset for page in self._waiting.values() if page.job == job)
        return min(waiting, default=self._paged[job].next_offset)

    def _over(self, job: str) -> bool:
        if self._paged[job].delivered.any_open or any(waiting == job for waiting, _ in self._waiting):
            return False
        known = self._jobs.get(job)
        return known is not None and known.ended_ns is not None
