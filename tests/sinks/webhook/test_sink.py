"""When pages are sent. The receiver is a real server on loopback; time passes only when the sink sleeps."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from diagnosis.job import Job, Place
from schemas.catalogue import INCIDENTS
from schemas.errors import MessageError, ReceiverError, UndecodableMessage, WrongSchema
from schemas.message import Message
from schemas.processor import SavedState, Sink, Stateful
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.delivery import Delivery, PageRefused
from sinks.webhook.metrics import PageMetrics
from sinks.webhook.receiver import Request
from sinks.webhook.retry import RetryPolicy
from sinks.webhook.silences import Silence
from sinks.webhook.sink import WebhookSink
from tests.sinks.webhook.fake_clock import FakeClock
from tests.sinks.webhook.incidents import incident, record
from tests.sinks.webhook.local_receiver import HANG, Answer, LocalReceiver, Received

POLICY = RetryPolicy(first_wait_s=1.0, longest_wait_s=30.0, patience_s=240.0)


class Paging:
    """Builds sinks that page the local receiver, and keeps what they share."""

    def __init__(self, receiver: LocalReceiver, clock: FakeClock) -> None:
        self.registry = CollectorRegistry()
        self.refused: list[tuple[Message, PageRefused]] = []
        self.delivery = Delivery(receiver.url, secrets=["secret"], timeout_s=5.0)
        self._metrics = PageMetrics(self.registry)
        self._clock = clock

    def sink(self, **options: Any) -> WebhookSink:
        """A sink as a worker starts it."""
        given = {
            "policy": POLICY,
            "metrics": self._metrics,
            "clock": self._clock,
            "sleep": self._clock.sleep,
            "now_ns": self._clock.now_ns,
        }
        return WebhookSink(
            AlertmanagerWebhook(), self.delivery, lambda *refusal: self.refused.append(refusal), **{**given, **options}
        )

    def counted(self, name: str, **labels: str) -> float:
        """A counter's value."""
        return self.registry.get_sample_value(f"offbeat_{name}_total", labels) or 0.0


@pytest.fixture
def paging(receiver: LocalReceiver, clock: FakeClock) -> Iterator[Paging]:
    built = Paging(receiver, clock)
    yield built
    built.delivery.close()


def feed(sink: WebhookSink, *messages: Message) -> None:
    """Process messages, which yield nothing."""
    for message in messages:
        assert list(sink.process(message)) == []


def safe_offset(sink: WebhookSink) -> int | None:
    """The offset that may be committed."""
    return sink.safe_offsets().get(INCIDENTS)


def test_a_slow_receiver_is_told_of_many_incidents_in_several_flushes(paging: Paging, clock: FakeClock) -> None:
    """What it has taken is saved in between, so that whoever starts again goes on behind it."""
    policy = replace(POLICY, flush_s=60.0)
    taken: list[str] = []

    class Slow:
        def post(self, request: Request, key: str) -> None:
            clock.sleep(9.0)
            taken.append(key)

    def sink() -> WebhookSink:
        times: dict[str, Any] = {"clock": clock, "sleep": clock.sleep, "now_ns": clock.now_ns}
        return WebhookSink(AlertmanagerWebhook(), Slow(), lambda *_: None, policy=policy, **times)

    first = sink()
    states: dict[str, SavedState] = {}
    records = [record(incident(f"i{number}"), offset=number, job=f"j{number}") for number in range(20)]
    feed(first, *records)
    for flushes in (1, 2):
        first.flush()
        assert len(taken) == 7 * flushes
        states |= {job: state for job, state in first.changed_states().items() if state is not None}
        assert safe_offset(first) == 7 * flushes
    second = sink()
    second.restore(states)
    feed(second, *records[14:])
    second.flush()
    assert len(taken) == len(set(taken)) == 20
    assert safe_offset(second) == 20


def test_it_is_a_sink_that_saves_its_state(paging: Paging) -> None:
    sink = paging.sink()
    assert isinstance(sink, Sink)
    assert isinstance(sink, Stateful)
    assert (sink.name, sink.reads, sink.writes) == ("page", (INCIDENTS,), ())
    assert list(sink.tick(10**18)) == []
    assert safe_offset(sink) is None


def test_process_queues_and_flush_delivers(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, record(incident(), offset=7))
    assert receiver.received == []
    assert safe_offset(sink) == 7
    sink.flush()
    (received,) = receiver.received
    assert received.key == "5d3c0a9e1f/1"
    assert received.json["status"] == "firing"
    assert safe_offset(sink) == 8


def test_a_flush_without_news_sends_nothing(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    sink.flush()
    feed(sink, record(incident()))
    sink.flush()
    sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/1"]


def test_only_higher_revisions_are_sent(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    for offset, revision in enumerate([1, 1, 2, 1, 2, 4, 3]):
        feed(sink, record(incident(revision=revision), offset=offset))
        sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/1", "5d3c0a9e1f/2", "5d3c0a9e1f/4"]


def test_of_the_revisions_that_wait_only_the_newest_is_sent(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, *(record(incident(revision=r), incident("b", r), offset=r) for r in (1, 3, 2)))
    sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/3", "b/3"]
    assert paging.counted("pages_superseded") == 2
    assert paging.counted("pages_delivered", status="firing") == 2


def test_the_same_id_in_two_jobs_is_two_incidents(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, record(incident(revision=2), job="a"), record(incident(revision=1), job="b", offset=1))
    sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/2", "5d3c0a9e1f/1"]


def test_an_incident_that_ends_is_resolved(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, record(incident()))
    sink.flush()
    feed(sink, record(incident(revision=2, state="resolved"), offset=1))
    sink.flush()
    assert [received.json["status"] for received in receiver.received] == ["firing", "resolved"]
    assert paging.counted("pages_delivered", status="resolved") == 1


def test_an_incident_that_is_over_before_anyone_was_told_is_sent_as_resolved_only(
    paging: Paging, receiver: LocalReceiver
) -> None:
    sink = paging.sink()
    feed(sink, record(incident()), record(incident(revision=2, state="resolved"), offset=1))
    sink.flush()
    assert [(received.key, received.json["status"]) for received in receiver.received] == [("5d3c0a9e1f/2", "resolved")]


def test_where_the_ranks_run_comes_from_the_jobs(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink(jobs={"llama": Job("llama", (Place(2, "gpu-node-7", 2),), ())})
    feed(sink, record(incident()))
    sink.flush()
    assert receiver.received[0].json["commonAnnotations"]["hosts"] == "gpu-node-7"


def test_after_an_outage_only_the_newest_revision_is_sent(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    sink = paging.sink()
    receiver.away()
    for revision in (1, 2, 3):
        feed(sink, record(incident(revision=revision), offset=revision))
        with pytest.raises(ReceiverError, match="1 incidents wait"):
            sink.flush()
        assert safe_offset(sink) == revision
    receiver.start()
    sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/3"]
    assert safe_offset(sink) == 4


def test_the_offset_is_held_at_the_oldest_record_that_waits(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    receiver.away()
    feed(
        sink,
        record(incident("a", 1), offset=10),
        record(incident("b", 1), offset=11),
        record(incident("a", 2), offset=12),
    )
    with pytest.raises(ReceiverError):
        sink.flush()
    assert safe_offset(sink) == 11  # record 10 is superseded by 12


def test_a_receiver_that_comes_back_within_the_patience_is_waited_for(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    sink = paging.sink()
    receiver.away()
    clock.while_asleep = lambda: receiver.start() if len(clock.waits) == 3 else None
    feed(sink, record(incident()))
    sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/1"]
    assert len(clock.waits) == 3
    assert paging.counted("page_attempts_failed", reason="ConnectError") == 3


def test_what_was_delivered_and_that_the_receiver_is_back_is_logged(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    receiver.away()
    clock.while_asleep = lambda: receiver.start() if len(clock.waits) == 2 else None
    sink = paging.sink()
    feed(sink, record(incident("a", 1)), record(incident("b", 2, state="resolved"), offset=1))
    with capture_logs() as logs:
        sink.flush()
    told = [{name: log[name] for name in log if name not in {"log_level", "error"}} for log in logs]
    away = [log for log in told if log["event"] == "receiver away"]
    assert len(away) == 2
    assert told == [
        *away,
        {"event": "receiver back", "waiting": 2},
        {"event": "page delivered", "job": "llama", "incident": "a", "revision": 1, "state": "firing"},
        {"event": "page delivered", "job": "llama", "incident": "b", "revision": 2, "state": "resolved"},
    ]


def test_waits_grow_to_their_limit_and_end_with_the_patience(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    sink = paging.sink()
    receiver.away()
    feed(sink, record(incident()))
    started = clock.now
    with pytest.raises(ReceiverError, match="for the last 240 s"):
        sink.flush()
    assert clock.now == pytest.approx(started + POLICY.patience_s)
    for attempt, wait in enumerate(clock.waits[:-1]):
        assert POLICY.first_wait_s <= wait <= min(2.0**attempt, POLICY.longest_wait_s)
    assert len(set(clock.waits)) > 3  # random, so that workers do not come back at once


def test_the_error_says_what_where_and_what_becomes_of_the_pages(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    receiver.always = lambda _: Answer(503, body=b"maintenance")
    feed(sink, record(incident()))
    with pytest.raises(ReceiverError) as caught:
        sink.flush()
    for part in ("1 incidents wait", "analysis.incidents", "http://127.0.0.1", "503", "maintenance"):
        assert part in str(caught.value)


@pytest.mark.parametrize("failures", [1, 4])
def test_a_server_error_is_tried_again_under_the_same_key(
    paging: Paging, receiver: LocalReceiver, failures: int
) -> None:
    sink = paging.sink()
    receiver.answers.extend([Answer(500)] * failures)
    feed(sink, record(incident()))
    sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/1"] * (failures + 1)
    assert len({received.body for received in receiver.received}) == 1
    assert paging.counted("page_attempts_failed", reason="http_500") == failures


def test_retry_after_is_kept(paging: Paging, receiver: LocalReceiver, clock: FakeClock) -> None:
    sink = paging.sink()
    receiver.answers.append(Answer(429, {"Retry-After": "77"}))
    feed(sink, record(incident("a")), record(incident("b"), offset=1))
    sink.flush()
    assert clock.waits == [77.0]
    assert receiver.keys == ["a/1", "a/1", "b/1"]


def test_a_retry_after_beyond_the_patience_ends_with_it(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    sink = paging.sink()
    receiver.answers.append(Answer(429, {"Retry-After": "100000"}))
    feed(sink, record(incident()))
    sink.flush()
    assert clock.waits == [POLICY.patience_s]


def test_a_receiver_that_hangs_is_tried_again(paging: Paging, receiver: LocalReceiver) -> None:
    receiver.answers.append(HANG)
    with Delivery(receiver.url, timeout_s=0.1) as impatient:
        paging.delivery.close()
        paging.delivery = impatient
        sink = paging.sink()
        feed(sink, record(incident()))
        sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/1"] * 2
    assert paging.counted("page_attempts_failed", reason="ReadTimeout") == 1


def test_one_page_that_fails_does_not_keep_the_others_waiting(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    receiver.always = lambda request: Answer(500 if request.key == "a/1" else 200)
    sink = paging.sink()
    feed(sink, *(record(incident(name), offset=offset) for offset, name in enumerate("abc")))
    with pytest.raises(ReceiverError, match="1 incidents wait"):
        sink.flush()
    assert receiver.keys[:3] == ["a/1", "b/1", "c/1"]
    assert set(receiver.keys[3:]) == {"a/1"}
    assert safe_offset(sink) == 0


def test_the_patience_starts_anew_with_every_delivery(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    """Each page is taken at last, 200 s after the one before: longer together than the patience."""
    due = {name: clock.now + 200.0 * number for number, name in enumerate("abc", start=1)}
    receiver.always = lambda request: Answer(500 if clock.now < due[request.key[0]] else 200)
    sink = paging.sink()
    feed(sink, *(record(incident(name), offset=offset) for offset, name in enumerate("abc")))
    sink.flush()
    assert [receiver.keys[-1], safe_offset(sink)] == ["c/1", 3]
    assert clock.now >= due["c"]


def test_a_refused_page_goes_to_dead_letters_and_the_others_are_sent(paging: Paging, receiver: LocalReceiver) -> None:
    receiver.always = lambda request: Answer(400 if request.key == "b/1" else 200, body=b"too odd")
    sink = paging.sink()
    feed(sink, *(record(incident(name), offset=offset) for offset, name in enumerate("abc")))
    sink.flush()
    assert receiver.keys == ["a/1", "b/1", "c/1"]
    ((message, error),) = paging.refused
    assert message.offset == 1
    assert "too odd" in str(error)
    assert paging.counted("pages_refused") == 1
    assert safe_offset(sink) == 3


def test_a_refused_page_that_is_replayed_is_sent(paging: Paging, receiver: LocalReceiver) -> None:
    receiver.answers.append(Answer(400))
    sink = paging.sink()
    for offset in (0, 1):
        feed(sink, record(incident(), offset=offset))
        sink.flush()
    assert receiver.keys == ["5d3c0a9e1f/1"] * 2
    assert len(paging.refused) == 1


def test_a_receiver_that_takes_no_pages_stops_paging_at_once_and_nothing_is_lost(
    paging: Paging, receiver: LocalReceiver, clock: FakeClock
) -> None:
    receiver.answers.append(Answer(401))
    sink = paging.sink()
    feed(sink, record(incident("a"), offset=5), record(incident("b"), offset=6))
    with pytest.raises(ReceiverError, match="check the webhook's URL"):
        sink.flush()
    assert receiver.keys == ["a/1"]
    assert paging.counted("page_attempts_failed", reason="final") == 1
    assert clock.waits == []
    assert paging.refused == []
    assert safe_offset(sink) == 5
    sink.flush()
    assert receiver.keys == ["a/1", "a/1", "b/1"]


def test_stop_ends_the_waiting(paging: Paging, receiver: LocalReceiver) -> None:
    """With real time and hour-long waits: the flush ends because it is stopped, or this test never does."""
    asked = threading.Event()

    def busy(_: Received) -> Answer:
        asked.set()
        return Answer(503)

    receiver.always = busy
    policy = RetryPolicy(first_wait_s=3600.0, longest_wait_s=3600.0, patience_s=36_000.0)
    sink = WebhookSink(AlertmanagerWebhook(), paging.delivery, lambda *_: None, policy=policy)
    feed(sink, record(incident()))
    raised: list[ReceiverError] = []

    def flush() -> None:
        try:
            sink.flush()
        except ReceiverError as error:
            raised.append(error)

    flushing = threading.Thread(target=flush, daemon=True)
    flushing.start()
    assert asked.wait(60)
    sink.stop()
    flushing.join(60)
    assert not flushing.is_alive()
    assert len(raised) == 1
    assert safe_offset(sink) == 0


def test_the_queue_is_bounded(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink(max_waiting=2)
    receiver.away()
    feed(sink, *(record(incident(name), offset=offset) for offset, name in enumerate("ab")))
    with pytest.raises(ReceiverError):
        sink.process(record(incident("c"), offset=2))
    assert safe_offset(sink) == 0
    receiver.start()
    feed(sink, record(incident("c"), offset=2))
    assert receiver.keys == ["a/1", "b/1"]
    assert safe_offset(sink) == 2


def test_what_waited_before_a_restart_is_in_the_queue(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, record(incident("a"), incident("b")))
    restarted = paging.sink(max_waiting=2)
    restarted.restore({job: state for job, state in sink.changed_states().items() if state is not None})
    receiver.away()
    with pytest.raises(ReceiverError):
        restarted.process(record(incident("c"), offset=1))


def test_a_bad_record_is_refused_and_leaves_nothing_behind(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    good = record(incident(), offset=0)
    with pytest.raises(UndecodableMessage):
        sink.process(Message(good.topic, good.key, None, good.headers, offset=0))
    assert safe_offset(sink) == 1  # the runner dead-letters it; it is not needed again
    assert sink.changed_states() == {}
    sink.flush()
    assert receiver.received == []


def test_a_restarted_sink_knows_what_was_delivered(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, record(incident("a", 3), incident("b", 2, "resolved"), offset=4))
    sink.flush()
    saved = sink.changed_states()
    assert sink.changed_states() == {}

    restarted = paging.sink()
    restarted.restore({job: state for job, state in saved.items() if state is not None})
    # The incidents worker restarted too, and publishes again what it had published.
    feed(restarted, *(record(incident("a", r), incident("b", min(r, 2)), offset=4 + r) for r in (1, 2, 3, 4)))
    restarted.flush()
    assert receiver.keys == ["a/3", "b/2", "a/4"]


def test_records_below_the_saved_offset_are_skipped(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, record(incident("a"), offset=4))
    sink.flush()
    restarted = paging.sink()
    restarted.restore({job: state for job, state in sink.changed_states().items() if state is not None})
    feed(
        restarted,
        record(incident("b"), offset=3),  # below: dealt with before the restart
        record(incident("c"), job="other", offset=4),  # another job has a state of its own
        record(incident("d"), offset=5),
    )
    restarted.flush()
    assert sorted(receiver.keys) == ["a/1", "c/1", "d/1"]


def test_a_state_saved_while_pages_wait_does_not_skip_them(paging: Paging, receiver: LocalReceiver) -> None:
    sink = paging.sink()
    feed(sink, record(incident("a"), offset=4))
    receiver.away()
    with pytest.raises(ReceiverError):
        sink.flush()
    saved = sink.changed_states()["llama"]
    assert saved is not None
    assert dict(saved.offsets) == {INCIDENTS.name: 4}

    receiver.start()
    restarted = paging.sink()
    restarted.restore({"llama": saved})
    feed(restarted, record(incident("a"), offset=4))
    restarted.flush()
    assert receiver.keys == ["a/1"]


def test_nothing_older_follows_what_was_in_flight(paging: Paging, receiver: LocalReceiver) -> None:
    """A crash between the delivery and what is saved after it: the records come again, one by one this time."""
    sink, records = paging.sink(), [record(incident("a"), offset=4), record(incident("a", 2, "resolved"), offset=5)]
    feed(sink, *records)
    saved = sink.changed_states()["llama"]  # what waits is saved before it is delivered
    assert saved is not None
    sink.flush()

    restarted = paging.sink()
    restarted.restore({"llama": saved})
    for message in records:
        feed(restarted, message)
        restarted.flush()
    assert receiver.keys == ["a/2", "a/2"]
    assert receiver.received[0].body == receiver.received[1].body


def test_what_a_silence_held_back_is_told_of_to_its_end_though_a_crash_follows_its_page(
    paging: Paging, receiver: LocalReceiver
) -> None:
    """The silence ends, the page is sent, and nothing is saved after it: its end is sent all the same."""
    silences = [Silence("s", 1, 0, job="llama")]
    sink = paging.sink(silences=lambda _: silences)
    feed(sink, record(incident("a"), offset=4))
    assert sink.changed_states()
    sink.flush()
    silences.clear()
    saved = sink.changed_states()["llama"]
    assert saved is not None
    sink.flush()
    assert receiver.keys == ["a/1"]

    restarted = paging.sink()
    restarted.restore({"llama": saved})
    feed(restarted, record(incident("a", 2, "resolved"), offset=5))
    restarted.flush()
    assert receiver.keys == ["a/1", "a/2"]


def test_saved_offsets_never_fall(paging: Paging) -> None:
    """What is silenced when a state is saved does not hold it back, nor does it later."""
    silences = [Silence("s", 1, 0, job="llama")]
    sink = paging.sink(silences=lambda _: silences)
    feed(sink, record(incident("a"), offset=4))
    saved = sink.changed_states()["llama"]
    silences.clear()
    feed(sink, record(incident("b"), offset=5))
    later = sink.changed_states()["llama"]
    assert saved is not None
    assert later is not None
    assert (saved.offsets[INCIDENTS.name], later.offsets[INCIDENTS.name]) == (5, 5)


def test_what_was_in_flight_is_repeated_under_the_same_key_with_the_same_bytes(
    paging: Paging, receiver: LocalReceiver
) -> None:
    """A crash between the delivery and the commit: the record comes again, the state was not saved."""
    for _ in range(2):
        sink = paging.sink()
        feed(sink, record(incident(), offset=4))
        sink.flush()
    first, again = receiver.received
    assert first.key == again.key
    assert first.body == again.body


def test_an_ended_job_with_no_open_incident_is_forgotten(paging: Paging, receiver: LocalReceiver) -> None:
    jobs = {"llama": Job("llama", (), ()), "other": Job("other", (), (), ended_ns=1)}
    sink = paging.sink(jobs=jobs)
    feed(sink, record(incident()), record(incident(), job="other", offset=1))
    sink.flush()
    assert {job: state is not None for job, state in sink.changed_states().items()} == {"llama": True, "other": True}

    jobs["llama"] = Job("llama", (), (), ended_ns=2)
    assert sink.changed_states() == {}  # over, but the receiver still believes in an open incident
    feed(sink, record(incident(revision=2, state="resolved"), offset=2))
    assert "llama" not in {job for job, state in sink.changed_states().items() if state is None}
    sink.flush()
    assert sink.changed_states() == {"llama": None}
    assert sink.changed_states() == {}


@pytest.mark.parametrize(
    ("form", "state", "error"),
    [
        ("page/3", b"{}", WrongSchema),
        ("page/1", b"", UndecodableMessage),
        ("page/1", b"\xff", UndecodableMessage),
        ("page/1", b"[]", UndecodableMessage),
        ("page/1", b'{"open": {}}', UndecodableMessage),
        ("page/1", b'{"open": {"a": "1"}, "resolved": {}}', UndecodableMessage),
        ("page/1", b'{"open": {"a": true}, "resolved": {}}', UndecodableMessage),
    ],
)
def test_a_state_that_cannot_be_read_is_refused(
    paging: Paging, form: str, state: bytes, error: type[MessageError]
) -> None:
    with pytest.raises(error, match="a saved state"):
        paging.sink().restore({"llama": SavedState({INCIDENTS.name: 1}, form, state)})
