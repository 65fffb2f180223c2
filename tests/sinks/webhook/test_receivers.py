"""What every receiver promises, whichever service it speaks to."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.job import Job, Place
from sinks.webhook.alertmanager import Alertmanager
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.content import NEXT
from sinks.webhook.delivery import Delivery
from sinks.webhook.ledger import Summary
from sinks.webhook.page import Page
from sinks.webhook.pagerduty import PagerDuty
from sinks.webhook.receiver import Receiver
from sinks.webhook.slack import Slack
from sinks.webhook.summary import summary_page
from tests.sinks.webhook.incidents import page
from tests.sinks.webhook.local_receiver import LocalReceiver

ROUTING_KEY = "R0UT1NGKEYR0UT1NGKEYR0UT1NGKEY00"
RECEIVERS: dict[str, Receiver] = {
    receiver.name: receiver
    for receiver in (AlertmanagerWebhook(), Alertmanager(), PagerDuty(routing_key=ROUTING_KEY), Slack())
}
NOW_NS = 1_767_323_000 * 10**9
JOB = Job("llama", (Place(2, "host0", 2),), ())
LINK = "https://offbeat.example/{job}/{incident}"

every_receiver = pytest.mark.parametrize("receiver", RECEIVERS.values(), ids=RECEIVERS)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
incidents = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["open", "resolved"]),
        "cause": st.sampled_from(sorted(NEXT)),
        "level": st.sampled_from(["device", "machine", "group"]),
        "ranks": st.lists(st.integers(0, 8191), max_size=40),
        "candidates": st.lists(st.lists(st.integers(0, 8191), max_size=4), max_size=3),
        "devices": st.lists(texts.map(lambda name: {"device": name, "kind": "gpu", "downside_nics": 0}), max_size=3),
        "explanation": st.one_of(texts, st.just("<&>" * 5000)),
        "confidence": st.floats(0, 1),
        "lost_ns": st.one_of(st.none(), st.integers(0, 2**50)),
        "first_iteration": st.one_of(st.none(), st.integers(0, 9)),
    }
)


def sent(receiver: Receiver, told: Page, now_ns: int = NOW_NS) -> Any:
    """What a receiver makes of a page, read."""
    return json.loads(receiver.request(told, now_ns).body)


def named(receiver: Receiver, told: Page) -> Any:
    """What identifies the incident at a service, as far as it has such a thing, and what groups it there."""
    body = sent(receiver, told)
    match receiver.name:
        case "webhook":
            return body["groupKey"], body["alerts"][0]["fingerprint"], body["groupLabels"]["job"]
        case "alertmanager":
            return body[0]["labels"], body[0]["startsAt"]
        case "pagerduty":
            return body["dedup_key"]
        case _:
            return body["blocks"][-1]


def all_texts(value: Any) -> str:
    """All that is said anywhere in a body."""
    if isinstance(value, dict):
        return "\n".join(all_texts(item) for item in value.values())
    return "\n".join(all_texts(item) for item in value) if isinstance(value, list) else str(value)


@every_receiver
def test_a_page_says_what_where_since_when_how_sure_what_it_costs_what_to_do_and_where_more_is(
    receiver: Receiver,
) -> None:
    said = all_texts(sent(receiver, page(JOB, link=LINK)))
    for part in (
        "Slow compute",
        "rank 2",
        "host0",
        "gpu:host0/2",
        "since iteration 4",
        "2026-01-02 03:03 UTC",
        "97%",
        "12.7 s of the job",
        NEXT["compute_slow"],
        "https://offbeat.example/llama/5d3c0a9e1f",
        "llama",
        page().text,
    ):
        assert part in said.replace("&amp;", "&"), part


@every_receiver
def test_a_resolved_page_is_told_apart(receiver: Receiver) -> None:
    firing, resolved = sent(receiver, page()), sent(receiver, page(state="resolved"))
    assert firing != resolved
    if receiver.name == "pagerduty":
        assert resolved["event_action"] == "resolve"
    else:
        assert "Resolved: " in all_texts(resolved)
        assert "Resolved" not in all_texts(firing)


@every_receiver
@given(told=incidents, later=incidents, revision=st.integers(2, 99))
def test_what_identifies_an_incident_is_the_same_in_every_revision(
    receiver: Receiver, told: dict[str, Any], later: dict[str, Any], revision: int
) -> None:
    assert named(receiver, page(**told)) == named(receiver, page(revision=revision, **later))


@every_receiver
def test_two_incidents_and_the_same_id_in_two_jobs_are_told_apart(receiver: Receiver) -> None:
    names = [named(receiver, told) for told in (page(), page(incident="other"), page(job="other"))]
    assert all(one != other for one in names for other in names if one is not other)


@every_receiver
@given(told=incidents, job=texts.filter(bool), link=texts)
def test_any_incident_can_be_told_and_is_the_same_bytes_every_time(
    receiver: Receiver, told: dict[str, Any], job: str, link: str
) -> None:
    request = receiver.request(page(job=job, link=link, **told), NOW_NS)
    assert request == receiver.request(page(job=job, link=link, **told), NOW_NS)
    assert request.headers == {"Content-Type": "application/json"}
    assert json.loads(request.body)


@every_receiver
def test_only_who_wants_to_hear_again_is_told_by_the_clock(receiver: Receiver) -> None:
    now, later = (receiver.request(page(), NOW_NS + seconds * 10**9) for seconds in (0, 60))
    assert (now == later) is (receiver.resending is None)


@every_receiver
def test_a_summary_can_be_told(receiver: Receiver) -> None:
    summary = Summary("more-a", 10**18, revision=3, count=3, titles=["Slow host on host7, job llama"], open=["a"])
    firing = sent(receiver, summary_page("llama", summary, LINK))
    said = all_texts(firing)
    for part in ("3 more incidents, job llama", "Slow host on host7", "and 2 more"):
        assert part in said
    summary.ended_ns = 10**18 + 1
    assert sent(receiver, summary_page("llama", summary, LINK)) != firing


@pytest.mark.parametrize("name", RECEIVERS)
def test_a_request_can_be_posted(name: str, receiver: LocalReceiver) -> None:
    request = RECEIVERS[name].request(page(), NOW_NS)
    with Delivery(receiver.url) as delivery:
        delivery.post(request, page().idempotency_key)
    [received] = receiver.received
    assert received.headers["content-type"] == "application/json"
    assert received.body == request.body
