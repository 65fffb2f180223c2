"""All settings, read from the environment: ``kafka.bootstrap_servers`` is OFFBEAT_KAFKA__BOOTSTRAP_SERVERS.

There is no settings file. Thresholds are the settings of the room that uses them, with that room's defaults.
Rooms never see this model: wiring.py hands them values of their own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as Unreadable

from diagnosis.incidents.joining import JoiningSettings
from diagnosis.irregularity.like_ranks import LikeRanksSettings
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.traffic.host import StepRules
from offbeat.bounds import numbers
from offbeat.setting_groups import (
    DELIMITER,
    PREFIX,
    CollectSettings,
    KafkaSettings,
    LiveSettings,
    ModelName,
    StoreSettings,
    WebhookSettings,
    WorkerGroup,
    check_protocol,
    variable_name,
)
from schemas.errors import SettingsError
from streams.compare import CompareSettings
from streams.search import SearchSettings

NOT_SETTINGS = ("OFFBEAT_TEST_", "OFFBEAT_SAMPLES")
"""Variables of the tests."""

DECISIVE = ("monitor", "like_ranks", "search", "segment", "compare", "incidents")
"""The groups that decide what is found, beside ``model``, ``pivots`` and ``publish_all``."""


class Settings(BaseSettings):
    """Everything that can be set."""

    # The settings of the rooms, which are plain dataclasses, are checked by this as well: no threshold is infinite, or
    # nothing would ever exceed it.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=DELIMITER, frozen=True, allow_inf_nan=False
    )

    kafka: KafkaSettings = KafkaSettings()
    store: StoreSettings = StoreSettings()
    webhook: WebhookSettings = WebhookSettings()
    worker: WorkerGroup = WorkerGroup()
    live: LiveSettings = LiveSettings()
    collect: CollectSettings = CollectSettings()
    monitor: MonitorSettings = MonitorSettings()
    like_ranks: LikeRanksSettings = LikeRanksSettings()
    search: SearchSettings = SearchSettings()
    segment: StepRules = StepRules()
    compare: CompareSettings = CompareSettings()
    incidents: JoiningSettings = JoiningSettings()
    pivots: int = Field(4, ge=1)
    """How many ranks of a job are pivots: their iterations are judged, searches begin at them, and their operators
    travel unasked."""
    publish_all: bool = False
    """Whether the operators of all ranks travel unasked, which suits small jobs."""
    model: ModelName = None
    """The trained forest that judges operators for Algorithm 1 instead of ``search.locate.detector``: its file, or
    ``default`` for the one that ships."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are logged."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for group in DECISIVE:
            for name, number, bound in numbers(getattr(self, group), group):
                if not bound.holds(number):
                    raise ValueError(f"{variable_name(*name.split('.'))} is {number}; give {bound}")
        check_protocol(self.kafka)
        if self.model is not None and self.search.locate.search != "algorithm_1":
            search = variable_name("search", "locate", "search")
            raise ValueError(
                f"{variable_name('model')} is given, but only Algorithm 1 asks a model: set {search}=algorithm_1"
            )
        return self

    def in_steps(self, step: int) -> Self:
        """The settings for iterations that are numbered by ``step``: how far apart two may be is told by numbers."""
        monitor, incidents = self.monitor, self.incidents
        apart = {
            "monitor": replace(monitor, close_by=monitor.close_by * step, reach=monitor.reach * step),
            "incidents": replace(incidents, window=incidents.window * step),
        }
        return self.model_copy(update=apart)

    @classmethod
    def load(cls, **given: Any) -> Self:
        """The settings of the environment, under those ``given`` (groups as mappings).

        Raises ``SettingsError`` that names the variable and what is wrong with it; never its value, which may be
        secret.
        """
        for variable in sorted(os.environ):
            if variable.upper().startswith(PREFIX) and not variable.startswith(NOT_SETTINGS):
                _check_name(variable)
        try:
            return cls(**given)
        except ValidationError as error:
            raise SettingsError(_first_fault(error)) from None
        except Unreadable as error:
            raise SettingsError(f"{error}: set the fields of a group one by one") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    if not fault["loc"]:
        return fault["msg"].removeprefix("Value error, ")
    variable = variable_name(*(str(part) for part in fault["loc"]))
    if fault["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        return f"{variable}: there is no such setting{_nearest(fault['loc'])}; docs/settings.md lists all"
    return f"{variable}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _nearest(path: Sequence[int | str]) -> str:
    """What may have been meant, of the fields of the same group."""
    group: Any = Settings.model_construct()
    for part in path[:-1]:
        group = getattr(group, str(part), None)
    names = [field.name for field in fields(group)] if is_dataclass(group) else getattr(type(group), "model_fields", ())
    alike = get_close_matches(str(path[-1]), names, 1)
    return f", but {variable_name(*map(str, path[:-1]), alike[0])} is one" if alike else ""


def _check_name(variable: str) -> None:
    name, delimiter, _ = variable.upper().removeprefix(PREFIX).partition(DELIMITER)
    known = Settings.model_fields.get(name.lower())
    if known is None:
        names = ", ".join(sorted(Settings.model_fields)).upper()
        raise SettingsError(f"{variable}: there is no such setting; after {PREFIX} comes one of {names}")
    if not delimiter and (is_dataclass(known.default) or isinstance(known.default, BaseModel)):
        raise SettingsError(f"{variable} is a group of settings: set its fields, as {variable}{DELIMITER}FIELD")
