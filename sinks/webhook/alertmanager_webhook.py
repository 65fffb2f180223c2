"""The webhook JSON of Prometheus Alertmanager, version 4, which most on-call services take.

An incident is one group of one alert. Its labels never change, so fingerprint and group key are the same in every
revision; everything that may change from one revision to the next is an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from schemas.errors import SettingsError
from sinks.webhook.page import Page, rfc3339
from sinks.webhook.receiver import Receiver, Request

ALERT_NAME = "OffbeatIncident"
_NOT_ENDED = "0001-01-01T00:00:00Z"
_OWN_LABELS = ("alertname", "job", "incident")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class AlertmanagerWebhook(Receiver):
    """Pages as Alertmanager's webhook sends them.

    ``labels`` are added to every alert, for routing. Raises ``SettingsError`` for a label that would hide one of
    ours.
    """

    name = "webhook"
    resending = None

    def __init__(self, *, receiver: str = "offbeat", labels: Mapping[str, str] | None = None) -> None:
        self._receiver = receiver
        self._labels = checked_labels(labels)

    def request(self, page: Page, now_ns: int) -> Request:
        """The request that tells of a page; the time does not matter."""
        labels = {**self._labels, "alertname": ALERT_NAME, "job": page.job, "incident": page.id}
        group = {"job": page.job, "incident": page.id}
        annotations = {"summary": page.title, "description": page.description, **page.facts}
        alert = {
            "status": page.status,
            "labels": labels,
            "annotations": annotations,
            "startsAt": rfc3339(page.opened_ns),
            "endsAt": _NOT_ENDED if page.ended_ns is None else rfc3339(page.ended_ns),
            "generatorURL": page.link,
            "fingerprint": fingerprint(labels),
        }
        body = {
            "version": "4",
            "groupKey": f"{{}}:{_label_set(group)}",
            "truncatedAlerts": 0,
            "status": page.status,
            "receiver": self._receiver,
            "groupLabels": group,
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": page.link,
            "alerts": [alert],
        }
        encoded = json.dumps(body, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        return Request(encoded, {"Content-Type": "application/json"})


def checked_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Labels to add to every alert, ``severity: critical`` unless others are given.

    Raises ``SettingsError`` for one that Offbeat sets itself.
    """
    given = {"severity": "critical"} if labels is None else dict(labels)
    taken = sorted(set(given) & set(_OWN_LABELS))
    if taken:
        raise SettingsError(f"webhook: label {taken[0]!r} is set by Offbeat itself; choose another name")
    return given


def fingerprint(labels: Mapping[str, str]) -> str:
    """Prometheus' fingerprint of a label set: FNV-1a (64 bits) over the sorted names and values, each ended by 0xff."""
    value = _FNV_OFFSET
    for name in sorted(labels):
        for byte in b"%b\xff%b\xff" % (name.encode(), labels[name].encode()):
            value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def _label_set(labels: Mapping[str, str]) -> str:
    pairs = (f"{name}={json.dumps(labels[name], ensure_ascii=False)}" for name in sorted(labels))
    return "{" + ", ".join(pairs) + "}"
