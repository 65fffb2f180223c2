"""Whether memory and lag stay flat under a steady load."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when it begins
    from benchmarks.deployment import Sample

_MB = 1e6


def run(
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the load lasts.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that train at the same time.")] = 2,
    ranks: Annotated[int, typer.Option(min=16, help="GPUs of each.")] = 64,
    iteration_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two iterations of a job.")] = 1.0,
    every_s: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks at each role.")] = 5.0,
) -> dict[str, Any]:
    """Load the whole pipeline steadily, and see what grows.

    A broker, a ClickHouse and every role run as processes of their own. Jobs of 60 iterations with two faults each
    come and go. Of each role: memory and lag, in the four quarters of the time.
    """
    from benchmarks.deployment import deployment
    from benchmarks.steady_load import steady_load
    from offbeat.settings import Settings
    from sinks.clickhouse.driver import DriverStore, ServerAddress

    settings = Settings.load()
    with tempfile.TemporaryDirectory(prefix="offbeat-soak-") as folder, deployment(Path(folder)) as deployed:
        kafka = settings.kafka.model_copy(update={"bootstrap_servers": deployed.kafka.bootstrap_servers})
        load = steady_load(
            settings.model_copy(update={"kafka": kafka}), side_by_side=jobs, ranks=ranks, iteration_s=iteration_s
        )
        samples: dict[str, list[Sample]] = {name: [] for name in deployed.roles}
        looks = max(4, round(minutes * 60 / every_s))
        with load as told, terminal.progress("looks at the roles", looks) as shown:
            began = time.monotonic()
            for look in range(looks):
                time.sleep(max(0.0, began + (look + 1) * every_s - time.monotonic()))
                told.check()
                for name, role in deployed.roles.items():
                    samples[name].append(role.sample())
                shown.advance(look + 1)
            lasted_s = time.monotonic() - began
        deployed.drain()
        server = deployed.clickhouse
        store = DriverStore(ServerAddress(server.host, server.tcp_port, user=server.user, password=server.password))
        try:
            [stored] = store.query(
                "SELECT (SELECT count() FROM comm_ops) AS operators, (SELECT count() FROM findings) AS findings, "
                "(SELECT uniqExact(id) FROM incidents) AS incidents"
            ).to_pylist()
        finally:
            store.close()
        return {
            "minutes": round(lasted_s / 60, 1),
            "load": {
                "jobs_at_a_time": jobs,
                "ranks_a_job": ranks,
                "iterations_a_second": round(told.iterations / lasted_s, 2),
                "jobs_ended": told.jobs,
                "operators_logged": told.operators,
                "messages": told.messages,
                "late_by_at_most_s": round(told.behind_s, 1),
            },
            "stored": stored,
            "pages": deployed.on_call.pages,
            "roles": {name: quarters(of_role) for name, of_role in samples.items()},
        }


def quarters(samples: Sequence[Sample]) -> Mapping[str, Any]:
    """Memory (median) and lag (median and greatest) in each quarter of a series of four samples or more.

    ``rss_grows`` is the share by which the last quarter exceeds the second: the first warms up. None: not known.
    """
    bounds = [round(len(samples) * quarter / 4) for quarter in range(5)]
    parts = [samples[first:last] for first, last in pairwise(bounds)]
    rss = [median(sample.rss_bytes for sample in part) for part in parts]
    lags = [[sample.lag_s for sample in part if sample.lag_s is not None] for part in parts]
    return {
        "rss_mb": [round(each / _MB, 1) for each in rss],
        "rss_grows": round(rss[3] / rss[1] - 1, 4),
        "lag_p50_s": [round(median(part), 2) if part else None for part in lags],
        "lag_most_s": [round(max(part), 2) if part else None for part in lags],
    }
