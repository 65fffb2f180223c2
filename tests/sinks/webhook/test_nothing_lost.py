"""Whatever is held back, silenced, limited or restarted: no open incident stays unheard of, no page stays open."""

from __future__ import annotations

from typing import Any

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from schemas.catalogue import INCIDENTS
from schemas.message import Message
from schemas.processor import SavedState
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.delivery import Delivery, PageRefused
from sinks.webhook.ledger import Ledger, Summary
from sinks.webhook.silences import Silence
from sinks.webhook.sink import WebhookSink
from sinks.webhook.verdicts import RateLimit
from tests.sinks.webhook.fake_clock import FakeClock
from tests.sinks.webhook.incidents import incident, record
from tests.sinks.webhook.test_inhibition import gpu, host

JOB = "llama"
LIMIT = RateLimit(pages=2, window_s=600.0)
NAMES = ("host", "gpu", "a", "b", "c")
"""The host can explain the GPU, and nothing else."""


def made(name: str, revision: int, over: bool, last: int) -> dict[str, Any]:
    """A revision; each incident has a device of its own, by which it can be silenced."""
    build = {"host": host, "gpu": gpu}.get(name, lambda **columns: incident(name, ranks=[8], **columns))
    devices = [{"device": f"only:{name}", "kind": "gpu", "downside_nics": 0}]
    state = "resolved" if over else "open"
    return build(revision=revision, state=state, last_iteration=9 + last, devices=devices)


class HeldBack(RuleBasedStateMachine):
    """Incidents of one job, a worker that may die between two cycles, silences, a receiver that takes everything."""

    @initialize()
    def start(self) -> None:
        self.clock = FakeClock()
        self.firing: set[str] = set()
        self.delivery = Delivery("http://receiver/", transport=httpx.MockTransport(self._receive))
        self.log: list[Message] = []
        self.newest: dict[str, dict[str, Any]] = {}
        self.silenced = ""
        self.saved: dict[str, SavedState] = {}
        self.committed = self.position = 0
        self._new_worker()

    @rule(name=st.sampled_from(NAMES), over=st.booleans(), last=st.integers(0, 3))
    def publish(self, name: str, over: bool, last: int) -> None:
        """The next revision of an incident; one that is over stays so."""
        before = self.newest.get(name)
        if before is not None and before["state"] == "resolved":
            return
        row = made(name, 1 if before is None else before["revision"] + 1, over and before is not None, last)
        self.newest[name] = row
        self.log.append(record(row, job=JOB, offset=len(self.log)))

    @rule(name=st.sampled_from(["", *NAMES]))
    def silence(self, name: str) -> None:
        self.silenced = name

    @rule(records=st.integers(1, 4))
    def cycle(self, records: int) -> None:
        """Some records, a flush, the state and the commit."""
        for message in self.log[self.position : self.position + records]:
            list(self.sink.process(message))
        self.position = min(self.position + records, len(self.log))
        self._flush(commit=True)

    @rule()
    def cycle_without_commit(self) -> None:
        self._flush(commit=False)

    @rule(seconds=st.sampled_from([1.0, 700.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(delivered=st.booleans())
    def die(self, delivered: bool) -> None:
        """Between two cycles, or amid one: what was delivered is not saved."""
        if delivered:
            self._save()
            self.sink.flush()
        self._new_worker()

    def teardown(self) -> None:
        self.silenced = ""
        self.clock.now += 700.0
        for message in self.log[self.position :]:
            list(self.sink.process(message))
        self._flush(commit=True)
        open_now = {name for name, row in self.newest.items() if row["state"] == "open"}
        summaries = self._summaries()
        incidents = {name for name in self.firing if not name.startswith("more-")}
        assert incidents <= open_now, "a page stays open"
        assert self.firing - incidents == {summary.id for summary in summaries if not summary.resolved}
        summarised = {name for summary in summaries for name in summary.open}
        unheard = open_now - incidents - summarised
        assert unheard <= {"gpu"}, "an incident stays unheard of"
        self.delivery.close()

    def _receive(self, request: httpx.Request) -> httpx.Response:
        name, _, _ = request.headers["Idempotency-Key"].partition("/")
        (self.firing.discard if b'"status": "resolved"' in request.content else self.firing.add)(name)
        return httpx.Response(200)

    def _summaries(self) -> list[Summary]:
        saved = self.saved.get(JOB)
        return [] if saved is None else list(Ledger.from_bytes(saved.state).summaries.values())

    def _lasting(self, _: int) -> list[Silence]:
        """A silence of one incident, by a device that only it has."""
        return [Silence("s", 1, 0, device=f"only:{self.silenced}")] if self.silenced else []

    def _flush(self, *, commit: bool) -> None:
        self._save()
        self.sink.flush()
        self._save()
        if commit:
            self.committed = self.sink.safe_offsets().get(INCIDENTS, self.committed)

    def _save(self) -> None:
        for job, state in self.sink.changed_states().items():
            assert state is not None
            before = self.saved.get(job, state)
            assert state.offsets[INCIDENTS.name] >= before.offsets[INCIDENTS.name], (
                "control.state would keep the former"
            )
            self.saved[job] = state

    def _new_worker(self) -> None:
        def refuse(_: Message, error: PageRefused) -> None:
            raise error

        self.sink = WebhookSink(
            AlertmanagerWebhook(),
            self.delivery,
            refuse,
            silences=self._lasting,
            limit=LIMIT,
            clock=self.clock,
            sleep=self.clock.sleep,
            now_ns=self.clock.now_ns,
        )
        self.sink.restore(self.saved)
        self.position = self.committed


TestNothingLost = HeldBack.TestCase
TestNothingLost.settings = settings(max_examples=50, stateful_step_count=30)
