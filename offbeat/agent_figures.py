"""What a log agent tells Prometheus about itself, read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from producers.live.host import Host
from producers.spool import Spool

if TYPE_CHECKING:
    from offbeat.agent import Line


class AgentFigures(Collector):
    """The metrics of an agent; those of a job carry the label ``job``."""

    def __init__(self, host: Host, spool: Spool, line: Line) -> None:
        self._host, self._spool, self._line = host, spool, line

    def collect(self) -> Iterable[Metric]:
        own = ["job"]
        operators = CounterMetricFamily("offbeat_agent_operators", "Operators that were logged.", labels=own)
        dropped = CounterMetricFamily("offbeat_agent_dropped_operators", "Operators that found no room.", labels=own)
        kept = GaugeMetricFamily("offbeat_agent_kept_iterations", "Iterations that can be asked for.", labels=own)
        closed = GaugeMetricFamily("offbeat_agent_closed_iteration", "The newest iteration that is over.", labels=own)
        for job in self._host.jobs:
            operators.add_metric([job.job], job.operators)
            dropped.add_metric([job.job], job.dropped)
            kept.add_metric([job.job], job.kept_iterations)
            closed.add_metric([job.job], job.closed)
        lost = CounterMetricFamily("offbeat_agent_spool_dropped", "Messages that found no room.", labels=["topic"])
        for topic, count in self._spool.dropped.items():
            lost.add_metric([topic], count)
        yield from (operators, dropped, kept, closed, lost)
        yield GaugeMetricFamily("offbeat_agent_spool_bytes", "What waits for Kafka.", self._spool.total_bytes)
        yield GaugeMetricFamily("offbeat_agent_spool_messages", "Messages that wait for Kafka.", len(self._spool))
        yield GaugeMetricFamily("offbeat_agent_connected", "Whether Kafka can be reached.", int(self._line.connected))
