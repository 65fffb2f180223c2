"""PagerDuty's Events API v2: a trigger for every revision, a resolve at the end, all under one ``dedup_key``.

A further trigger of an open alert is added to its log and wakes nobody.
"""

from __future__ import annotations

import hashlib
import json
import re

from schemas.errors import SettingsError
from sinks.webhook.page import Page, rfc3339
from sinks.webhook.receiver import Receiver, Request, clipped

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
"""Accounts of the European region have https://events.eu.pagerduty.com/v2/enqueue instead."""

_SEVERITIES = ("critical", "error", "warning", "info")
_LONGEST_KEY = 255
_LONGEST_SUMMARY = 1024
_KEY = re.compile(r"[0-9A-Za-z]{32}")
# PagerDuty answers a wrong key as it answers a malformed event. No page would be taken, so none may be given up.
_BLAMES_THE_KEY = ("routing_key", "routing key")


class PagerDuty(Receiver):
    """Pages as events of one integration of a service.

    ``routing_key`` is the integration's key, a secret. Raises ``SettingsError`` for a key or a severity that
    PagerDuty does not take.
    """

    name = "pagerduty"
    resending = None

    def __init__(self, *, routing_key: str, severity: str = "critical") -> None:
        if not _KEY.fullmatch(routing_key):
            raise SettingsError(
                "webhook: a PagerDuty routing key has 32 letters and digits: take the integration key of an "
                "integration of the kind Events API V2"
            )
        if severity not in _SEVERITIES:
            raise SettingsError(f"webhook: PagerDuty's severities are {', '.join(_SEVERITIES)}, not {severity!r}")
        self._routing_key = routing_key
        self._severity = severity

    def request(self, page: Page, now_ns: int) -> Request:
        """The request that tells of a page; the time does not matter."""
        event: dict[str, object] = {"routing_key": self._routing_key, "dedup_key": dedup_key(page)}
        event |= {"event_action": "resolve"} if page.resolved else self._trigger(page)
        encoded = json.dumps(event, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        return Request(encoded, {"Content-Type": "application/json"}, _BLAMES_THE_KEY)

    def _trigger(self, page: Page) -> dict[str, object]:
        return {
            "event_action": "trigger",
            "payload": {
                "summary": clipped(page.title, _LONGEST_SUMMARY),
                "source": page.place,
                "severity": self._severity,
                "timestamp": f"{rfc3339(page.opened_ns)[:23]}Z",  # it takes milliseconds
                "component": page.facts.get("devices", page.place),
                "group": page.job,
                "class": page.cause,
                "custom_details": {"explanation": page.text, **page.details, **page.facts},
            },
            "client": "Offbeat",
            **({"client_url": page.link, "links": [{"href": page.link, "text": "More"}]} if page.link else {}),
        }


def dedup_key(page: Page) -> str:
    """What names the incident at PagerDuty, the same in every revision: ``JOB/ID``, hashed where that is too long."""
    key = f"{page.job}/{page.id}"
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()
