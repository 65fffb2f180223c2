"""Settings of the diagnosis given on the command line or in a file, over those of the environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from offbeat.setting_groups import DELIMITER, PREFIX
from offbeat.settings import DECISIVE, Settings
from schemas.errors import SettingsError

GROUPS = (*DECISIVE, "model", "pivots")
"""What decides what is found; where the brokers and the store are is not among it."""

OF_TRAFFIC = ("segment", "compare")
"""Those of them that decide what is found in NIC traffic."""

_MOST_BYTES = 64 << 10


def overridden(
    settings: Settings, given: Sequence[str] = (), file: Path | None = None, groups: Sequence[str] = GROUPS
) -> tuple[Settings, dict[str, str]]:
    """The settings with others for the diagnosis, and what differs: text by dotted name, as ``monitor.delta``.

    ``given`` are of the form ``search.locate.search=algorithm_1``; they count more than the lines of ``file``, which
    are variables, ``OFFBEAT_MONITOR__DELTA=1.2``. Raises ``SettingsError``, also for what is of none of the ``groups``.
    """
    texts = dict(_of_file(file)) if file is not None else {}
    texts |= dict(_of_option(text) for text in given)
    nested: dict[str, Any] = {}
    for name, text in texts.items():
        group, *path = name.split(".")
        if group not in groups:
            raise SettingsError(f"{name} cannot be set here; what can begins with {', '.join(groups)}")
        _put(nested, [group, *path], text)
    others = Settings.load(**nested)
    return settings.model_copy(update={name: getattr(others, name) for name in nested}), texts


def _put(nested: dict[str, Any], path: list[str], text: str) -> None:
    inner: Any = nested
    for name in path[:-1]:
        inner = inner.setdefault(name, {}) if isinstance(inner, dict) else inner
    if not isinstance(inner, dict) or isinstance(inner.get(path[-1]), dict):
        raise SettingsError(f"{'.'.join(path)} is given beside settings of its own group")
    inner[path[-1]] = text


def _of_option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise SettingsError(f"--set {text}: give it as monitor.delta=1.2")
    return name.strip().lower(), value.strip()


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        lines = content.decode().splitlines()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is no UTF-8 text; give a file of lines as {PREFIX}MONITOR__DELTA=1.2") from None
    if len(content) > _MOST_BYTES:
        raise SettingsError(f"{path}: more than {_MOST_BYTES} bytes; give the settings alone")
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        variable, equals, value = text.partition("=")
        if not equals or not variable.upper().startswith(PREFIX):
            raise SettingsError(f"{path}:{number}: give lines as {PREFIX}MONITOR__DELTA=1.2")
        name = variable.strip().upper().removeprefix(PREFIX).lower().replace(DELIMITER.lower(), ".")
        yield name, value.strip().strip("\"'")
