"""What a worker tells about itself: the metrics of schemas/metrics.py that every worker has."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from schemas import metrics


class Metrics:
    """The metrics of one worker; every one carries the label ``processor``."""

    def __init__(self, processor: str, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._processor = processor
        self._messages = metrics.MESSAGES.made(self.registry)
        self._lost = metrics.LOST.made(self.registry)
        self._published = metrics.PUBLISHED.made(self.registry)
        self._lag_messages = metrics.LAG_MESSAGES.made(self.registry)
        self._lag_seconds = metrics.LAG_SECONDS.made(self.registry)
        self._uncommitted = metrics.UNCOMMITTED.made(self.registry)
        self.stuck = metrics.STUCK.made(self.registry).labels(processor)
        self.dead_letters = metrics.DEAD_LETTERS.made(self.registry).labels(processor)
        self.commits = metrics.COMMITS.made(self.registry).labels(processor)
        self.rebalances = metrics.REBALANCES.made(self.registry).labels(processor)
        self.batch_seconds = metrics.BATCH_SECONDS.made(self.registry).labels(processor)
        self.delivery_seconds = metrics.DELIVERY_SECONDS.made(self.registry).labels(processor)

    def took(self, topic: str, *, lost: int = 0) -> None:
        """A message was taken, and ``lost`` right before it never came."""
        self._messages.labels(self._processor, topic).inc()
        self._lost.labels(self._processor, topic).inc(lost)

    def published(self, topic: str) -> None:
        self._published.labels(self._processor, topic).inc()

    def lag(self, topic: str, messages: int, seconds: float, uncommitted: int) -> None:
        """How far an input is behind: messages that wait, for how long at most, and those that a restart repeats."""
        self._lag_messages.labels(self._processor, topic).set(messages)
        self._lag_seconds.labels(self._processor, topic).set(seconds)
        self._uncommitted.labels(self._processor, topic).set(uncommitted)
