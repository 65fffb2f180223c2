"""What searching counts: the metrics of schemas/metrics.py that only the searching step has."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from schemas import metrics


class SearchMetrics:
    """The metrics of one process; all its searching steps share them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._searches = metrics.SEARCHES.made(registry)
        self._failed = metrics.SEARCHES_FAILED.made(registry)
        self._bounded = metrics.SEARCHES_BOUNDED.made(registry)
        self._seconds = metrics.SEARCH_SECONDS.made(registry)

    def ended(self, took_ns: int, *, failed: bool, bounded: bool) -> None:
        """A search ended, this long after it had begun."""
        self._searches.inc()
        self._failed.inc(failed)
        self._bounded.inc(bounded)
        self._seconds.observe(took_ns / 1e9)
