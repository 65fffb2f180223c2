"""What paging counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class PageMetrics:
    """Counters of one process; all its sinks share them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.delivered = Counter(
            "offbeat_pages_delivered", "Pages that the receiver took.", ("status",), registry=registry
        )
        self.failed_attempts = Counter(
            "offbeat_page_attempts_failed", "Attempts that will be repeated.", ("reason",), registry=registry
        )
        self.superseded = Counter(
            "offbeat_pages_superseded", "Pages never sent because a newer revision came first.", registry=registry
        )
        self.refused = Counter("offbeat_pages_refused", "Pages that the receiver will never take.", registry=registry)
