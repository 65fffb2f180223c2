"""What every role tells Prometheus: all metrics by name, type, labels and meaning, declared once.

The rooms make their metrics from these declarations. ``offbeat/metrics_page.py`` writes docs/metrics.md from them;
dashboards and alert rules are tested against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_BY_PROCESSOR = ("processor",)
_BY_TOPIC = ("processor", "topic")
_BY_TRAINING_JOB = ("training_job",)  # `job` is a label of Prometheus' own
_BATCH_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_SEARCH_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class _Declared:
    """``name`` is that of the exposed sample; its suffix says the unit."""

    name: str
    doc: str
    labels: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[str, ...]:
        """The names under which a query finds it."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class CounterOf(_Declared):
    """Something that is counted, from the start of the process on."""

    kind = "counter"

    def made(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.doc, self.labels, registry=registry)

    def family(self) -> CounterMetricFamily:
        """For figures that somebody else counts, read when they are asked for."""
        return CounterMetricFamily(self.name.removesuffix("_total"), self.doc, labels=self.labels)


@dataclass(frozen=True, slots=True)
class GaugeOf(_Declared):
    """Something that goes up and down."""

    kind = "gauge"

    def made(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.doc, self.labels, registry=registry)

    def family(self) -> GaugeMetricFamily:
        """For figures that somebody else knows, read when they are asked for."""
        return GaugeMetricFamily(self.name, self.doc, labels=self.labels)


@dataclass(frozen=True, slots=True)
class HistogramOf(_Declared):
    """How often something was so large; ``buckets`` are upper bounds."""

    buckets: tuple[float, ...] = _BATCH_SECONDS
    kind = "histogram"

    def made(self, registry: CollectorRegistry) -> Histogram:
        return Histogram(self.name, self.doc, self.labels, registry=registry, buckets=self.buckets)

    @property
    def samples(self) -> tuple[str, ...]:
        """The names under which a query finds it."""
        return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))


Metric = CounterOf | GaugeOf | HistogramOf

BUILD = GaugeOf("offbeat_build_info", "Always 1; says which version runs in which role.", ("version", "role"))

MESSAGES = CounterOf("offbeat_messages_total", "Messages taken from an input, the bad ones included.", _BY_TOPIC)
LOST = CounterOf("offbeat_lost_messages_total", "Messages missing before one that came, by their numbers.", _BY_TOPIC)
PUBLISHED = CounterOf("offbeat_published_total", "Messages sent to an output.", _BY_TOPIC)
LAG_MESSAGES = GaugeOf("offbeat_lag_messages", "Messages of an input that wait to be processed.", _BY_TOPIC)
LAG_SECONDS = GaugeOf(
    "offbeat_lag_seconds",
    "The longest time that a message of an input may have been waiting by now; 0: none waits.",
    _BY_TOPIC,
)
UNCOMMITTED = GaugeOf(
    "offbeat_uncommitted_messages",
    "Messages of an input that are processed but not committed: a restart brings them again.",
    _BY_TOPIC,
)
STUCK = GaugeOf("offbeat_stuck", "1 where /live asks for a restart, else 0.", _BY_PROCESSOR)
DEAD_LETTERS = CounterOf("offbeat_dead_letters_total", "Messages sent to dead_letters.", _BY_PROCESSOR)
COMMITS = CounterOf("offbeat_commits_total", "Commits of offsets.", _BY_PROCESSOR)
REBALANCES = CounterOf("offbeat_rebalances_total", "Assignments of partitions.", _BY_PROCESSOR)
BATCH_SECONDS = HistogramOf("offbeat_batch_seconds", "Time that a batch of messages took.", _BY_PROCESSOR)
DELIVERY_SECONDS = HistogramOf(
    "offbeat_delivery_seconds", "Time until outputs, sinks and saved states were safe.", _BY_PROCESSOR
)
WORKER: tuple[Metric, ...] = (
    MESSAGES,
    LOST,
    PUBLISHED,
    LAG_MESSAGES,
    LAG_SECONDS,
    UNCOMMITTED,
    STUCK,
    DEAD_LETTERS,
    COMMITS,
    REBALANCES,
    BATCH_SECONDS,
    DELIVERY_SECONDS,
)

SEARCHES = CounterOf("offbeat_searches_total", "Searches that ended, the failed ones included.")
SEARCHES_FAILED = CounterOf(
    "offbeat_searches_failed_total", "Searches that telemetry made fail, as the log says; they name nobody."
)
SEARCHES_BOUNDED = CounterOf(
    "offbeat_searches_bounded_total", "Searches that stopped at their bound of ranks or rows: culprits may be missing."
)
SEARCH_SECONDS = HistogramOf(
    "offbeat_search_seconds", "Time from a search's first request to its findings.", buckets=_SEARCH_SECONDS
)
SEARCHING: tuple[Metric, ...] = (SEARCHES, SEARCHES_FAILED, SEARCHES_BOUNDED, SEARCH_SECONDS)

STORED_ROWS = CounterOf("offbeat_stored_rows_total", "Rows that the store took.", ("table",))
STORE: tuple[Metric, ...] = (STORED_ROWS,)

PAGES_DELIVERED = CounterOf("offbeat_pages_delivered_total", "Pages that the receiver took.", ("status",))
PAGE_ATTEMPTS_FAILED = CounterOf(
    "offbeat_page_attempts_failed_total",
    "Attempts that failed. They are repeated; a final one, which settings must mend, ends the role first.",
    ("reason",),
)
PAGES_SUPERSEDED = CounterOf("offbeat_pages_superseded_total", "Pages never sent because a newer revision came first.")
PAGES_REFUSED = CounterOf("offbeat_pages_refused_total", "Pages that the receiver will never take.")
PAGES_RESENT = CounterOf("offbeat_pages_resent_total", "Pages sent again to a receiver that wants to hear again.")
INCIDENTS_HELD_BACK = CounterOf(
    "offbeat_incidents_held_back_total", "Incidents that got no page of their own: why.", ("verdict",)
)
PAGING: tuple[Metric, ...] = (
    PAGES_DELIVERED,
    PAGE_ATTEMPTS_FAILED,
    PAGES_SUPERSEDED,
    PAGES_REFUSED,
    PAGES_RESENT,
    INCIDENTS_HELD_BACK,
)

AGENT_OPERATORS = CounterOf("offbeat_agent_operators_total", "Operators that were logged.", _BY_TRAINING_JOB)
AGENT_DROPPED_OPERATORS = CounterOf(
    "offbeat_agent_dropped_operators_total", "Operators that found no room.", _BY_TRAINING_JOB
)
AGENT_KEPT_ITERATIONS = GaugeOf("offbeat_agent_kept_iterations", "Iterations that can be asked for.", _BY_TRAINING_JOB)
AGENT_CLOSED_ITERATION = GaugeOf(
    "offbeat_agent_closed_iteration", "The newest iteration that is over.", _BY_TRAINING_JOB
)
AGENT_SPOOL_DROPPED = CounterOf(
    "offbeat_agent_spool_dropped_total", "Messages that found no room in the spool.", ("topic",)
)
AGENT_SPOOL_BYTES = GaugeOf("offbeat_agent_spool_bytes", "What waits for Kafka.")
AGENT_SPOOL_MESSAGES = GaugeOf("offbeat_agent_spool_messages", "Messages that wait for Kafka.")
AGENT_CONNECTED = GaugeOf("offbeat_agent_connected", "Whether Kafka can be reached.")
AGENT_DROPPED_CALLS = CounterOf(
    "offbeat_agent_dropped_calls_total", "Calls of NCCL that were not logged, for lack of room.", _BY_TRAINING_JOB
)
AGENT_LOST_EVENTS = CounterOf(
    "offbeat_agent_lost_events_total", "Counts that a NIC lost before they were dumped.", ("nic",)
)
AGENT_REFUSED_DUMPS = CounterOf("offbeat_agent_refused_dumps_total", "Epoch dumps that could not be read.")
AGENT_KEPT_TRAFFIC = GaugeOf(
    "offbeat_agent_kept_traffic_bytes", "NIC telemetry that is kept where it is segmented.", _BY_TRAINING_JOB
)
AGENT_DROPPED_TRAFFIC = CounterOf(
    "offbeat_agent_dropped_traffic_total",
    "Records of it that had to go before operators in them were told.",
    _BY_TRAINING_JOB,
)
AGENT: tuple[Metric, ...] = (
    AGENT_OPERATORS,
    AGENT_DROPPED_OPERATORS,
    AGENT_KEPT_ITERATIONS,
    AGENT_CLOSED_ITERATION,
    AGENT_SPOOL_DROPPED,
    AGENT_SPOOL_BYTES,
    AGENT_SPOOL_MESSAGES,
    AGENT_CONNECTED,
    AGENT_DROPPED_CALLS,
    AGENT_LOST_EVENTS,
    AGENT_REFUSED_DUMPS,
    AGENT_KEPT_TRAFFIC,
    AGENT_DROPPED_TRAFFIC,
)

ROLES: Mapping[str, tuple[Metric, ...]] = {
    "worker monitor": (BUILD, *WORKER),
    "worker search": (BUILD, *WORKER, *SEARCHING),
    "worker segment": (BUILD, *WORKER),
    "worker compare": (BUILD, *WORKER),
    "worker incidents": (BUILD, *WORKER),
    "sink": (BUILD, *WORKER, *STORE),
    "alert": (BUILD, *WORKER, *PAGING),
    "agent": (BUILD, *AGENT),
}
"""What each role exposes, by its command; the figures of its process (``process_...``) come with it."""

METRICS: Mapping[str, Metric] = {metric.name: metric for metrics in ROLES.values() for metric in metrics}
