"""What a log agent tells Prometheus about itself, read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from producers.collectors.edge import Edge
from producers.collectors.host import HostCollector
from producers.live.host import Host
from producers.log_agent import LogAgent
from producers.spool import Spool
from schemas import catalogue, metrics

if TYPE_CHECKING:
    from offbeat.agent import Line
    from offbeat.collecting import Collecting

_PUBLISHED = dict.fromkeys(
    topic.name for topic in (catalogue.JOBS, *LogAgent.writes, *HostCollector.writes, *Edge.writes)
)
"""Each has its series from the start: one that appears with the first drop shows Prometheus no increase."""


class AgentFigures(Collector):
    """The metrics of an agent; those of a job carry the label ``training_job``."""

    def __init__(self, host: Host, spool: Spool, line: Line, collecting: Collecting) -> None:
        self._host, self._spool, self._line = host, spool, line
        self._collector, self._edge = collecting.collector, collecting.edge

    def collect(self) -> Iterable[Metric]:
        operators, dropped = metrics.AGENT_OPERATORS.family(), metrics.AGENT_DROPPED_OPERATORS.family()
        kept, closed = metrics.AGENT_KEPT_ITERATIONS.family(), metrics.AGENT_CLOSED_ITERATION.family()
        for job in self._host.jobs:
            operators.add_metric([job.job], job.operators)
            dropped.add_metric([job.job], job.dropped)
            kept.add_metric([job.job], job.kept_iterations)
            closed.add_metric([job.job], job.closed)
        lost = metrics.AGENT_SPOOL_DROPPED.family()
        for topic, count in (dict.fromkeys(_PUBLISHED, 0) | dict(self._spool.dropped)).items():
            lost.add_metric([topic], count)
        calls, events = metrics.AGENT_DROPPED_CALLS.family(), metrics.AGENT_LOST_EVENTS.family()
        for name, count in self._collector.dropped_calls.items():
            calls.add_metric([name], count)
        for name, count in self._collector.lost_events.items():
            events.add_metric([name], count)
        ring, gone = metrics.AGENT_KEPT_TRAFFIC.family(), metrics.AGENT_DROPPED_TRAFFIC.family()
        for at_edge in () if self._edge is None else self._edge.jobs:
            ring.add_metric([at_edge.name], at_edge.ring.total_bytes)
            gone.add_metric([at_edge.name], at_edge.dropped)
        yield from (operators, dropped, kept, closed, lost, calls, events, ring, gone)
        for declared, value in (
            (metrics.AGENT_SPOOL_BYTES, self._spool.total_bytes),
            (metrics.AGENT_SPOOL_MESSAGES, len(self._spool)),
            (metrics.AGENT_CONNECTED, int(self._line.connected)),
            (metrics.AGENT_REFUSED_DUMPS, self._collector.refused_dumps),
        ):
            family = declared.family()
            family.add_metric([], value)
            yield family
