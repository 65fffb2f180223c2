"""The settings as far as they can be had: a secret that is missing costs its own service's checks and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.doctor.checked import Checked, refused
from offbeat.settings import Settings
from schemas.errors import SettingsError


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
        settings = Settings.load(**given)
    except SettingsError as error:
        return Settled(None, (refused("settings", error),))
    missing: dict[str, Checked] = {}
    others: dict[str, Any] = {}
    for group in (settings.kafka, settings.store, settings.webhook):
        try:
            group.with_secrets()
        except SettingsError as error:
            missing[group.group] = refused("secret file", error)
            others[group.group] = type(group)()  # or the file would be told of twice
    return Settled(settings.model_copy(update=others), tuple(missing.values()), frozenset(missing))
