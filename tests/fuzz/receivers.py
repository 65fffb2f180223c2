"""A target: what receivers of pages answer, as it comes over the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path

import httpcore
import httpx

from schemas.errors import ReceiverError
from sinks.webhook.alertmanager import Alertmanager
from sinks.webhook.delivery import Delivery
from sinks.webhook.pagerduty import PagerDuty
from sinks.webhook.receiver import Request
from sinks.webhook.slack import Slack
from tests.fuzz.target import Target, Trial
from tests.sinks.webhook.incidents import page

_ANSWERS = Path(__file__).parent.parent / "sinks" / "webhook" / "testdata"
_NOW_S = 1_767_322_985.0
_MOST_SAID = 1000
"""Characters of a line about an answer, whatever it holds."""


def targets() -> Iterator[Target]:
    """The answers of Alertmanager, PagerDuty and Slack."""
    yield Target("answers of receivers", weight=6, make=_answers)


def _answers(_: Path) -> Trial:
    seeds = [
        _raw(answer["status"], answer["body"])
        for service in ("pagerduty_v2", "slack_webhook")
        for answer in json.loads((_ANSWERS / f"{service}.answers.json").read_text())
    ]
    seeds += [_raw(200, ""), _raw(400, "bad request", "Retry-After: 17"), _raw(503, "", "Retry-After: 120")]
    seeds.append(_raw(429, "", f"Retry-After: {formatdate(_NOW_S + 90, usegmt=True)}"))
    seeds.append(_raw(308, "", "Location: https://elsewhere.example/a?b=c", "Set-Cookie: a=b; Path=/; Max-Age=9"))
    seeds.append(b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nworse\r\n0\r\n\r\n")
    paged = Request(b"{}", {"Content-Type": "application/json"}, _blames())

    transport = httpx.HTTPTransport()  # once: it reads all certificates that there are

    def feed(data: bytes) -> None:
        transport._pool = httpcore.ConnectionPool(network_backend=httpcore.MockBackend([data]))
        with Delivery("http://user:hush@host/hook", now=lambda: _NOW_S, transport=transport) as delivery:
            for _twice in range(2):  # the second time with what the client keeps of the first answer
                try:
                    delivery.post(paged, "id/1")
                except ReceiverError as error:
                    said = str(error)
                    assert len(said) < _MOST_SAID, said
                    assert said.isprintable(), said
                    raise

    return Trial(seeds, feed, (ReceiverError,))


def _blames() -> tuple[str, ...]:
    """The words by which any of the receivers blames the set-up."""
    receivers = (Alertmanager(), PagerDuty(routing_key="0" * 32), Slack())
    return tuple(word for each in receivers for word in each.request(page(), 0).blames_settings)


def _raw(status: int, body: object, *headers: str) -> bytes:
    text = body if isinstance(body, str) else json.dumps(body)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *headers, f"Content-Length: {len(text.encode())}"]
    return "\r\n".join([*lines, "", text]).encode()
