"""Run the campaign on services of its own: python -m tests.faults --seed 1 --kills 50 --json."""

import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from offbeat import terminal
from tests.faults import report
from tests.faults.campaign import carry_out
from tests.faults.plan import faults, plan
from tests.faults.site import Services, Site
from tests.faults.tally import Tally


def main(
    seed: Annotated[int, typer.Option(help="Draws the order of the faults, and their moments.")] = 1,
    kills: Annotated[int, typer.Option(min=1, help="SIGKILLs of roles.")] = 50,
    only: Annotated[list[str] | None, typer.Option(help=f"A fault: {', '.join(faults(0))}.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep what the roles say here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Let every fault befall the deployed pipeline; exit code 1 where one was not survived."""
    try:
        steps = plan(seed, kill_count=kills, only=only or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left behind
    with (
        tempfile.TemporaryDirectory(prefix="offbeat-faults-") as temporary,
        Services.own() as services,
        Site.deployed(services, folder or Path(temporary)) as site,
    ):
        tallies = carry_out(site, steps, terminal.note)
    if as_json:
        terminal.print_json(report.as_json(seed, tallies))
    else:
        console = terminal.console()
        console.print(report.as_table(seed, tallies))
        for tally in tallies:
            for line in (*tally.skipped, *tally.differences):
                console.print(f"{tally.fault}: {line}")
    if not Tally.total(tallies).survived:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
