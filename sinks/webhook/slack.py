"""Slack's incoming webhooks: a message for every revision.

Slack has no key by which it knows a message again, and a message cannot be changed through an incoming webhook: what
is delivered just before a crash is posted twice.
"""

from __future__ import annotations

import json
import re

from sinks.webhook.page import Page
from sinks.webhook.receiver import Receiver, Request

_LONGEST_TEXT = 3000
_LONGEST_FIELD = 2000
_LONGEST_TITLE = 1000
# A person has to choose another channel or make the webhook anew; until then every message fares the same.
_BLAMES_SETTINGS = ("invalid_token", "user_not_found")
_MARKS = {False: ":red_circle:", True: ":large_green_circle:"}


class Slack(Receiver):
    """Pages as messages made of blocks; the plain text of a notification is the title."""

    name = "slack"
    resending = None

    def request(self, page: Page, now_ns: int) -> Request:
        """The request that tells of a page; the time does not matter."""
        title = escaped(page.title, _LONGEST_TITLE)
        fields = [_field(name, said) for name, said in page.details.items() if said != page.link]
        if page.link:
            fields.append(_text(f"*More*\n<{escaped(page.link, _LONGEST_FIELD - 100)}|Open>"))
        blocks: list[dict[str, object]] = [
            {"type": "section", "text": _text(f"{_MARKS[page.resolved]} *{title}*")},
            {"type": "section", "text": _text(escaped(page.text, _LONGEST_TEXT))},
            {"type": "section", "fields": fields},
            {"type": "context", "elements": [_text(escaped(f"job {page.job}, incident {page.id}", _LONGEST_FIELD))]},
        ]
        message = {"text": title, "blocks": [block for block in blocks if _says(block)]}
        encoded = json.dumps(message, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        return Request(encoded, {"Content-Type": "application/json"}, _BLAMES_SETTINGS)


def escaped(text: str, most: int) -> str:
    """Text as Slack takes it literally (three characters have a meaning of their own), at most so long."""
    whole = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if len(whole) <= most:
        return whole
    return re.sub(r"&[a-z]*$", "", whole[: most - 4]) + " ..."  # not half of what stands for one character


def _field(name: str, said: str) -> dict[str, str]:
    return _text(f"*{name}*\n{escaped(said, _LONGEST_FIELD - 100)}")


def _text(markdown: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": markdown}


def _says(block: dict[str, object]) -> bool:
    """Whether a block holds anything: Slack refuses a message with an empty one."""
    return block.get("text") != _text("") and block.get("fields") != []
