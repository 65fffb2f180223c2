"""What paging counts: the metrics of schemas/metrics.py that paging has."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from schemas import metrics


class PageMetrics:
    """Counters of one process; all its sinks share them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.delivered = metrics.PAGES_DELIVERED.made(registry)
        self.failed_attempts = metrics.PAGE_ATTEMPTS_FAILED.made(registry)
        self.superseded = metrics.PAGES_SUPERSEDED.made(registry)
        self.refused = metrics.PAGES_REFUSED.made(registry)
        self.resent = metrics.PAGES_RESENT.made(registry)
        self.held_back = metrics.INCIDENTS_HELD_BACK.made(registry)
