"""Any interleaving of revisions, outages, lost answers, commits and crashes leaves the receiver up to date."""

from __future__ import annotations

from typing import Literal

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas.catalogue import INCIDENTS
from schemas.errors import ReceiverError
from schemas.message import Message
from schemas.processor import SavedState
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.delivery import Delivery, PageRefused
from sinks.webhook.retry import RetryPolicy
from sinks.webhook.sink import WebhookSink
from tests.sinks.webhook.fake_clock import FakeClock
from tests.sinks.webhook.incidents import incident, record

JOBS = ("a", "b")
INCIDENT_IDS = ("x", "y", "z")
MOODS = ("there", "away", "fails", "loses answers", "takes every other")
Mood = Literal["there", "away", "fails", "loses answers", "takes every other"]
Incident = tuple[str, str]
"""Job and id."""


class _Receiver:
    """Knows what it was told; whether it answers is another matter."""

    def __init__(self) -> None:
        self.mood: Mood = "there"
        self.known: dict[Incident, int] = {}
        self.steps: list[tuple[Incident, int, bool]] = []
        """Each page taken: the incident, its revision, whether an older one came after a newer."""
        self._bodies: dict[tuple[Incident, int], bytes] = {}
        self._turn = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self._turn += 1
        if self.mood == "away":
            raise httpx.ConnectError("refused")
        if self.mood == "fails" or (self.mood == "takes every other" and self._turn % 2):
            return httpx.Response(500, stream=httpx.ByteStream(b""))
        self._take(request)
        if self.mood == "loses answers":
            raise httpx.ReadTimeout("lost")
        return httpx.Response(200)

    def _take(self, request: httpx.Request) -> None:
        name, _, revision = request.headers["Idempotency-Key"].partition("/")
        told = (name.split("-")[0], name), int(revision)
        assert self._bodies.setdefault(told, request.content) == request.content
        newest = self.known.get(told[0], 0)
        self.steps.append((*told, told[1] < newest))
        self.known[told[0]] = max(newest, told[1])


class Paging(RuleBasedStateMachine):
    """A log of incidents, a worker that reads it, a receiver."""

    @initialize()
    def start(self) -> None:
        self.receiver = _Receiver()
        self.clock = FakeClock()
        self.delivery = Delivery("http://receiver/", transport=httpx.MockTransport(self.receiver))
        self.log: list[Message] = []
        self.published: dict[Incident, int] = {}
        self.offsets: dict[tuple[Incident, int], list[int]] = {}
        self.saved: dict[str, SavedState] = {}
        self.committed = 0
        self.position = 0
        self._new_worker()

    @rule(
        job=st.sampled_from(JOBS),
        name=st.sampled_from(INCIDENT_IDS),
        step=st.sampled_from([1, 1, 1, 2, 0, -1]),
    )
    def publish(self, job: str, name: str, step: int) -> None:
        """A higher revision; or one that was published before, as after a restart of the incidents worker."""
        known: Incident = (job, f"{job}-{name}")
        revision = max(1, self.published.get(known, 0) + step)
        self.published[known] = max(revision, self.published.get(known, 0))
        self.offsets.setdefault((known, revision), []).append(len(self.log))
        # One revision is one content, however often it is published.
        state = "resolved" if revision % 3 == 0 else "open"
        self.log.append(record(incident(known[1], revision, state), job=job, offset=len(self.log)))

    @rule(mood=st.sampled_from(MOODS))
    def receiver_is(self, mood: Mood) -> None:
        self.receiver.mood = mood

    @precondition(lambda self: self.position < len(self.log))
    @rule(records=st.integers(1, 5))
    def read(self, records: int) -> None:
        """A batch, not yet flushed."""
        for message in self.log[self.position : self.position + records]:
            self.sink.process(message)
        self.position = min(self.position + records, len(self.log))

    @rule()
    def flush(self) -> None:
        """Save, deliver, save; a worker whose receiver is away holds its offset and goes on."""
        self._save(commit=False)
        if self._flushed():
            self._save()

    @invariant()
    def nothing_older_comes_after_something_newer(self) -> None:
        assert not any(older for *_, older in self.receiver.steps)

    @invariant()
    def what_is_committed_is_known(self) -> None:
        for (known, revision), offsets in self.offsets.items():
            if min(offsets) < self.committed:
                assert self.receiver.known.get(known, 0) >= revision

    def teardown(self) -> None:
        self.receiver.mood = "there"
        for message in self.log[self.position :]:
            self.sink.process(message)
        assert self._flushed()
        assert self.receiver.known == self.published
        self.delivery.close()

    def _new_worker(self) -> None:
        policy = RetryPolicy(first_wait_s=1.0, longest_wait_s=2.0, patience_s=3.0)
        self.sink = WebhookSink(
            AlertmanagerWebhook(),
            self.delivery,
            self._nothing_is_refused,
            policy=policy,
            clock=self.clock,
            sleep=self.clock.sleep,
        )
        self.sink.restore(self.saved)
        self.position = self.committed

    def _flushed(self) -> bool:
        try:
            self.sink.flush()
        except ReceiverError:
            return False
        return True

    def _save(self, commit: bool = True) -> None:
        for job, state in self.sink.changed_states().items():
            assert state is not None
            before = self.saved.get(job, state)
            assert state.offsets[INCIDENTS.name] >= before.offsets[INCIDENTS.name], (
                "control.state would keep the former"
            )
            self.saved[job] = state
        if commit:
            self.committed = self.sink.safe_offsets().get(INCIDENTS, self.committed)

    @staticmethod
    def _nothing_is_refused(message: Message, error: PageRefused) -> None:
        raise AssertionError(error)


class PagingWithCrashes(Paging):
    """A crash repeats what was in flight, and brings nothing older than what was delivered."""

    @rule(begun=st.booleans(), flushed=st.booleans(), saved=st.booleans(), committed=st.booleans())
    def crash(self, begun: bool, flushed: bool, saved: bool, committed: bool) -> None:
        """Anywhere between saving what waits, the delivery, saving what was delivered and the commit, in this order."""
        if begun:
            self._save(commit=False)
            if flushed and self._flushed() and saved:
                self._save(commit=committed)
        self._new_worker()


TestPagingWithoutCrashes = Paging.TestCase
TestPagingWithoutCrashes.settings = settings(max_examples=50, stateful_step_count=30)
TestPagingWithCrashes = PagingWithCrashes.TestCase
TestPagingWithCrashes.settings = settings(max_examples=50, stateful_step_count=30)
