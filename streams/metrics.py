"""What a worker tells about itself: all metrics, by name, type and labels, in this one place."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BATCH_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class Metrics:
    """The metrics of one worker; every one carries the label ``processor``."""

    def __init__(self, processor: str, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        labels = ("processor",)
        by_topic = ("processor", "topic")

        def counter(name: str, doc: str, names: tuple[str, ...]) -> Counter:
            return Counter(name, doc, names, namespace="offbeat", registry=self.registry)

        def gauge(name: str, doc: str, names: tuple[str, ...]) -> Gauge:
            return Gauge(name, doc, names, namespace="offbeat", registry=self.registry)

        self._processor = processor
        self._messages = counter("messages_total", "Messages taken from an input, the bad ones included.", by_topic)
        self._published = counter("published_total", "Messages sent to an output.", by_topic)
        self._lag_messages = gauge("lag_messages", "Messages of an input that wait to be processed.", by_topic)
        self._lag_seconds = gauge("lag_seconds", "How far behind its producers an input is processed.", by_topic)
        self.dead_letters = counter("dead_letters_total", "Messages sent to dead_letters.", labels).labels(processor)
        self.commits = counter("commits_total", "Commits of offsets.", labels).labels(processor)
        self.rebalances = counter("rebalances_total", "Assignments of partitions.", labels).labels(processor)
        self.batch_seconds = Histogram(
            "batch_seconds",
            "Time that a batch of messages took.",
            labels,
            namespace="offbeat",
            registry=self.registry,
            buckets=_BATCH_SECONDS,
        ).labels(processor)
        self.delivery_seconds = Histogram(
            "delivery_seconds",
            "Time until outputs, sinks and saved states were safe.",
            labels,
            namespace="offbeat",
            registry=self.registry,
            buckets=_BATCH_SECONDS,
        ).labels(processor)

    def took(self, topic: str) -> None:
        self._messages.labels(self._processor, topic).inc()

    def published(self, topic: str) -> None:
        self._published.labels(self._processor, topic).inc()

    def lag(self, topic: str, messages: int, seconds: float) -> None:
        self._lag_messages.labels(self._processor, topic).set(messages)
        self._lag_seconds.labels(self._processor, topic).set(seconds)
