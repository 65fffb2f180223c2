"""What one check found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_REMEDY = re.compile(r"[:;] ((?:set|run|see|give|name|use|restore|make) .*)", re.DOTALL)
"""How our errors go on to what to do."""

CLOCK_WITHIN_S = 1.0
"""Clocks of two machines that keep time differ by less."""


class State(StrEnum):
    """How it stands: only ``failed`` asks for something to be done now."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Checked:
    """``what`` was looked at, what was ``found``, and what to do about it."""

    what: str
    state: State
    found: str
    todo: str = ""


def ok(what: str, found: str) -> Checked:
    return Checked(what, State.OK, found)


def warning(what: str, found: str, todo: str) -> Checked:
    return Checked(what, State.WARNING, found, todo)


def failed(what: str, found: str, todo: str) -> Checked:
    return Checked(what, State.FAILED, found, todo)


def refused(what: str, error: Exception) -> Checked:
    """A failure that an error tells: what is wrong, and then mostly what to do."""
    text = str(error)
    if remedy := _REMEDY.search(text):
        return failed(what, text[: remedy.start()], text[remedy.start(1) :])
    return failed(what, text, "mend what it names, or the setting behind it: docs/settings.md")


def skipped(what: str, why: str) -> Checked:
    return Checked(what, State.SKIPPED, why)
