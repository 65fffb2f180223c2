"""The settings of paging become a receiver; what is missing or cannot be is said before the start."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from offbeat.paging import paging
from offbeat.setting_groups import WebhookSettings
from schemas.errors import SettingsError
from schemas.message import Message
from sinks.webhook.delivery import Delivery, PageRefused
from sinks.webhook.sink import WebhookSink
from tests.sinks.webhook.incidents import incident, record
from tests.sinks.webhook.local_receiver import LocalReceiver, Received

ROUTING_KEY = "R0UT1NGKEYR0UT1NGKEYR0UT1NGKEY00"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalReceiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    local = LocalReceiver()
    yield local
    local.away()


def refuse(_: Message, error: PageRefused) -> None:
    raise error


@contextmanager
def sink(**settings: Any) -> Iterator[WebhookSink]:
    with paging(WebhookSettings(**settings), refuse, CollectorRegistry()) as make:
        yield make({})


def paged(local: LocalReceiver, **settings: Any) -> list[Received]:
    """What the receiver gets of an incident."""
    with sink(url=SecretStr(local.url), **settings) as made:
        list(made.process(record(incident())))
        made.flush()
    return local.received


def test_each_receiver_is_spoken_to_in_its_own_way(receiver: LocalReceiver) -> None:
    paged(receiver)
    paged(receiver, receiver="alertmanager")
    paged(receiver, receiver="pagerduty", routing_key=SecretStr(ROUTING_KEY))
    paged(receiver, receiver="slack")
    webhook, alertmanager, pagerduty, slack = receiver.received
    assert webhook.json["version"] == "4"
    assert (alertmanager.path, len(json.loads(alertmanager.body))) == ("/hook/api/v2/alerts", 1)
    assert pagerduty.json["routing_key"] == ROUTING_KEY
    assert slack.json["blocks"]


def test_a_page_carries_what_is_set(receiver: LocalReceiver) -> None:
    [page] = paged(
        receiver,
        secrets=SecretStr("one,two"),
        authorization=SecretStr("Bearer token"),
        severity="warning",
        external_url="https://offbeat.example/{job}",
    )
    assert page.headers["x-offbeat-signature"].count("v1=") == 2
    assert page.headers["authorization"] == "Bearer token"
    assert page.json["commonLabels"]["severity"] == "warning"
    assert page.json["externalURL"] == "https://offbeat.example/llama"


def test_all_alertmanagers_of_a_cluster_are_told(receiver: LocalReceiver) -> None:
    urls = f"{receiver.url}/one, {receiver.url}/two,http://127.0.0.1:1"
    with sink(url=SecretStr(urls), receiver="alertmanager") as made:
        list(made.process(record(incident())))
        made.flush()
    assert [request.path for request in receiver.received] == ["/hook/one/api/v2/alerts", "/hook/two/api/v2/alerts"]


def test_the_limit_is_set(receiver: LocalReceiver) -> None:
    with sink(url=SecretStr(receiver.url), pages_per_job=1, window_s=60.0) as made:
        list(made.process(record(incident("a"), incident("b"))))
        made.flush()
    assert receiver.keys == ["a/1", "more-b/1"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "OFFBEAT_WEBHOOK__URL is not set"),
        ({"receiver": "slack"}, "OFFBEAT_WEBHOOK__URL is not set"),
        ({"receiver": "alertmanager"}, "OFFBEAT_WEBHOOK__URL is not set"),
        ({"receiver": "pagerduty"}, "OFFBEAT_WEBHOOK__ROUTING_KEY is not set"),
        ({"receiver": "pagerduty", "routing_key": SecretStr("hush")}, "32 letters and digits"),
        ({"url": SecretStr("ftp://host")}, "the URL must start with http"),
        ({"receiver": "alertmanager", "url": SecretStr("host:9093")}, "the URL must start with http"),
    ],
)
def test_what_is_missing_or_cannot_be_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused, sink(**settings):
        pass
    assert "hush" not in str(refused.value)


def test_pagerduty_has_an_address_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(202)

    delivery = partial(Delivery, transport=httpx.MockTransport(answer))
    monkeypatch.setattr("sinks.webhook.delivery.Delivery", delivery)
    with sink(receiver="pagerduty", routing_key=SecretStr(ROUTING_KEY)) as made:
        list(made.process(record(incident())))
        made.flush()
    assert [str(request.url) for request in asked] == ["https://events.pagerduty.com/v2/enqueue"]
