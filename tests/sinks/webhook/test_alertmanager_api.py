"""Pages at a real Alertmanager: what it shows, whom it tells, and that it tells once however often it is told."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import httpx
import pytest

from local.alertmanager import LocalAlertmanager
from schemas.errors import SettingsError
from schemas.processor import SavedState
from sinks.webhook.alertmanager import LASTS_NS, RESENDING, Alertmanager, alerts_url
from sinks.webhook.delivery import Delivery, PageRefused
from sinks.webhook.receiver import Request
from sinks.webhook.sink import WebhookSink
from tests.services import skipped_where_unavailable
from tests.sinks.webhook.fake_clock import FakeClock
from tests.sinks.webhook.incidents import incident, page, record
from tests.sinks.webhook.local_receiver import LocalReceiver

WITHIN_S = 60.0
T = TypeVar("T")


@pytest.fixture(scope="module")
def told() -> Iterator[LocalReceiver]:
    """Whom Alertmanager notifies."""
    receiver = LocalReceiver()
    yield receiver
    receiver.away()


@pytest.fixture(scope="module")
def alertmanager(told: LocalReceiver) -> Iterator[LocalAlertmanager]:
    with ExitStack() as stack:
        with skipped_where_unavailable():
            service = stack.enter_context(LocalAlertmanager(told.url))
        yield service


@pytest.fixture
def delivery(alertmanager: LocalAlertmanager, monkeypatch: pytest.MonkeyPatch) -> Iterator[Delivery]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Delivery(alerts_url(alertmanager.url)) as made:
        yield made


@pytest.fixture
def clock() -> FakeClock:
    """Alertmanager's clock is the machine's."""
    return FakeClock(time.time())


def sink_of(delivery: Delivery, clock: FakeClock) -> WebhookSink:
    def refuse(_: object, error: PageRefused) -> None:
        raise error

    return WebhookSink(Alertmanager(), delivery, refuse, clock=clock, sleep=clock.sleep, now_ns=clock.now_ns)


def alerts(alertmanager: LocalAlertmanager, job: str) -> list[dict[str, Any]]:
    """The alerts of a job that Alertmanager holds for active."""
    answer = httpx.get(f"{alertmanager.url}/api/v2/alerts", params={"filter": f'job="{job}"'})
    found: list[dict[str, Any]] = answer.raise_for_status().json()
    return found


def notified(told: LocalReceiver, job: str) -> list[tuple[str, str]]:
    """What Alertmanager told of a job's incidents, the news alone: each incident and its status, in turn."""
    notes = [request.json for request in told.received if request.json["groupLabels"] == {"job": job}]
    news = [(alert["labels"]["incident"], alert["status"]) for note in notes for alert in note["alerts"]]
    return list(dict.fromkeys(news))


def notifications(told: LocalReceiver, job: str) -> int:
    """How often Alertmanager told anything of a job."""
    return sum(request.json["groupLabels"] == {"job": job} for request in told.received)


def awaited(look: Callable[[], T], enough: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + WITHIN_S
    while not enough(found := look()):
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.05)
    return found


def feed(sink: WebhookSink, job: str, offset: int, *rows: dict[str, Any]) -> None:
    list(sink.process(record(*rows, job=job, offset=offset)))
    sink.flush()


def saved(sink: WebhookSink) -> dict[str, SavedState]:
    return {job: state for job, state in sink.changed_states().items() if state is not None}


def test_an_incident_is_an_alert_from_its_first_page_to_its_resolution(
    alertmanager: LocalAlertmanager, told: LocalReceiver, delivery: Delivery, clock: FakeClock
) -> None:
    sink, job = sink_of(delivery, clock), 'llama "70b"'
    feed(sink, job, 0, incident("a"), incident("b"))
    shown = {alert["labels"]["incident"]: alert for alert in alerts(alertmanager, job.replace('"', r"\""))}
    assert set(shown) == {"a", "b"}
    assert shown["a"]["labels"] == {"alertname": "OffbeatIncident", "job": job, "incident": "a", "severity": "critical"}
    assert shown["a"]["annotations"]["devices"] == "gpu:host0/2"
    assert shown["a"]["annotations"]["description"] == page().description
    awaited(lambda: notified(told, job), lambda news: {("a", "firing"), ("b", "firing")} <= set(news))

    feed(sink, job, 1, incident("a", 2, "resolved"), incident("b", 2, "resolved"))
    awaited(lambda: notified(told, job), lambda news: {("a", "resolved"), ("b", "resolved")} <= set(news))
    assert alerts(alertmanager, job.replace('"', r"\"")) == []


def test_however_often_it_is_told_it_notifies_once(
    alertmanager: LocalAlertmanager, told: LocalReceiver, delivery: Delivery, clock: FakeClock
) -> None:
    sink = sink_of(delivery, clock)
    feed(sink, "once", 0, incident())
    [first] = alerts(alertmanager, "once")
    awaited(lambda: notifications(told, "once"), bool)
    states = saved(sink)
    for _ in range(3):
        clock.now += RESENDING.every_s
        sink.flush()
    for _ in range(2):  # a worker that restarts tells what it knows at once, without a record
        sink = sink_of(delivery, clock)
        sink.restore(states)
        sink.flush()
    [again] = alerts(alertmanager, "once")
    assert again["fingerprint"] == first["fingerprint"]
    assert again["startsAt"] == first["startsAt"]
    assert again["endsAt"] > first["endsAt"]
    feed(sink, "once", 1, incident(revision=2, state="resolved"))
    name = incident()["id"]
    awaited(lambda: notified(told, "once"), lambda news: (name, "resolved") in news)
    assert notified(told, "once") == [(name, "firing"), (name, "resolved")]
    assert notifications(told, "once") == 2


def test_it_hears_again_after_its_restart(
    alertmanager: LocalAlertmanager, delivery: Delivery, clock: FakeClock
) -> None:
    sink = sink_of(delivery, clock)
    feed(sink, "forgotten", 0, incident("open"), incident("over"))
    feed(sink, "forgotten", 1, incident("over", 2, "resolved"))
    alertmanager.restart()
    assert alerts(alertmanager, "forgotten") == []
    sink.flush()  # not due yet
    assert alerts(alertmanager, "forgotten") == []
    clock.now += RESENDING.every_s
    sink.flush()
    assert [alert["labels"]["incident"] for alert in alerts(alertmanager, "forgotten")] == ["open"]


def test_an_alert_lasts_until_its_end_is_told_and_no_longer_than_it_is_told_of(
    alertmanager: LocalAlertmanager, delivery: Delivery, clock: FakeClock
) -> None:
    past_ns = clock.now_ns() - LASTS_NS
    delivery.post(Alertmanager().request(page(job="untold", opened_ns=past_ns), past_ns - 10**9), "untold/1")
    assert alerts(alertmanager, "untold") == []
    delivery.post(Alertmanager().request(page(job="untold", opened_ns=past_ns), clock.now_ns()), "untold/1")
    assert len(alerts(alertmanager, "untold")) == 1


def test_what_it_refuses_is_refused(delivery: Delivery) -> None:
    with pytest.raises(PageRefused, match="422"):
        delivery.post(Request(b"[{}]", {"Content-Type": "application/json"}), "none/1")


def test_clocks_that_differ_make_no_alert_that_ends_before_it_starts(delivery: Delivery, clock: FakeClock) -> None:
    ahead_ns = clock.now_ns() + 2 * LASTS_NS
    delivery.post(Alertmanager().request(page(job="ahead", opened_ns=ahead_ns), clock.now_ns()), "ahead/1")
    over = page(job="ahead", opened_ns=ahead_ns, updated_ns=ahead_ns, state="resolved", revision=2)
    delivery.post(Alertmanager().request(over, clock.now_ns()), "ahead/2")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://am:9093", "http://am:9093/api/v2/alerts"),
        ("http://am:9093/", "http://am:9093/api/v2/alerts"),
        ("https://proxy/am/", "https://proxy/am/api/v2/alerts"),
        ("https://proxy/api/v2/alerts", "https://proxy/api/v2/alerts"),
        ("https://proxy/am?tenant=x", "https://proxy/am/api/v2/alerts?tenant=x"),
    ],
)
def test_it_is_named_with_its_path_or_without(given: str, url: str) -> None:
    assert alerts_url(given) == url


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        alerts_url("http://[::1")
