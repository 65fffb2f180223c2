"""The settings as far as they can be had: a secret that is missing costs its own service's checks and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from offbeat.doctor.checked import Checked, refused
from offbeat.secret_files import SECRETS, SUFFIX, with_secrets
from offbeat.settings import DELIMITER, PREFIX, Settings
from schemas.errors import SettingsError

_GROUPS = ("kafka", "store", "webhook")
_STANDS_IN = "0" * 32
"""For a secret that is not there; nothing is asked with it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """``amiss`` is what is wrong with the settings; ``without`` the groups whose secrets are missing.

    ``settings`` are None where there are none to go on with.
    """

    settings: Settings | None
    amiss: tuple[Checked, ...] = ()
    without: frozenset[str] = frozenset()


def settle(given: Mapping[str, Any]) -> Settled:
    """The settings of the environment, under those ``given`` (groups as mappings)."""
    try:
        return Settled(Settings.load(**given))
    except SettingsError as error:
        missing = dict(_missing_secrets())
        if not missing:
            return Settled(None, (refused("settings", error),))
    amiss = tuple(refused("secret file", error) for error in missing.values())
    others = {group: dict(given.get(group, {})) for group in {*given, *(group for group, _ in missing)}}
    for group, name in missing:
        others[group] |= {name: _STANDS_IN, name + SUFFIX: None}
    try:
        settings = Settings.load(**others)
    except SettingsError as error:
        return Settled(None, (*amiss, refused("settings", error)))
    return Settled(settings, amiss, frozenset(group for group, _ in missing))


def _missing_secrets() -> Iterator[tuple[tuple[str, str], SettingsError]]:
    """Group and name of each secret whose file cannot be read or holds none, and why."""
    environment = {variable.upper(): value for variable, value in os.environ.items()}
    for group in _GROUPS:
        for name in sorted(SECRETS):
            path = environment.get(_variable(group, name + SUFFIX))
            try:
                with_secrets({name + SUFFIX: path}, partial(_variable, group))
            except SettingsError as error:
                yield (group, name), error


def _variable(group: str, name: str) -> str:
    return PREFIX + f"{group}{DELIMITER}{name}".upper()
