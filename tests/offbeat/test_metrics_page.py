"""docs/metrics.md tells every metric, and each role exposes what is declared for it and nothing else."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from offbeat.agent_figures import AgentFigures
from offbeat.exposition import registry
from offbeat.metrics_page import metrics_page
from schemas.metrics import METRICS, ROLES, STORED_ROWS, HistogramOf, Metric
from sinks.webhook.metrics import PageMetrics
from streams.metrics import Metrics
from streams.search_metrics import SearchMetrics

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "metrics.md"
ROOMS = ("diagnosis", "producers", "streams", "sinks", "offbeat")


def test_the_page_is_as_the_metrics_are() -> None:
    assert FILE.read_text("utf-8") == metrics_page(), "run: python -m offbeat.metrics_page > docs/metrics.md"


def test_the_page_tells_every_metric_once() -> None:
    page = metrics_page()
    for name, metric in METRICS.items():
        assert page.count(f"| `{name}` |") == 1
        assert metric.doc in page
    assert len(METRICS) == len(re.findall(r"^\| `offbeat_\w+` \|", page, re.MULTILINE))


def exposing(role: str) -> CollectorRegistry:
    """The registry of a role, with all that its process registers."""
    made = registry(role)
    if role == "agent":
        job = SimpleNamespace(job="a", operators=1, dropped=2, kept_iterations=3, closed=4)
        spool: Any = type("Spool", (), {"dropped": {"t": 1}, "total_bytes": 5, "__len__": lambda _: 6})()
        collector = SimpleNamespace(dropped_calls={"a": 7}, lost_events={"mlx5_0": 8}, refused_dumps=9)
        edge = SimpleNamespace(jobs=[SimpleNamespace(name="a", ring=SimpleNamespace(total_bytes=10), dropped=11)])
        collecting = SimpleNamespace(collector=collector, edge=edge)
        parts: list[Any] = [SimpleNamespace(jobs=[job]), spool, SimpleNamespace(connected=True), collecting]
        made.register(AgentFigures(*parts))
        return made
    Metrics(role, made)
    if role == "worker search":
        SearchMetrics(made)
    if role == "sink":
        STORED_ROWS.made(made)
    if role == "alert":
        PageMetrics(made)
    return made


@pytest.mark.parametrize("role", ROLES)
def test_a_role_exposes_what_is_declared_for_it(role: str) -> None:
    families = [family for family in exposing(role).collect() if not family.name.startswith("process_")]
    seen = {(_exposed(family), family.type, family.documentation) for family in families}
    assert seen == {(metric.name, metric.kind, metric.doc) for metric in ROLES[role]}


def _exposed(family: Any) -> str:
    return str(family.name) + ("_total" if family.type == "counter" else "")


def test_an_agent_tells_its_figures_under_their_labels() -> None:
    made = exposing("agent")
    assert made.get_sample_value("offbeat_agent_dropped_operators_total", {"training_job": "a"}) == 2
    assert made.get_sample_value("offbeat_agent_spool_dropped_total", {"topic": "t"}) == 1
    for topic in ("control.jobs", "telemetry.iteration_summaries", "telemetry.comm_ops", "telemetry.operator_windows"):
        assert made.get_sample_value("offbeat_agent_spool_dropped_total", {"topic": topic}) == 0
    assert made.get_sample_value("offbeat_agent_spool_messages") == 6
    assert made.get_sample_value("offbeat_agent_dropped_calls_total", {"training_job": "a"}) == 7
    assert made.get_sample_value("offbeat_agent_lost_events_total", {"nic": "mlx5_0"}) == 8
    assert made.get_sample_value("offbeat_agent_refused_dumps_total") == 9
    assert made.get_sample_value("offbeat_agent_kept_traffic_bytes", {"training_job": "a"}) == 10
    assert made.get_sample_value("offbeat_agent_dropped_traffic_total", {"training_job": "a"}) == 11


def test_samples_are_what_a_query_asks_for() -> None:
    def sampled(metric: Metric) -> set[str]:
        made = CollectorRegistry()
        child = metric.made(made)
        if metric.labels:
            child.labels(*metric.labels)
        return {s.name for family in made.collect() for s in family.samples if not s.name.endswith("_created")}

    for metric in METRICS.values():
        assert sampled(metric) == set(metric.samples)
        assert len(metric.samples) == (3 if isinstance(metric, HistogramOf) else 1)


def test_no_label_is_one_that_prometheus_gives_to_whom_it_asks() -> None:
    assert {label for metric in METRICS.values() for label in metric.labels}.isdisjoint({"job", "instance", "le"})


def test_no_metric_is_made_of_anything_but_a_declaration() -> None:
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 100
    made = re.compile(
        r"^from prometheus_client(?:\.core)? import .*\b(Gauge|Histogram|Summary|\w+MetricFamily)\b", re.MULTILINE
    )
    assert [str(path) for path in files if made.search(path.read_text("utf-8"))] == []
