"""Incoming webhooks, beside the message and the answers that Slack documents."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ReceiverError
from sinks.webhook.delivery import Delivery, PageRefused, ReceiverAway
from sinks.webhook.slack import Slack, escaped
from tests.sinks.webhook.incidents import page
from tests.sinks.webhook.local_receiver import Answer, LocalReceiver

TESTDATA = Path(__file__).parent / "testdata"
MEANS = {"PageRefused": PageRefused, "ReceiverAway": ReceiverAway, "ReceiverError": ReceiverError}
ANSWERS = json.loads((TESTDATA / "slack_webhook.answers.json").read_text())


def sent(**columns: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(Slack().request(page(**columns), 0).body)
    return message


def test_a_page_is_a_message_of_the_documented_blocks() -> None:
    theirs, ours = json.loads((TESTDATA / "slack_webhook.message.json").read_text()), sent()
    assert set(ours) == set(theirs)
    assert [set(block) for block in ours["blocks"]] == [set(block) for block in theirs["blocks"]]
    assert [block["type"] for block in ours["blocks"]] == [block["type"] for block in theirs["blocks"]]
    for block in ours["blocks"]:
        for text in [block.get("text"), *block.get("fields", []), *block.get("elements", [])]:
            assert text is None or (set(text), text["type"]) == ({"type", "text"}, "mrkdwn")


def test_a_notification_shows_the_title() -> None:
    assert sent()["text"] == page().title


def test_a_link_is_one() -> None:
    fields = sent(link="https://offbeat.example/?a=1&b=2")["blocks"][2]["fields"]
    assert fields[-1]["text"] == "*More*\n<https://offbeat.example/?a=1&amp;b=2|Open>"


def test_what_an_incident_says_cannot_address_anybody() -> None:
    assert "<!channel>" not in json.dumps(sent(explanation="<!channel>", job="<!here>"))


def test_an_incident_without_an_explanation_has_no_empty_block() -> None:
    assert all(block.get("text", {"text": "x"})["text"] for block in sent(explanation="")["blocks"])


@given(st.text(), st.integers(5, 50))
def test_text_is_bounded_and_half_a_character_is_never_left(text: str, most: int) -> None:
    shown = escaped(text, most)
    assert len(shown) <= most
    whole = shown.removesuffix(" ...")
    for character, stands_for in (("<", "&lt;"), (">", "&gt;"), ("&", "&amp;")):
        whole = whole.replace(stands_for, character)
    assert text.startswith(whole) or text == whole


def test_the_longest_message_is_within_slack_s_bounds() -> None:
    message = sent(explanation="<" * 9000, job="&" * 9000, link="https://x/" + "y" * 9000)
    for block in message["blocks"]:
        assert len(block.get("text", {"text": ""})["text"]) <= 3000
        assert len(block.get("fields", [])) <= 10
        assert all(len(field["text"]) <= 2000 for field in block.get("fields", []))


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer['status']} {answer['body']}")
def test_each_answer_means_what_it_should(answer: dict[str, Any], receiver: LocalReceiver) -> None:
    receiver.answers.append(Answer(answer["status"], answer.get("headers", {}), answer["body"].encode()))
    with Delivery(receiver.url) as delivery:
        if answer["means"] == "taken":
            delivery.post(Slack().request(page(), 0), "id/1")
            return
        with pytest.raises(ReceiverError) as raised:
            delivery.post(Slack().request(page(), 0), "id/1")
    assert type(raised.value) is MEANS[answer["means"]]
