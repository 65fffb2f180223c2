"""agent: the log agent of a host on which training processes log with ``offbeat.operator_log``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offbeat.commands.parameters import Bootstrap, settings_with
from offbeat.commands.roles import HealthPort


def agent(
    job: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder whose job.json describes the job, if it is on more than this host."),
    ] = None,
    until_ended: Annotated[
        bool, typer.Option("--until-ended", help="End once all jobs have ended and Kafka has everything.")
    ] = False,
    bootstrap: Bootstrap = None,
    health_port: HealthPort = None,
) -> None:
    """Tell Kafka of this host's training processes until SIGTERM."""
    from offbeat import terminal
    from offbeat.agent import run_agent
    from offbeat.signals import until_signalled
    from producers.importers.fabric_names import unlisted
    from producers.importers.job_of_rows import JOB_FILE, read_job_file
    from schemas.errors import SettingsError

    settings = settings_with(bootstrap=bootstrap, health_port=health_port)
    given = None if job is None else read_job_file(job)
    if job is not None and given is None:
        raise SettingsError(f"{job} holds no {JOB_FILE}")
    for line in () if given is None else unlisted(given):
        terminal.note(line)
    with until_signalled() as stopped:
        run_agent(settings, given, stopped=stopped, until_ended=until_ended)
