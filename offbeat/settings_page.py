"""The reference of everything that can be set, written from the settings themselves.

``python -m offbeat.settings_page`` prints docs/settings.md; a test keeps the file as this module writes it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, SecretStr

from offbeat.field_docs import field_docs
from offbeat.setting_groups import DATA_DIR, DELIMITER, PREFIX, variable_name
from offbeat.settings import Settings

_INTRODUCTION = f"""\
# Settings

Written from `offbeat/settings.py` and the settings that it collects: run
`python -m offbeat.settings_page > docs/settings.md` after a change.

Settings are environment variables; steps may look at a file of some of them besides
(`{PREFIX}WORKER{DELIMITER}TUNING`, [operations.md](operations.md#tune)). A variable that begins with `{PREFIX}` and
is none of these is refused, and so is a wrong value: no number may be infinite (`inf`, `1e309`) or `nan`. Options
of a command, such as `--bootstrap`, `--data-dir` or `--health-port`, go before the environment. A dash is a setting
that is not set. A setting that a meaning names is of the same group, or has its groups before it, with dots:
`search.locate.detector` is `{PREFIX}SEARCH{DELIMITER}LOCATE{DELIMITER}DETECTOR`.

Without `{PREFIX}STORE{DELIMITER}...` the store is a chDB folder `./{DATA_DIR}` where the command is run; a command
that makes it says so on stderr. `offbeat diagnose` keeps nothing unless it is given a `--data-dir`, and
`offbeat demo` fills a new temporary folder, which it names."""

_TYPES = {int: "whole number", float: "number", str: "text", Path: "path", SecretStr: "text, never shown"}


def settings_page() -> str:
    """The text of docs/settings.md."""
    return "\n\n".join([_INTRODUCTION, *_groups(Settings.model_construct(), ())]) + "\n"


def _groups(group: Any, path: tuple[str, ...]) -> Iterator[str]:
    """A section for the fields of a group, then those of the groups in it."""
    values = {name: getattr(group, name) for name in _names(group)}
    plain = [name for name, value in values.items() if not _is_group(value)]
    hints = get_type_hints(type(group), include_extras=True)
    meanings = {name: _in_a_cell(docs) for name, docs in field_docs(type(group)).items()}
    rows = [
        f"| `{variable_name(*path, name)}` | {_default(values[name])} | {_takes(hints[name])} "
        f"| {meanings.get(name, '')} |"
        for name in plain
    ]
    heading = f"`{variable_name(*path)}{DELIMITER}...`" if path else "Of no group"
    text = (inspect.getdoc(type(group)) or "").replace("``", "`")
    header = ["| variable | default | takes | meaning |", "|---|---|---|---|"]
    yield "\n".join([f"## {heading}", "", text, "", *header, *rows])
    for name, value in values.items():
        if _is_group(value):
            yield from _groups(value, (*path, name))


def _names(group: Any) -> list[str]:
    return list(type(group).model_fields) if isinstance(group, BaseModel) else [field.name for field in fields(group)]


def _is_group(value: Any) -> bool:
    return is_dataclass(value) or isinstance(value, BaseModel)


def _default(value: Any) -> str:
    shown = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(shown, bool):
        shown = str(shown).lower()
    return "-" if shown is None or not str(shown) else f"`{shown}`"


def _in_a_cell(docstring: str) -> str:
    return " ".join(docstring.replace("``", "`").split())


def _takes(hint: Any) -> str:
    """What a value may be, in words; that it may be missing says the default."""
    if get_origin(hint) is Annotated:
        return _takes(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    if get_origin(hint) in {Union, UnionType}:
        return ", ".join(_takes(part) for part in get_args(hint) if part is not type(None))
    return "`true`, `false`" if hint is bool else _TYPES[hint]


if __name__ == "__main__":
    sys.stdout.write(settings_page())
