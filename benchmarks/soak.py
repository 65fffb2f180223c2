"""Whether memory and lag stay flat under a steady load, and whether every page comes."""

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
    from benchmarks.pages import OnCall
    from streams.bus import Bus

_MB = 1e6
_DELIVERED_WITHIN_S = 60.0
_GROWS = "how much more memory a role has in the last quarter than in the second, as a share"


def run(
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the load lasts.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that train at the same time.")] = 2,
    ranks: Annotated[int, typer.Option(min=16, help="GPUs of each.")] = 64,
    iteration_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two iterations of a job.")] = 1.0,
    every_s: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks at each role.")] = 5.0,
    rss_grows: Annotated[float, typer.Option(help=f"At most: {_GROWS}.")] = 0.03,
    lag_p50_s: Annotated[float, typer.Option(help="At most: a role's median lag in a quarter.")] = 2.0,
    lag_most_s: Annotated[float, typer.Option(help="At most: a role's lag, after the first quarter.")] = 30.0,
    pages_lost: Annotated[int, typer.Option(help="At most: pages that nobody got.")] = 0,
) -> dict[str, Any]:
    """Load the whole pipeline steadily, and see what grows.

    A broker, a ClickHouse and every role run as processes of their own. Jobs of 60 iterations with two faults each
    come and go; one host of each logs live, into the rings of an agent. Of each role: memory and lag, in the four
    quarters of the time. Where a bound does not hold the exit code is 1.
    """
    from benchmarks.bounds import Bounds
    from benchmarks.deployment import deployment
    from benchmarks.steady_load import steady_load
    from offbeat import wiring
    from offbeat.settings import Settings

    bounds = Bounds(rss_grows, lag_p50_s, lag_most_s, pages_lost)
    settings = Settings.load()
    with tempfile.TemporaryDirectory(prefix="offbeat-soak-") as folder, deployment(Path(folder)) as deployed:
        kafka = deployed.reached_by(settings.kafka)
        load = steady_load(
            settings.model_copy(update={"kafka": kafka}),
            side_by_side=jobs,
            ranks=ranks,
            iteration_s=iteration_s,
            rings=deployed.rings,
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
        with deployed.store() as store:
            [stored] = store.query(
                "SELECT (SELECT count() FROM comm_ops) AS operators, (SELECT count() FROM findings) AS findings, "
                "(SELECT uniqExact(id) FROM incidents) AS incidents"
            ).to_pylist()
        lost = _pages_lost(wiring.bus(kafka), deployed.on_call)
        roles = {name: quarters(of_role) for name, of_role in samples.items()}
        verdicts = list(bounds.judge(roles, len(lost)))
        return {
            "holds": all(verdict.holds for verdict in verdicts),
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
            "agent": {
                "operators": deployed.roles["agent"].total("offbeat_agent_operators_total"),
                "dropped": deployed.roles["agent"].total("offbeat_agent_dropped_operators_total"),
            },
            "stored": stored,
            "pages": {
                "taken": deployed.on_call.taken.total(),
                "repeated": deployed.on_call.taken.total() - len(deployed.on_call.taken),
                "lost": lost,
            },
            "roles": roles,
            "verdicts": [verdict.to_row() for verdict in verdicts],
        }


def _pages_lost(bus: Bus, on_call: OnCall) -> list[str]:
    """The incidents that were published and that nobody was told of to the end, once there was time to."""
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

    from benchmarks import pages
    from schemas.catalogue import INCIDENTS, JOBS
    from streams.control_view import Jobs
    from streams.follower import Follower

    jobs = Jobs()
    with Follower(bus, JOBS.name) as described, Follower(bus, INCIDENTS.name) as published:
        for message in described.catch_up():
            jobs.process(message)
        due = pages.due(published.catch_up(), jobs)
    in_time = Retrying(
        retry=retry_if_result(bool),
        stop=stop_after_delay(_DELIVERED_WITHIN_S),
        wait=wait_fixed(1.0),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    return list(in_time(lambda: pages.lost(due, list(on_call.taken))) or ())


def quarters(samples: Sequence[Sample]) -> Mapping[str, Any]:
    """Memory (median) and lag (median and greatest) in each quarter of a series of four samples or more.

    ``rss_grows`` is the share by which the last quarter exceeds the second: the first warms up. ``lag_untold`` is at
    how many looks the role told no lag. None: not known.
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
        "lag_untold": [len(part) - len(told) for part, told in zip(parts, lags, strict=True)],
    }
