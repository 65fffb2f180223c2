"""All settings, read from the environment: ``kafka.bootstrap_servers`` is OFFBEAT_KAFKA__BOOTSTRAP_SERVERS.

There is no settings file. Thresholds are the settings of the room that uses them, with that room's defaults.
Rooms never see this model: wiring.py hands them values of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as Unreadable

from diagnosis.incidents.joining import JoiningSettings
from diagnosis.irregularity.like_ranks import LikeRanksSettings
from diagnosis.irregularity.monitor import MonitorSettings
from diagnosis.traffic.host import StepRules
from offbeat.secret_files import SECRETS, SUFFIX, secret
from producers.live.registration import DEFAULT_FOLDER
from schemas.errors import SettingsError
from streams.bus import GROUP_PREFIX, SaslMechanism, SecurityProtocol
from streams.compare import CompareSettings
from streams.search import SearchSettings

PREFIX = "OFFBEAT_"
DELIMITER = "__"
NOT_SETTINGS = ("OFFBEAT_TEST_", "OFFBEAT_SAMPLES")
"""Variables of the tests."""

DATA_DIR = Path("offbeat-data")
"""The chDB folder where none is named."""

DECISIVE = ("monitor", "like_ranks", "search", "segment", "compare", "incidents")
"""The groups that decide what is found, beside ``model``, ``pivots`` and ``publish_all``."""

Port = Annotated[int, Field(ge=1, le=65535)]

_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
"""It becomes part of statements, which take no parameter for a name."""


def _named(database: str) -> str:
    if not _DATABASE.fullmatch(database):
        raise PydanticCustomError("name", "This cannot name a database: give letters, digits, _ and -, at most 100")
    return database


DatabaseName = Annotated[str, AfterValidator(_named)]
SecretFile = Annotated[Path | None, BeforeValidator(lambda path: path or None)]
"""One that is set to nothing is not set."""


class _Bound(NamedTuple):
    """What a number of a room may be, as the metadata of its field say: ``least`` or more, or more than ``above``."""

    least: int = 0
    above: int | None = None

    def __str__(self) -> str:
        return f"{self.least} or more" if self.above is None else f"more than {self.above}"

    def holds(self, number: float) -> bool:
        return number >= self.least and (self.above is None or number > self.above)


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Secretive(_Group):
    """A group whose secrets may be in files: those are read where the service is used, so that what needs it not does
    without them."""

    group: ClassVar[str]

    @model_validator(mode="after")
    def _given_once(self) -> Self:
        for name in self._in_files():
            if getattr(self, name):
                given = _variable(self.group, name)
                raise SettingsError(f"{given} and {given + SUFFIX.upper()} are both set: give one of them")
        return self

    def with_secrets(self) -> Self:
        """The same settings with the secrets that files hold; raises ``SettingsError`` for a file that holds none."""
        held = {
            name: SecretStr(secret(path, _variable(self.group, name + SUFFIX)))
            for name, path in self._in_files().items()
        }
        return self.model_copy(update=held)

    def _in_files(self) -> dict[str, Path]:
        named = {name: getattr(self, name + SUFFIX, None) for name in sorted(SECRETS)}
        return {name: path for name, path in named.items() if path is not None}


class KafkaSettings(_Secretive):
    """The brokers and how to be let in; certificates and keys are in PEM form.

    ``password_file`` holds the password, instead of ``password``.
    ``replication_factor`` is that of topics to be created; None: the broker's default.
    """

    group: ClassVar[str] = "kafka"

    bootstrap_servers: str = "127.0.0.1:9092"
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    sasl_mechanism: SaslMechanism | None = None
    username: str | None = None
    password: SecretStr | None = None
    password_file: SecretFile = None
    replication_factor: int | None = Field(None, ge=1)


class StoreSettings(_Secretive):
    """``chdb``: the engine in this process over the folder ``path``; ``clickhouse``: a server, native TCP.

    ``password_file`` holds the password, instead of ``password``. ``comm_ops`` says whether the operator rows that
    travel are kept as well: most of what is stored.
    """

    group: ClassVar[str] = "store"

    engine: Literal["chdb", "clickhouse"] = "chdb"
    path: Path = DATA_DIR
    host: str = "localhost"
    port: Port | None = None
    database: DatabaseName = "default"
    user: str = "default"
    password: SecretStr = SecretStr("")
    password_file: SecretFile = None
    secure: bool = False
    verify: bool = True
    ca_certificates: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    compression: bool = False
    comm_ops: bool = True

    def in_folder(self, path: Path) -> Self:
        """The same settings for a chDB folder."""
        return self.model_copy(update={"engine": "chdb", "path": path})


class WebhookSettings(_Secretive):
    """Whom incidents are paged to: ``receiver`` says how it is spoken to. docs/paging.md goes through it.

    The URL counts as a secret: many services put the credential into it. PagerDuty has a URL of its own unless one
    is set, and needs ``routing_key``; Alertmanagers of a cluster are all named, with commas. ``secrets`` sign the
    requests; several, separated by commas, while one is being replaced. ``authorization`` is the header of that
    name. Each of these four may be in a file instead, which the field of its name and ``_file`` names.
    ``external_url`` is the link on a page: ``{job}`` and ``{incident}`` in it stand for their ids. Of a job at
    most ``pages_per_job`` incidents get a page of their own in ``window_s``; one summary tells of the others.
    """

    group: ClassVar[str] = "webhook"

    receiver: Literal["webhook", "alertmanager", "pagerduty", "slack"] = "webhook"
    url: SecretStr | None = None
    url_file: SecretFile = None
    secrets: SecretStr = SecretStr("")
    secrets_file: SecretFile = None
    authorization: SecretStr | None = None
    authorization_file: SecretFile = None
    routing_key: SecretStr | None = None
    routing_key_file: SecretFile = None
    severity: str = "critical"
    external_url: str = ""
    pages_per_job: int = Field(5, ge=1)
    window_s: float = Field(600.0, gt=0)


class WorkerGroup(_Group):
    """How a worker process runs; ``instance`` is its name within its group, the same after a restart. Under another
    ``group_prefix`` it reads from the start, and saves states apart.

    Without ``health_port`` nothing listens. /metrics and /live tell whoever reaches ``health_host``, unasked who they
    are: name another address than the loopback one only in a network of your own. ``tuning`` is a file of settings of
    the diagnosis that a step goes by as soon as it changes.
    """

    group_prefix: str = GROUP_PREFIX
    instance: str | None = None
    health_port: Port | None = None
    health_host: str = "127.0.0.1"
    session_timeout_s: float = Field(6.0, gt=0)
    stop_within_s: float = Field(20.0, gt=0)
    tuning: Path | None = None


class LiveSettings(_Group):
    """The log agent of a host: ``rings`` is where training processes log, ``folder`` where the agent keeps things.

    ``keep_bytes`` bounds the iterations that are kept of each job, ``spool_bytes`` what waits for Kafka. The rings are
    looked at every ``look_every_s`` seconds. ``host`` is what this host is called where no job says so: the machine's
    name, unless set, which in a container is the container's.
    """

    rings: Path = DEFAULT_FOLDER
    folder: Path = Path("offbeat-agent")
    keep_bytes: int = Field(4 << 30, ge=1 << 20)
    spool_bytes: int = Field(256 << 20, ge=1 << 20)
    look_every_s: float = Field(0.1, gt=0)
    host: str | None = None


class CollectSettings(_Group):
    """What the agent of a host collects beside the operator log; docs/collectors.md goes through it.

    ``calls`` is where processes log that have the preloaded library in them, ``dumps`` where NIC agents put their epoch
    dumps; both are looked at every ``every_s`` seconds. ``port_counters`` has the RDMA ports below ``infiniband``
    counted instead, in epochs of ``epoch_ms``. ``job`` is what a job is called: to a process with the library in it,
    and to the agent where NICs send and no process logs here. ``segment_at`` is where operators are looked for in what
    NICs tell: in the ``stream``, which is told all of it, or at the ``edge``, by the agent, which tells operators and
    metrics, and keeps all else for whoever asks, up to ``keep_bytes`` a job.
    """

    calls: Path = DEFAULT_FOLDER / ".calls"
    dumps: Path | None = None
    port_counters: bool = False
    infiniband: Path = Path("/sys/class/infiniband")
    epoch_ms: float = Field(10.0, ge=1, le=100)
    every_s: float = Field(0.5, gt=0)
    job: str | None = None
    segment_at: Literal["stream", "edge"] = "stream"
    keep_bytes: int = Field(512 << 20, ge=1 << 20)


class Settings(BaseSettings):
    """Everything that can be set.

    ``pivots`` is how many ranks of a job publish their logs unasked; with ``publish_all`` every rank does, which
    suits small clusters. ``model`` is the trained forest that judges operators for Algorithm 1, instead of its own
    ``detector``: the file of one, or ``default`` for the one that ships.
    """

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
    publish_all: bool = False
    model: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for group in DECISIVE:
            for name, number, bound in _numbers(getattr(self, group), group):
                if not bound.holds(number):
                    raise ValueError(f"{_variable(*name.split('.'))} is {number}; give {bound}")
        _check_protocol(self.kafka)
        if self.model is not None and self.search.locate.search != "algorithm_1":
            search = _variable("search", "locate", "search")
            raise ValueError(
                f"{_variable('model')} is given, but only Algorithm 1 asks a model: set {search}=algorithm_1"
            )
        return self

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


def _check_protocol(kafka: KafkaSettings) -> None:
    """What a protocol does not use must not be set, or someone would take a connection for safe that is not."""
    protocol = kafka.security_protocol
    encrypted, authenticated = protocol.endswith("SSL"), protocol.startswith("SASL")
    said = f"{_variable('kafka', 'security_protocol')} is {protocol}"
    for used, kind, names in (
        (encrypted, "SSL or SASL_SSL", ("ca_file", "certificate_file", "key_file")),
        (authenticated, "SASL_SSL or SASL_PLAINTEXT", ("sasl_mechanism",)),
    ):
        given = [name for name in names if getattr(kafka, name) is not None]
        if given and not used:
            raise ValueError(f"{_variable('kafka', given[0])} is set, but {said}: set that to {kind}")
    for name in ("sasl_mechanism", "username", "password"):
        if authenticated and getattr(kafka, name) is None and getattr(kafka, name + SUFFIX, None) is None:
            raise ValueError(f"{said}: set {_variable('kafka', name)} as well")


def _numbers(group: Any, name: str) -> Iterator[tuple[str, float, _Bound]]:
    """The numbers of a group and those in it, with their bounds; metadata that name no bound are a ``TypeError``."""
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{name}.{field.name}")
        elif isinstance(value, int | float):
            yield f"{name}.{field.name}", value, _Bound(**field.metadata)


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    if not fault["loc"]:
        return fault["msg"].removeprefix("Value error, ")
    variable = _variable(*(str(part) for part in fault["loc"]))
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
    return f", but {_variable(*map(str, path[:-1]), alike[0])} is one" if alike else ""


def _variable(*path: str) -> str:
    return PREFIX + DELIMITER.join(path).upper()


def _check_name(variable: str) -> None:
    name, delimiter, _ = variable.upper().removeprefix(PREFIX).partition(DELIMITER)
    known = Settings.model_fields.get(name.lower())
    if known is None:
        names = ", ".join(sorted(Settings.model_fields)).upper()
        raise SettingsError(f"{variable}: there is no such setting; after {PREFIX} comes one of {names}")
    if not delimiter and (is_dataclass(known.default) or isinstance(known.default, BaseModel)):
        raise SettingsError(f"{variable} is a group of settings: set its fields, as {variable}{DELIMITER}FIELD")
