"""bench: what benchmarks/ measures.

A benchmark is a module there with a function ``run`` that returns its figures; the function's parameters are the
command's options. One that judges its figures says with ``holds`` whether all is well: the exit code is 1 where it is
not. Modules are loaded when they are asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module, resources
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from offbeat import terminal
from offbeat.commands.parameters import Json


class _Benchmarks(TyperGroup):
    """The modules of benchmarks/ that define ``run``, as commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in names():
            return None
        own = typer.Typer(add_completion=False, rich_markup_mode=None)
        own.command(cmd_name)(_printing(import_module(f"benchmarks.{cmd_name}").run))
        return get_command(own)


bench = typer.Typer(
    name="bench",
    cls=_Benchmarks,
    help="Measure accuracy and throughput.",
    rich_markup_mode=None,
)


@bench.callback()
def _group() -> None:
    """Keeps a group without commands of its own a group."""


def names() -> list[str]:
    """The benchmarks that there are."""
    modules = (file for file in resources.files("benchmarks").iterdir() if file.name.endswith(".py"))
    return sorted(file.name.removesuffix(".py") for file in modules if "\ndef run(" in file.read_text("utf-8"))


def _printing(run: Callable[..., Mapping[str, Any]]) -> Callable[..., None]:
    """A benchmark with the option ``--json``, that prints its figures."""

    def command(*, as_json: bool, **options: Any) -> None:
        figures = run(**options)
        if as_json:
            terminal.print_json(figures)
        else:
            _print_figures(figures)
        if not figures.get("holds", True):
            raise typer.Exit(1)

    as_json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
    signature = inspect.signature(run, eval_str=True)
    parameters = [*signature.parameters.values(), as_json]
    command.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = run.__doc__
    return command


def _print_figures(figures: Mapping[str, Any], indent: str = "") -> None:
    for name, figure in figures.items():
        if isinstance(figure, Mapping):
            print(f"{indent}{name}:")
            _print_figures(figure, indent + "  ")
        else:
            print(f"{indent}{name}: {figure}")
