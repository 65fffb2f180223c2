"""doctor: whether all is well with what a role needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from offbeat import terminal
from offbeat.commands.parameters import Bootstrap, DataDir, Json, given_settings
from offbeat.errors import ExitCode

if TYPE_CHECKING:
    from offbeat.doctor.checked import Checked

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


def doctor(bootstrap: Bootstrap = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Say what is amiss with brokers, lag, store and settings.

    Nothing is changed, and nobody is paged. The exit code is 1 where a check failed; its line says what to do.
    """
    from offbeat import logs
    from offbeat.doctor import examine
    from offbeat.doctor.checked import State
    from offbeat.doctor.settled import settle

    settled = settle(given_settings(bootstrap=bootstrap, data_dir=data_dir))
    if settled.settings is not None:
        logs.configure(settled.settings.log_level)
    with terminal.progress("looking") as shown:
        checks = []
        for count, check in enumerate(examine(settled), start=1):
            checks.append(check)
            shown.advance(count)
    terminal.print_json([asdict(check) for check in checks]) if as_json else _print(checks)
    if any(check.state is State.FAILED for check in checks):
        raise typer.Exit(ExitCode.FOUND)


def _print(checks: list[Checked]) -> None:
    """A table for a terminal; elsewhere a line a check, without anything behind it, for a mail or a ticket."""
    out = terminal.console()
    if not out.is_terminal:
        for check in checks:
            todo = f"; to do: {check.todo}" if check.todo else ""
            print(terminal.printable(f"{check.state:<7}  {check.what}: {check.found}{todo}".rstrip()))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("check", "state", "found", "what to do"):
        table.add_column(name, no_wrap=name in {"check", "state"}, overflow="fold")
    for check in checks:
        table.add_row(check.what, Text(check.state, _STYLES[check.state]), check.found, check.todo)
    out.print(table)
