"""How a command ends: one line for what a person can mend, a traceback for what only we can.

The errors themselves are in schemas/errors.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from typer.exceptions import TyperException

from offbeat import terminal
from schemas.errors import OffbeatError, OutputError

_STDOUT = 1
"""Its descriptor, which is there where ``sys.stdout`` is not."""


class ExitCode(IntEnum):
    """What a command's exit code says."""

    DONE = 0
    FOUND = 1
    """``diagnose --fail-on-incident`` found one."""
    REFUSED = 2
    """Bad usage, bad input, a service that cannot be used, or output that cannot be written; one line on stderr says
    what, where and what to do."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """End the process with one line on stderr where an ``OffbeatError`` or a mistake in the usage comes through."""
    try:
        yield
    except OutputError as error:
        _drop_output()
        _refuse(str(error))
    except OffbeatError as error:
        _refuse(str(error))
    except TyperException as error:
        _refuse(_usage(error))


def _drop_output() -> None:
    """Send nowhere what is still to be printed, or the process would fail on it in its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)


def _usage(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "offbeat"
    what = error.format_message() if hasattr(error, "format_message") else str(error)
    # A choice is checked by pydantic underneath, which puts its own name for that before the reason.
    return f"{command}: {what.replace(': Value error, ', ': ').rstrip('.?')}; see `{command} --help`"


def _refuse(reason: str) -> None:
    print(terminal.printable(" ".join(reason.split())), file=sys.stderr)
    sys.exit(ExitCode.REFUSED)
