"""Events API v2, beside the event and the answers that PagerDuty documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import ReceiverError, SettingsError
from sinks.webhook.delivery import Delivery, PageRefused, ReceiverAway
from sinks.webhook.pagerduty import EVENTS_URL, PagerDuty, dedup_key
from tests.sinks.webhook.incidents import page
from tests.sinks.webhook.local_receiver import Answer, LocalReceiver

TESTDATA = Path(__file__).parent / "testdata"
ROUTING_KEY = "R0UT1NGKEYR0UT1NGKEYR0UT1NGKEY00"
LINK = "https://offbeat.example/{job}"
MEANS = {"PageRefused": PageRefused, "ReceiverAway": ReceiverAway, "ReceiverError": ReceiverError}
ANSWERS = json.loads((TESTDATA / "pagerduty_v2.answers.json").read_text())


def documented(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((TESTDATA / f"pagerduty_v2.{name}.json").read_text())
    return event


def sent(**columns: Any) -> dict[str, Any]:
    request = PagerDuty(routing_key=ROUTING_KEY).request(page(**{"link": LINK, **columns}), 0)
    event: dict[str, Any] = json.loads(request.body)
    return event


def shape(value: Any) -> Any:
    """Names and types, without the values."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value)


def test_an_open_incident_is_a_trigger_as_documented() -> None:
    theirs, ours = documented("trigger"), sent()
    for event in (theirs, ours):
        details = event["payload"].pop("custom_details")
        assert all(isinstance(said, str) for said in details.values())
    assert shape(ours) == shape(theirs)
    assert len(ours["payload"]["timestamp"]) == len(theirs["payload"]["timestamp"])
    assert (ours["routing_key"], ours["event_action"]) == (theirs["routing_key"], theirs["event_action"])
    assert ours["payload"]["severity"] == "critical"
    assert (ours["payload"]["group"], ours["payload"]["class"]) == ("llama", "compute_slow")


def test_a_resolved_incident_is_a_resolve_as_documented() -> None:
    theirs, ours = documented("resolve"), sent(state="resolved", revision=2)
    assert shape(ours) == shape(theirs)
    assert ours["event_action"] == theirs["event_action"]
    assert ours["dedup_key"] == sent()["dedup_key"]


def test_without_a_link_there_is_none() -> None:
    assert not {"links", "client_url"} & set(sent(link=""))


def test_what_pagerduty_bounds_is_bounded() -> None:
    long = sent(job="j" * 5000)
    assert len(long["payload"]["summary"]) == 1024
    assert len(long["dedup_key"]) <= 255
    assert long["dedup_key"] != sent(job="j" * 5001)["dedup_key"]
    assert dedup_key(page()) == "llama/5d3c0a9e1f"


@pytest.mark.parametrize("key", ["", "short", "R0UT1NGKEYR0UT1NGKEYR0UT1NGKEY0-", ROUTING_KEY + "0"])
def test_a_key_that_cannot_be_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(SettingsError, match="32 letters and digits") as refused:
        PagerDuty(routing_key=key)
    assert not key or key not in str(refused.value)


def test_a_severity_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(SettingsError, match="critical, error, warning, info, not 'page'"):
        PagerDuty(routing_key=ROUTING_KEY, severity="page")


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer['status']} {str(answer['body'])[-24:]}")
def test_each_answer_means_what_it_should(answer: dict[str, Any], receiver: LocalReceiver) -> None:
    body = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
    receiver.answers.append(Answer(answer["status"], body=body.encode()))
    request = PagerDuty(routing_key=ROUTING_KEY).request(page(), 0)
    with Delivery(receiver.url) as delivery:
        if answer["means"] == "taken":
            delivery.post(request, "id/1")
            return
        with pytest.raises(ReceiverError) as raised:
            delivery.post(request, "id/1")
    assert type(raised.value) is MEANS[answer["means"]]


def test_the_address_is_that_of_the_documentation() -> None:
    assert EVENTS_URL == "https://events.pagerduty.com/v2/enqueue"
