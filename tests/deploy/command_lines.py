"""Whether a deployment's command lines and environments are ones that the command line takes."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from offbeat import options
from offbeat.cli import app
from offbeat.settings import Settings


def check_command(arguments: Sequence[str]) -> str:
    """The name of the command, as ``worker monitor``; fails where command, option or value is not one of ours."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("offbeat", list(arguments))
    names: list[str] = []
    while isinstance(command, TyperGroup):
        left = [*context._protected_args, *context.args]
        if not left:
            context.fail(f"{context.command_path}: no command")
        name, command, rest = command.resolve_command(context, left)
        names.append(str(name))
        context = command.make_context(name, rest, parent=context)
    if context.params.get("simulate") is not None:
        options.scenario(context.params["simulate"], context.params["fault"] or [])
    step = context.params.get("name")
    return " ".join([*names, step.value] if step is not None else names)


def loaded(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of an environment; raises ``SettingsError`` for a name or a value that is none."""
    with monkeypatch.context() as patched:
        for name in os.environ:
            if name.startswith("OFFBEAT_"):
                patched.delenv(name)
        for name, value in environment.items():
            patched.setenv(name, value)
        return Settings.load()
