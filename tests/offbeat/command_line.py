"""Running the command line: in this process, and as a person starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from offbeat.cli import app

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "a1_compute_persist_3d"


def offbeat(*arguments: object, settings: Mapping[str, str] | None = None) -> Result:
    """Run a command in this process, under these settings alone."""
    given = {name: None for name in os.environ if name.startswith("OFFBEAT_")} | dict(settings or {})
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="offbeat", env=given)


def command(*arguments: object) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-c", "from offbeat.cli import main; main()", *map(str, arguments)]


def own_environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process' environment with these settings alone."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OFFBEAT_")} | dict(settings or {})


def run_offbeat(*arguments: object, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, to its end."""
    return subprocess.run(
        command(*arguments), env=own_environment(settings), cwd=ROOT, capture_output=True, text=True, check=False
    )


def refusal(result: Result) -> str:
    """The one line with which a command refused; everything else about the result is checked."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    under_way = " ..."  # on a slow machine what took long was told before
    [line] = [line for line in result.stderr.splitlines() if not line.endswith(under_way)]
    return line
