"""bench: what benchmarks/ measures. A benchmark is a module there with a function ``run`` that returns the figures."""

from __future__ import annotations

from importlib import import_module, resources
from typing import Annotated, Any

import typer

from offbeat import terminal
from offbeat.commands.parameters import Json


def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which benchmark; `offbeat bench list` names them.")],
    as_json: Json = False,
) -> None:
    """Measure accuracy or throughput.

    Options after NAME are the benchmark's own: `offbeat bench NAME --help`.
    """
    if name == "list":
        print("\n".join(names()))
        return
    if name not in names():
        raise typer.BadParameter(f"there is no benchmark {name!r}; known are {', '.join(names())}")
    own = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    own.command()(import_module(f"benchmarks.{name}").run)
    figures = own(context.args, prog_name=f"offbeat bench {name}", standalone_mode=False)
    if isinstance(figures, dict):
        _print(figures, as_json=as_json)


def names() -> list[str]:
    """The benchmarks that there are: the modules of benchmarks/ that define ``run``."""
    modules = (file for file in resources.files("benchmarks").iterdir() if file.name.endswith(".py"))
    return sorted(file.name.removesuffix(".py") for file in modules if "\ndef run(" in file.read_text("utf-8"))


def _print(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(figures)
        return
    for name, figure in figures.items():
        print(f"{name}: {figure}")
