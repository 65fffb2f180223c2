"""Paging wired: the settings become a receiver, what delivers to it, and the sinks that page it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from diagnosis.job import Job
from offbeat import wiring
from offbeat.setting_groups import KafkaSettings, WebhookSettings
from schemas import catalogue
from schemas.errors import SettingsError

if TYPE_CHECKING:  # in process nothing of Kafka or of HTTP is loaded
    from prometheus_client import CollectorRegistry

    from sinks.webhook.receiver import Receiver
    from sinks.webhook.retry import RetryPolicy
    from sinks.webhook.silences import Silence
    from sinks.webhook.sink import Refusal, WebhookSink
    from streams.follower import Follower

_LOOK_EVERY_S = 1.0


@contextmanager
def paging(
    webhook: WebhookSettings,
    refusal: Refusal,
    registry: CollectorRegistry,
    *,
    silences: Callable[[int], Iterable[Silence]] = lambda _: (),
    policy: RetryPolicy | None = None,
) -> Iterator[Callable[[Mapping[str, Job]], WebhookSink]]:
    """Makes sinks that page the configured receiver; ``refusal`` takes what it will never accept.

    ``silences`` are those that last at a time (ns since the epoch). Raises ``SettingsError`` where a setting of the
    receiver is missing or cannot be, or the file of a secret holds none.
    """
    from sinks.webhook.cluster import Cluster
    from sinks.webhook.delivery import Delivery
    from sinks.webhook.metrics import PageMetrics
    from sinks.webhook.sink import WebhookSink
    from sinks.webhook.verdicts import RateLimit

    webhook = webhook.with_secrets()
    receiver, urls = _receiver(webhook)
    secrets = [secret for secret in webhook.secrets.get_secret_value().split(",") if secret]
    headers = {} if webhook.authorization is None else {"Authorization": webhook.authorization.get_secret_value()}
    hidden = [] if webhook.routing_key is None else [webhook.routing_key.get_secret_value()]
    metrics, limit = PageMetrics(registry), RateLimit(webhook.pages_per_job, webhook.window_s)
    with ExitStack() as stack:
        members = [stack.enter_context(Delivery(url, secrets=secrets, headers=headers, hidden=hidden)) for url in urls]
        delivery = members[0] if len(members) == 1 else Cluster(members)
        yield lambda jobs: WebhookSink(
            receiver,
            delivery,
            refusal,
            jobs=jobs,
            silences=silences,
            limit=limit,
            link=webhook.external_url,
            policy=policy,
            metrics=metrics,
        )


@contextmanager
def following(kafka: KafkaSettings) -> Iterator[Callable[[int], Iterable[Silence]]]:
    """The silences that last at a time (ns since the epoch), as control.silences tells of them by then.

    Raises ``BusError`` where no broker answers, or the topic is missing.
    """
    from streams import topics
    from streams.follower import Follower

    bus = wiring.bus(kafka)
    topics.check(bus, (catalogue.SILENCES,))
    with Follower(bus, catalogue.SILENCES.name) as follower:
        yield _Followed(follower).lasting


class _Followed:
    """Silences that are looked up anew now and then; one thread at a time."""

    def __init__(self, follower: Follower, *, clock: Callable[[], float] = time.monotonic) -> None:
        from sinks.webhook.silences import Silences

        self._follower = follower
        self._clock = clock
        self._silences = Silences()
        self._silences.take(follower.catch_up())
        self._looked_at = clock()

    def lasting(self, now_ns: int) -> list[Silence]:
        if self._clock() - self._looked_at >= _LOOK_EVERY_S:
            self._silences.take(self._follower.poll())
            self._looked_at = self._clock()
        return self._silences.lasting(now_ns)


def _receiver(webhook: WebhookSettings) -> tuple[Receiver, list[str]]:
    """How the receiver is spoken to, and where it is; the Alertmanagers of a cluster are several places."""
    from sinks.webhook.alertmanager import Alertmanager, alerts_url
    from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
    from sinks.webhook.pagerduty import EVENTS_URL, PagerDuty
    from sinks.webhook.slack import Slack

    labels = {"severity": webhook.severity}
    if webhook.receiver == "pagerduty":
        if webhook.routing_key is None:
            raise SettingsError("OFFBEAT_WEBHOOK__ROUTING_KEY is not set: PagerDuty tells by it which service it is")
        pagerduty = PagerDuty(routing_key=webhook.routing_key.get_secret_value(), severity=webhook.severity)
        return pagerduty, [EVENTS_URL if webhook.url is None else webhook.url.get_secret_value()]
    if webhook.url is None:
        raise SettingsError("OFFBEAT_WEBHOOK__URL is not set: it names who is told of incidents")
    url = webhook.url.get_secret_value()
    if webhook.receiver == "alertmanager":
        return Alertmanager(labels=labels), [alerts_url(member.strip()) for member in url.split(",")]
    return (Slack() if webhook.receiver == "slack" else AlertmanagerWebhook(labels=labels)), [url]
