"""The webhook JSON of Prometheus Alertmanager, version 4, which most on-call services take.

An incident is one group of one alert. Its labels never change, so fingerprint and group key are the same in every
revision; everything that may change from one revision to the next is an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from schemas.errors import SettingsError
from sinks.webhook.content import description, facts, summary
from sinks.webhook.page import Page, rfc3339
from sinks.webhook.receiver import Request

ALERT_NAME = "OffbeatIncident"
_NOT_ENDED = "0001-01-01T00:00:00Z"
_OWN_LABELS = ("alertname", "job", "incident")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class AlertmanagerWebhook:
    """Pages as Alertmanager's webhook sends them.

    ``labels`` are added to every alert, for routing; ``external_url`` is where a person finds out more.
    Raises ``SettingsError`` for a label that would hide one of ours.
    """

    name = "alertmanager-webhook"

    def __init__(
        self, *, receiver: str = "offbeat", labels: Mapping[str, str] | None = None, external_url: str = ""
    ) -> None:
        self._receiver = receiver
        self._labels = {"severity": "critical"} if labels is None else dict(labels)
        self._external_url = external_url
        taken = sorted(set(self._labels) & set(_OWN_LABELS))
        if taken:
            raise SettingsError(f"webhook: label {taken[0]!r} is set by Offbeat itself; choose another name")

    def request(self, page: Page) -> Request:
        """The request that tells of a page."""
        labels = {**self._labels, "alertname": ALERT_NAME, "job": page.job, "incident": page.incident}
        group = {"job": page.job, "incident": page.incident}
        annotations = {"summary": summary(page), "description": description(page), **facts(page)}
        status = "resolved" if page.resolved else "firing"
        alert = {
            "status": status,
            "labels": labels,
            "annotations": annotations,
            "startsAt": rfc3339(page.row["opened_ns"]),
            "endsAt": rfc3339(page.ended_ns) if page.resolved else _NOT_ENDED,
            "generatorURL": self._external_url,
            "fingerprint": fingerprint(labels),
        }
        body = {
            "version": "4",
            "groupKey": f"{{}}:{_label_set(group)}",
            "truncatedAlerts": 0,
            "status": status,
            "receiver": self._receiver,
            "groupLabels": group,
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": self._external_url,
            "alerts": [alert],
        }
        encoded = json.dumps(body, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
        return Request(encoded, {"Content-Type": "application/json"})


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
