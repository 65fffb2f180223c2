"""produce, worker, sink, alert: the long-running roles, each one process between Kafka and the world."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import (
    SCENARIO,
    Bootstrap,
    DataDir,
    Faults,
    FormatName,
    IterationOp,
    Json,
    LayoutText,
    settings_with,
)

Instance = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name within the group, the same after a restart: a pod's name.")
]
HealthPort = Annotated[int | None, typer.Option(metavar="PORT", help="Serve /metrics and /live here.")]


class StepName(StrEnum):
    """The diagnosing steps."""

    MONITOR = "monitor"
    SEARCH = "search"
    SEGMENT = "segment"
    COMPARE = "compare"
    INCIDENTS = "incidents"


def produce(
    recording: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="Files or folders of a recorded run.")
    ] = None,
    simulate: Annotated[str | None, typer.Option(metavar="NAME=VALUE,...", help=f"A simulated job: {SCENARIO}")] = None,
    fault: Faults = None,
    format_name: FormatName = None,
    layout: LayoutText = None,
    iteration_op: IterationOp = None,
    linger: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="End when nothing was asked for so long.")
    ] = 30.0,
    follow: Annotated[bool, typer.Option("--follow", help="Answer requests until SIGTERM.")] = False,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Publish a job's telemetry to Kafka, and answer requests.

    Of a recording that is its log of operators, what its NICs sent, or both.
    """
    from dataclasses import asdict

    from offbeat import options
    from offbeat.produce import produce as run
    from offbeat.reading import Reading, read_all
    from offbeat.signals import until_signalled
    from producers.importers.traffic_messages import messages as told
    from producers.simulation import simulate as simulated

    if bool(recording) == (simulate is not None):
        raise typer.BadParameter("give either --recording or --simulate")
    settings = settings_with(bootstrap=bootstrap)
    if simulate is not None:
        with terminal.progress("simulating"):
            made = simulated(options.scenario(simulate, fault or []))
        job, table, traffic = made.job, made.table, None
    else:
        given = Reading(format_name, None if layout is None else options.layout(layout), iteration_op)
        recorded = read_all(recording or [], given).ended(settings.segment.late_ns)
        job, operators = recorded.job, recorded.operators
        table = None if operators is None else operators.table
        traffic = None if recorded.traffic is None else told(job, recorded.traffic)
    what = f"publishing {job.job} to {settings.kafka.bootstrap_servers}"
    with until_signalled() as stopped, terminal.progress(what) as shown:
        produced = run(
            job,
            table,
            settings,
            linger_s=None if follow else linger,
            stopped=stopped,
            traffic=traffic,
            on_round=shown.advance,
        )
    if produced.ended_before:
        terminal.note(
            f"{produced.job} had ended before: running workers pass over what comes of it again; name the job "
            "otherwise (its folder, or job in job.json) to have it diagnosed anew"
        )
    if as_json:
        terminal.print_json(asdict(produced))
    else:
        messages = terminal.counted(produced.messages, "message")
        terminal.console().print(f"{produced.job}: published {messages}, {produced.answers} of them answers")


def worker(
    name: Annotated[StepName, typer.Argument(help="The step to run.")],
    bootstrap: Bootstrap = None,
    instance: Instance = None,
    health_port: HealthPort = None,
) -> None:
    """Run a diagnosing step between Kafka topics until SIGTERM."""
    from offbeat import roles

    settings = settings_with(bootstrap=bootstrap, instance=instance, health_port=health_port)
    roles.run_step(name.value, settings)


def sink(
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    instance: Instance = None,
    health_port: HealthPort = None,
) -> None:
    """Store what the steps publish until SIGTERM."""
    from offbeat import roles

    settings = settings_with(bootstrap=bootstrap, data_dir=data_dir, instance=instance, health_port=health_port)
    roles.run_store_sink(settings)


def alert(bootstrap: Bootstrap = None, instance: Instance = None, health_port: HealthPort = None) -> None:
    """Page incidents to the receiver that is set until SIGTERM."""
    from offbeat import roles

    settings = settings_with(bootstrap=bootstrap, instance=instance, health_port=health_port)
    roles.run_paging(settings)
