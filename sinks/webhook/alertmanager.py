"""Prometheus Alertmanager's own API: POST /api/v2/alerts.

Alertmanager takes an alert for over when its ``endsAt`` has passed, and forgets everything when it restarts. So each
open incident is sent again and again, each time with an ``endsAt`` that leaves room for a worker that restarts, and a
resolved one for as long as Prometheus would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sinks.webhook.alertmanager_webhook import ALERT_NAME, checked_labels
from sinks.webhook.delivery import read_url
from sinks.webhook.page import Page, rfc3339
from sinks.webhook.receiver import Receiver, Request, Resending

RESENDING = Resending(every_s=60.0, linger_s=900.0)
LASTS_NS = 15 * 60 * 10**9
"""An alert that is not sent again is over after so long: more than a worker's patience and a restart together."""

_PATH = b"/api/v2/alerts"


class Alertmanager(Receiver):
    """Pages as alerts of a running Alertmanager: grouping, inhibition, silences and routes are its own.

    ``labels`` are added to every alert, for routing. Raises ``SettingsError`` for a label that would hide one of
    ours.
    """

    name = "alertmanager"
    resending = RESENDING

    def __init__(self, *, labels: Mapping[str, str] | None = None) -> None:
        self._labels = checked_labels(labels)

    def request(self, page: Page, now_ns: int) -> Request:
        """The request that tells of a page at a time."""
        # Clocks differ: an alert never ends before it starts, which Alertmanager would refuse.
        ends_ns = now_ns + LASTS_NS if page.ended_ns is None else min(page.ended_ns, now_ns)
        alert = {
            "labels": {**self._labels, "alertname": ALERT_NAME, "job": page.job, "incident": page.id},
            "annotations": {"summary": page.title, "description": page.description, **page.facts},
            "startsAt": rfc3339(page.opened_ns),
            "endsAt": rfc3339(max(ends_ns, page.opened_ns)),
            **({"generatorURL": page.link} if page.link else {}),
        }
        encoded = json.dumps([alert], ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        return Request(encoded, {"Content-Type": "application/json"})


def alerts_url(url: str) -> str:
    """The address of the API at an Alertmanager, which may be named with its path or without.

    Raises ``SettingsError`` for what is no URL.
    """
    parsed = read_url(url)
    path, mark, query = parsed.raw_path.partition(b"?")
    path = path.rstrip(b"/").removesuffix(_PATH) + _PATH
    return str(parsed.copy_with(raw_path=path + mark + query))
