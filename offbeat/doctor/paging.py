"""Whom incidents are paged to, as far as settings tell: nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator

from offbeat.doctor.checked import Checked, ok, refused, skipped, warning
from offbeat.setting_groups import WebhookSettings
from schemas.errors import MessageError, SettingsError
from schemas.message import Message


def examine(webhook: WebhookSettings) -> Iterator[Checked]:
    """What ``offbeat alert`` would refuse to start with, and what it would do without a word."""
    from prometheus_client import CollectorRegistry

    from offbeat.paging import paging

    what = "receiver of pages"
    if not webhook.is_set:
        yield skipped(what, "none is set; `offbeat alert` needs OFFBEAT_WEBHOOK__URL or __ROUTING_KEY")
        return
    try:
        with paging(webhook, _never, CollectorRegistry()):
            yield ok(what, f"{webhook.receiver}, its settings are whole; nothing was sent")
    except SettingsError as error:
        yield refused(what, error)
        return
    if webhook.receiver == "webhook" and not webhook.with_secrets().secrets.get_secret_value():
        yield warning(
            "signature of pages",
            "pages are not signed: who can reach the receiver can page as well",
            "set OFFBEAT_WEBHOOK__SECRETS, and verify the signature there",
        )
    if not webhook.external_url:
        yield warning("link of pages", "pages carry no link", "set OFFBEAT_WEBHOOK__EXTERNAL_URL to a dashboard")


def _never(_: Message, refusal: MessageError) -> None:
    raise refusal
