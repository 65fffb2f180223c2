"""The reference of all metrics, written from their declarations.

``python -m offbeat.metrics_page`` prints docs/metrics.md; a test keeps the file as this module writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from schemas.metrics import AGENT, BUILD, PAGING, ROLES, SEARCHING, STORE, WORKER, HistogramOf, Metric

_INTRODUCTION = """\
# Metrics

Written from `schemas/metrics.py`: run `python -m offbeat.metrics_page > docs/metrics.md` after a change.

With `--health-port PORT` a role serves two pages, on the loopback address unless `OFFBEAT_WORKER__HEALTH_HOST` names
another: `/metrics` for Prometheus, and `/live` for whoever restarts processes.

| role | what it exposes |
|---|---|
{roles}

Each has the figures of its process as well (`process_resident_memory_bytes`, `process_cpu_seconds_total` and so on).

`/live` answers 503, and `offbeat_stuck` is 1, with one line that says why, where a worker

- has delivered or committed nothing for five minutes: its cycle comes round every second, even where there is
  nothing to commit;
- has had messages of a partition wait for five minutes and took none of them;
- has processed messages of a partition and has not committed an offset of it for five minutes, though no processor
  holds it: a search holds its iteration's offset until it ends, and has a deadline; `segment` and `compare` hold what
  open operators and the iteration that goes on are told from, in a hang for as long as it lasts. A host of which no
  epochs or no calls have come for ten minutes, as far as `segment` has read both in its partition, is let go by it; of
  a job that vanished without an end `compare` holds what the topic still has.

An agent is stuck when it has not looked at the rings for half a minute. That Kafka is away is no reason to restart
anything: workers and agents go on by themselves once it is back.

`offbeat_lag_seconds` is an upper bound that needs no message to be read: what waits came after the last message that
was processed, and after the last look (every five seconds) at which nothing waited. A worker that has just started with
a backlog knows neither, and counts from its first look until it has processed a message."""

_SECTIONS: tuple[tuple[str, Iterable[Metric]], ...] = (
    ("Every role", (BUILD,)),
    ("Workers, sink and alert", WORKER),
    ("Worker search", SEARCHING),
    ("Sink", STORE),
    ("Alert", PAGING),
    ("Agent", AGENT),
)


def metrics_page() -> str:
    """The text of docs/metrics.md."""
    roles = "\n".join(f"| `offbeat {role}` | {_sections_of(metrics)} |" for role, metrics in ROLES.items())
    sections = [_section(title, metrics) for title, metrics in _SECTIONS]
    return "\n\n".join([_INTRODUCTION.format(roles=roles), *sections]) + "\n"


def _sections_of(exposed: tuple[Metric, ...]) -> str:
    return ", ".join(title for title, metrics in _SECTIONS if set(metrics) <= set(exposed))


def _section(title: str, metrics: Iterable[Metric]) -> str:
    rows = [f"| `{metric.name}` | {_kind(metric)} | {_labels(metric)} | {metric.doc} |" for metric in metrics]
    return "\n".join([f"## {title}", "", "| metric | type | labels | what it says |", "|---|---|---|---|", *rows])


def _kind(metric: Metric) -> str:
    if isinstance(metric, HistogramOf):
        return f"histogram to {metric.buckets[-1]:g}"
    return metric.kind


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels) or "-"


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
