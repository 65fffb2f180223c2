"""What is held back, summarised and sent again, as the receiver sees it. Time passes only when a test lets it."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from diagnosis.job import Job
from schemas.catalogue import INCIDENTS
from schemas.errors import ReceiverError
from schemas.message import Message, decode
from schemas.processor import SavedState
from sinks.webhook.alertmanager import RESENDING, Alertmanager
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.content import Row, incident_page
from sinks.webhook.delivery import Delivery, PageRefused
from sinks.webhook.metrics import PageMetrics
from sinks.webhook.page import Page
from sinks.webhook.receiver import Receiver
from sinks.webhook.silences import Silence
from sinks.webhook.sink import WebhookSink
from sinks.webhook.verdicts import RateLimit
from tests.sinks.webhook.fake_clock import FakeClock
from tests.sinks.webhook.incidents import incident, record
from tests.sinks.webhook.local_receiver import Answer, LocalReceiver
from tests.sinks.webhook.test_inhibition import gpu, host

NAME = incident()["id"]


class Worker:
    """A sink that can be killed and started anew from what it saved; ``silenced`` may change at any time, and was
    ``asked`` for so many times."""

    def __init__(self, receiver: LocalReceiver, clock: FakeClock, service: Receiver | None = None) -> None:
        self.registry = CollectorRegistry()
        self.refused: list[Message] = []
        self.silenced: list[Silence] = []
        self.asked = 0
        self.delivery = Delivery(receiver.url)
        self.jobs: dict[str, Job] = {}
        self._service = service or AlertmanagerWebhook()
        self._clock = clock
        self._saved: dict[str, SavedState] = {}
        self._metrics = PageMetrics(self.registry)
        self.restart()

    def restart(self) -> None:
        """Begin from what was saved last."""
        self.sink = WebhookSink(
            self._service,
            self.delivery,
            self._refuse,
            jobs=self.jobs,
            silences=self._lasting,
            metrics=self._metrics,
            limit=RateLimit(pages=3, window_s=600.0),
            clock=self._clock,
            sleep=self._clock.sleep,
            now_ns=self._clock.now_ns,
        )
        self.sink.restore(self._saved)

    def take(self, offset: int, *rows: dict[str, Any], job: str = "llama") -> None:
        """A record, and a cycle."""
        list(self.sink.process(record(*rows, job=job, offset=offset)))
        self.cycle()

    def cycle(self) -> None:
        """Flush, and save what has changed."""
        self.sink.flush()
        self.save()

    def save(self) -> None:
        """Keep the states that have changed."""
        for job, state in self.sink.changed_states().items():
            if state is None:
                self._saved.pop(job, None)
            else:
                self._saved[job] = state

    def counted(self, name: str, **labels: str) -> float:
        """A counter's value."""
        return self.registry.get_sample_value(f"offbeat_{name}_total", labels) or 0.0

    def _lasting(self, now_ns: int) -> Iterable[Silence]:
        self.asked += 1
        return [silence for silence in self.silenced if silence.until_ns > now_ns]

    def _refuse(self, message: Message, _: PageRefused) -> None:
        self.refused.append(message)


@pytest.fixture
def worker(receiver: LocalReceiver, clock: FakeClock) -> Iterator[Worker]:
    made = Worker(receiver, clock)
    yield made
    made.delivery.close()


@pytest.fixture
def resending(receiver: LocalReceiver, clock: FakeClock) -> Iterator[Worker]:
    made = Worker(receiver, clock, Alertmanager())
    yield made
    made.delivery.close()


def until(clock: FakeClock, seconds: float, **about: str) -> Silence:
    return Silence("s", clock.now_ns() + int(seconds * 1e9), clock.now_ns(), **about)


def test_a_consequence_is_not_paged_and_counted(worker: Worker, receiver: LocalReceiver) -> None:
    worker.take(0, host(), gpu())
    worker.take(1, gpu(revision=2, state="resolved"))
    assert receiver.keys == ["host/1"]
    assert worker.counted("incidents_held_back", verdict="inhibited") == 1
    assert worker.sink.safe_offsets() == {INCIDENTS: 2}


def test_a_consequence_that_outlasts_its_cause_is_paged_after_a_restart_too(
    worker: Worker, receiver: LocalReceiver
) -> None:
    worker.take(0, host(last_iteration=9), gpu(last_iteration=9))
    worker.restart()
    worker.take(1, host(revision=2, state="resolved", last_iteration=9))
    worker.restart()
    worker.take(2, gpu(last_iteration=12))
    assert receiver.keys == ["host/1", "host/2", "gpu/1"]


def test_a_cause_that_the_receiver_refuses_explains_nothing(worker: Worker, receiver: LocalReceiver) -> None:
    """Nobody heard of it: its consequence is the only page that there can be."""
    receiver.answers.append(Answer(400))
    worker.take(0, host(), gpu())
    worker.cycle()
    assert receiver.keys == ["host/1", "gpu/1"]


def test_a_silence_holds_back_and_its_end_pages_without_a_record(
    worker: Worker, receiver: LocalReceiver, clock: FakeClock
) -> None:
    worker.silenced = [until(clock, 60, device="gpu:host0/*")]
    worker.take(0, incident(), incident("elsewhere", devices=[]))
    assert receiver.keys == ["elsewhere/1"]
    worker.restart()
    clock.now += 59
    worker.cycle()
    assert receiver.keys == ["elsewhere/1"]
    clock.now += 1
    worker.cycle()
    worker.cycle()
    assert receiver.keys == ["elsewhere/1", f"{NAME}/1"]
    assert worker.counted("incidents_held_back", verdict="silenced") == 1


def test_a_silenced_incident_that_ends_is_never_paged(
    worker: Worker, receiver: LocalReceiver, clock: FakeClock
) -> None:
    worker.silenced = [until(clock, 60, job="llama")]
    worker.take(0, incident())
    worker.take(1, incident(revision=2, state="resolved"))
    worker.silenced = []
    worker.cycle()
    assert receiver.keys == []


def test_a_page_that_is_refused_long_after_its_record_is_given_away_whole(
    worker: Worker, receiver: LocalReceiver, clock: FakeClock
) -> None:
    worker.silenced = [until(clock, 60, job="llama")]
    worker.take(0, incident())
    worker.restart()
    worker.silenced = []
    receiver.answers.append(Answer(400))
    worker.cycle()
    [message] = worker.refused
    [row] = decode(message, INCIDENTS).to_pylist()
    assert row == {**incident(), "findings": []}
    worker.cycle()
    assert receiver.keys == [f"{NAME}/1"]


def test_a_flood_is_a_few_pages_and_a_summary(worker: Worker, receiver: LocalReceiver, clock: FakeClock) -> None:
    worker.take(0, *(incident(f"{number:02}") for number in range(30)))
    assert receiver.keys == ["00/1", "01/1", "02/1", "more-03/27"]
    assert receiver.received[-1].json["commonAnnotations"]["summary"] == "27 more incidents, job llama"
    worker.restart()
    worker.take(1, *(incident(f"{number:02}") for number in range(32)))
    assert len(receiver.keys) == 4
    clock.now += 600
    worker.cycle()
    assert receiver.keys[4:] == ["more-03/29"]
    worker.take(2, *(incident(f"{number:02}", 2, "resolved") for number in range(3, 32)))
    assert receiver.keys[5:] == ["more-03/30"]
    assert receiver.received[-1].json["status"] == "resolved"
    assert worker.counted("incidents_held_back", verdict="summarised") == 29


def test_a_flood_in_one_job_leaves_another_its_pages(worker: Worker, receiver: LocalReceiver) -> None:
    worker.take(0, *(incident(name) for name in "abcd"))
    worker.take(1, *(incident(name) for name in "xy"), job="other")
    assert receiver.keys == ["a/1", "b/1", "c/1", "more-d/1", "x/1", "y/1"]


def test_a_summary_that_is_refused_is_not_tried_for_ever(worker: Worker, receiver: LocalReceiver) -> None:
    receiver.always = lambda request: Answer(400 if request.key.startswith("more") else 200)
    worker.take(0, *(incident(name) for name in "abcd"))
    worker.cycle()
    assert receiver.keys == ["a/1", "b/1", "c/1", "more-d/1"]
    assert worker.refused == []


def test_one_page_an_incident_however_often_the_worker_restarts(worker: Worker, receiver: LocalReceiver) -> None:
    for offset in range(20):
        worker.take(offset, incident("a"), incident("b"))
        worker.restart()
        worker.cycle()
    worker.take(20, incident("a", 2, "resolved"))
    assert receiver.keys == ["a/1", "b/1", "a/2"]


def test_what_was_delivered_is_saved_though_another_page_fails(worker: Worker, receiver: LocalReceiver) -> None:
    """The worker ends because of one page; the others are not sent again by the next one."""
    receiver.always = lambda request: Answer(500 if request.key == "a/1" else 200)
    list(worker.sink.process(record(incident("a"), incident("b"), offset=4)))
    with pytest.raises(ReceiverError):
        worker.sink.flush()
    worker.save()
    assert worker.sink.safe_offsets() == {INCIDENTS: 4}
    receiver.received.clear()
    receiver.always = lambda _: Answer()
    worker.restart()
    worker.take(4, incident("a"), incident("b"))
    assert receiver.keys == ["a/1"]


def test_an_open_incident_is_sent_again_and_counts_as_one_page(
    resending: Worker, receiver: LocalReceiver, clock: FakeClock
) -> None:
    resending.take(0, incident())
    resending.cycle()
    assert receiver.keys == [f"{NAME}/1"]
    for _ in range(3):
        clock.now += RESENDING.every_s
        resending.cycle()
    assert receiver.keys == [f"{NAME}/1"] * 4
    assert resending.counted("pages_delivered", status="firing") == 1
    assert resending.counted("pages_resent") == 3


def test_a_page_is_made_when_it_is_sent(
    resending: Worker, receiver: LocalReceiver, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to find out whether it is due."""
    made: list[str] = []

    def counting(job: str, row: Row, placement: Job | None, link: str = "") -> Page:
        made.append(row["id"])
        return incident_page(job, row, placement, link)

    monkeypatch.setattr("sinks.webhook.ledgers.incident_page", counting)
    resending.take(0, incident("a"), incident("b"))
    resending.cycle()
    assert made == ["a", "b"]
    clock.now += RESENDING.every_s
    resending.cycle()
    assert made == ["a", "b", "a", "b"]


def test_a_record_is_not_weighed_against_the_incidents_of_other_jobs(worker: Worker) -> None:
    """What waits of all jobs is counted with each flush, not with each record."""
    asked: list[int] = []
    for offset in range(20):
        before = worker.asked
        list(worker.sink.process(record(incident(), job=f"job {offset}", offset=offset)))
        asked.append(worker.asked - before)
    assert len(set(asked)) == 1


def test_a_restarted_worker_sends_again_at_once(resending: Worker, receiver: LocalReceiver) -> None:
    resending.take(0, incident())
    resending.restart()
    resending.cycle()
    resending.cycle()
    assert receiver.keys == [f"{NAME}/1"] * 2


def test_a_resolved_incident_is_sent_again_for_a_while_and_its_job_is_forgotten_then(
    resending: Worker, receiver: LocalReceiver, clock: FakeClock
) -> None:
    resending.take(0, incident())
    resending.take(1, incident(revision=2, state="resolved"))
    resending.jobs["llama"] = Job("llama", (), (), ended_ns=1)
    times = 0
    while resending.sink.changed_states() != {"llama": None}:
        clock.now += RESENDING.every_s
        resending.sink.flush()
        times += 1
    assert times == RESENDING.linger_s / RESENDING.every_s
    assert receiver.keys == [f"{NAME}/1", *[f"{NAME}/2"] * (times + 1)]


def test_a_summary_is_sent_again_as_long_as_it_goes_on(
    resending: Worker, receiver: LocalReceiver, clock: FakeClock
) -> None:
    resending.take(0, *(incident(name) for name in "abcd"))
    clock.now += RESENDING.every_s
    resending.cycle()
    assert receiver.keys == ["a/1", "b/1", "c/1", "more-d/1"] * 2
    resending.take(1, incident("d", 2, "resolved"))
    assert receiver.keys[8:] == ["more-d/2"]


def test_what_is_sent_again_is_not_refused_for_good(
    resending: Worker, receiver: LocalReceiver, clock: FakeClock
) -> None:
    resending.take(0, incident())
    receiver.answers.append(Answer(400))
    for _ in range(2):
        clock.now += RESENDING.every_s
        resending.cycle()
    assert receiver.keys == [f"{NAME}/1"] * 3
    assert resending.refused == []


def test_a_state_of_the_former_version_is_gone_on_from(worker: Worker, receiver: LocalReceiver) -> None:
    state = SavedState({INCIDENTS.name: 4}, "page/1", b'{"open": {"a": 2}, "resolved": {}}')
    worker.sink.restore({"llama": state})
    worker.take(3, incident("b"))  # below
    worker.take(4, incident("a", 2))
    worker.take(5, incident("a", 3, "resolved"))
    assert receiver.keys == ["a/3"]
