"""The command line. Libraries are imported where they are used, so that ``offbeat --help`` answers at once."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from offbeat import terminal
from offbeat.commands import (
    agent,
    analysis,
    bench,
    bus,
    dead_letters,
    doctor,
    epochs,
    preload,
    replay,
    roles,
    silences,
    store,
    train,
)
from offbeat.errors import ExitCode, told_in_one_line


class _OneLineErrors(TyperGroup):
    """Tells what went wrong in one line, however the command was started."""

    def main(self, *args: Any, **options: Any) -> Any:
        with told_in_one_line():
            code = super().main(*args, **{**options, "standalone_mode": False})
            sys.stdout.flush()
        raise SystemExit(code or 0)


app = typer.Typer(
    cls=_OneLineErrors,
    name="offbeat",
    help="Name the GPU or NIC that makes an LLM training job slow, and why.",
    epilog="Settings are environment variables, as OFFBEAT_KAFKA__BOOTSTRAP_SERVERS; docs/settings.md lists them.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("offbeat"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(ExitCode.REFUSED)


for command in (
    analysis.demo,
    analysis.diagnose,
    analysis.simulate,
    analysis.convert,
    train.train,
    roles.produce,
    agent.agent,
    preload.preload,
    roles.worker,
    roles.sink,
    roles.alert,
    replay.replay,
    epochs.epochs,
    store.sql,
    store.rank,
    doctor.doctor,
):
    app.command()(command)
for group in (bus.topics, dead_letters.dead_letters, silences.silences, store.store, bench.bench):
    app.add_typer(group)


def main() -> None:
    """The ``offbeat`` command."""
    with told_in_one_line():
        terminal.guard_output()
    app(prog_name="offbeat")
