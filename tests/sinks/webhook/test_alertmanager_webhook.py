"""The webhook JSON, beside what Alertmanager 0.25.0 itself sent for an alert with the same labels."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import SettingsError
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook, fingerprint
from tests.sinks.webhook.incidents import page

JOB = 'llama "70b"\\n1'  # what has to be escaped, in the recorded payloads too


def recorded(status: str) -> dict[str, Any]:
    """A payload that Alertmanager sent."""
    payload: dict[str, Any] = json.loads(
        (Path(__file__).parent / "testdata" / f"alertmanager_0.25.{status}.json").read_text()
    )
    return payload


def sent(webhook: AlertmanagerWebhook | None = None, **columns: Any) -> dict[str, Any]:
    """The payload of an incident."""
    request = (webhook or AlertmanagerWebhook()).request(page(job=JOB, **columns), 0)
    payload: dict[str, Any] = json.loads(request.body)
    return payload


def shape(value: Any) -> Any:
    """Names and types, without the values."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize(("state", "status"), [("open", "firing"), ("resolved", "resolved")])
def test_the_payload_is_one_that_alertmanager_could_have_sent(state: str, status: str) -> None:
    theirs, ours = recorded(status), sent(state=state)
    for payload in (theirs, ours):
        for free_form in (payload, payload["alerts"][0]):
            free_form.pop("annotations", None)
            free_form.pop("commonAnnotations", None)
    assert shape(ours) == shape(theirs)
    for name in ("version", "status", "truncatedAlerts", "groupKey", "groupLabels", "commonLabels"):
        assert ours[name] == theirs[name]
    for name in ("status", "labels", "fingerprint"):
        assert ours["alerts"][0][name] == theirs["alerts"][0][name]


def test_an_open_incident_has_no_end() -> None:
    alert = sent(revision=2)["alerts"][0]
    assert alert["startsAt"] == "2026-01-02T03:03:05.123456789Z"
    assert alert["endsAt"] == recorded("firing")["alerts"][0]["endsAt"] == "0001-01-01T00:00:00Z"


def test_a_resolved_incident_ends_when_it_ended() -> None:
    assert sent(revision=2, state="resolved")["alerts"][0]["endsAt"] == "2026-01-02T03:05:05.123456789Z"


def test_a_resolved_incident_whose_end_nobody_saw_ends_when_it_was_found_to_be_over() -> None:
    payload = sent(revision=3, state="resolved", resolved_ns=None)
    assert payload["alerts"][0]["endsAt"] == "2026-01-02T03:06:05.123456789Z"


@given(
    revision=st.integers(1, 1000),
    state=st.sampled_from(["open", "resolved"]),
    cause=st.sampled_from(["compute_slow", "communication_slow"]),
    ranks=st.lists(st.integers(0, 127), max_size=4),
    confidence=st.floats(0, 1),
)
def test_what_identifies_an_incident_is_the_same_in_every_revision(**columns: Any) -> None:
    first, later = sent(), sent(**columns)
    assert later["groupKey"] == first["groupKey"]
    assert later["alerts"][0]["labels"] == first["alerts"][0]["labels"]
    assert later["alerts"][0]["fingerprint"] == first["alerts"][0]["fingerprint"]
    assert later["alerts"][0]["startsAt"] == first["alerts"][0]["startsAt"]
    assert later["alerts"][0]["annotations"]["revision"] == str(columns["revision"])


def test_two_incidents_are_two_groups() -> None:
    assert sent()["groupKey"] != sent(incident="other")["groupKey"]
    assert sent()["alerts"][0]["fingerprint"] != sent(incident="other")["alerts"][0]["fingerprint"]


def test_labels_for_routing_and_a_link_are_added() -> None:
    payload = sent(AlertmanagerWebhook(labels={"team": "training"}), link="https://offbeat.example")
    assert payload["commonLabels"]["team"] == "training"
    assert payload["externalURL"] == payload["alerts"][0]["generatorURL"] == "https://offbeat.example"


def test_a_label_that_hides_one_of_ours_is_refused() -> None:
    with pytest.raises(SettingsError, match="'incident'"):
        AlertmanagerWebhook(labels={"incident": "x"})


def test_a_fingerprint_does_not_depend_on_the_order_of_labels() -> None:
    labels = recorded("firing")["commonLabels"]
    backwards = dict(reversed(list(labels.items())))
    assert fingerprint(backwards) == fingerprint(labels) == recorded("firing")["alerts"][0]["fingerprint"]
