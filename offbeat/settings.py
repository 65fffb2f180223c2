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
    """What a number of a room may be, as the metadata of its field say: ``least`` or more, or more than ``above``; and
    ``most`` or less.
    """

    least: int = 0
    above: int | None = None
    most: int | None = None

    def __str__(self) -> str:
        low = f"{self.least} or more" if self.above is None else f"more than {self.above}"
        return low if self.most is None else f"{low}, at most {self.most}"

    def holds(self, number: float) -> bool:
        low = number >= self.least and (self.above is None or number > self.above)
        return low and (self.most is None or number <= self.most)


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
    """The brokers and how to be let in; certificates and keys are files in PEM form."""

    group: ClassVar[str] = "kafka"

    bootstrap_servers: str = "127.0.0.1:9092"
    """Brokers to ask first, as ``HOST:PORT``, with commas between them."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """How brokers are spoken to: with TLS where it ends in ``SSL``, with a login where it begins with ``SASL``."""
    ca_file: str | None = None
    """The authority that signed the brokers' certificates; unset, those that the system trusts."""
    certificate_file: str | None = None
    """This client's certificate, for brokers that ask for one."""
    key_file: str | None = None
    """The private key of ``certificate_file``."""
    sasl_mechanism: SaslMechanism | None = None
    """How the login is made; needed, with ``username`` and a password, where the protocol has one."""
    username: str | None = None
    """Who logs in."""
    password: SecretStr | None = None
    """The password of ``username``."""
    password_file: SecretFile = None
    """The file that holds ``password``, instead of ``password``."""
    replication_factor: int | None = Field(None, ge=1)
    """Replicas of each topic that ``offbeat topics apply`` creates; unset, the brokers' default."""


class StoreSettings(_Secretive):
    """Where results are stored: a chDB folder or a ClickHouse server."""

    group: ClassVar[str] = "store"

    engine: Literal["chdb", "clickhouse"] = "chdb"
    """``chdb`` is the ClickHouse engine in this process, over the folder ``path``; ``clickhouse`` is a server, reached
    by native TCP."""
    path: Path = DATA_DIR
    """The folder of ``chdb``."""
    host: str = "localhost"
    """The server's name or address."""
    port: Port | None = None
    """The server's port for native TCP; unset, 9440 with ``secure`` and 9000 without."""
    database: DatabaseName = "default"
    """The database on the server; it has to exist."""
    user: str = "default"
    """Who logs in to the server."""
    password: SecretStr = SecretStr("")
    """The password of ``user``."""
    password_file: SecretFile = None
    """The file that holds ``password``, instead of ``password``."""
    secure: bool = False
    """Whether the server is reached over TLS."""
    verify: bool = True
    """Whether the server's certificate is checked; with false anybody can pose as the server."""
    ca_certificates: Path | None = None
    """The authority that signed the server's certificate, in PEM form; unset, those of certifi."""
    certificate: Path | None = None
    """This client's certificate in PEM form, for a server that asks for one."""
    key: Path | None = None
    """The private key of ``certificate``, in PEM form."""
    compression: bool = False
    """Whether what travels to and from the server is compressed, which pays between machines."""
    comm_ops: bool = True
    """Whether the sink stores the operators that travel, which are most of what is stored."""

    def in_folder(self, path: Path) -> Self:
        """The same settings for a chDB folder."""
        return self.model_copy(update={"engine": "chdb", "path": path})


class WebhookSettings(_Secretive):
    """Whom incidents are paged to. docs/paging.md goes through it."""

    group: ClassVar[str] = "webhook"

    receiver: Literal["webhook", "alertmanager", "pagerduty", "slack"] = "webhook"
    """How the receiver is spoken to; ``webhook`` is one of your own."""
    url: SecretStr | None = None
    """Where pages go, a secret since many services put the credential into it; of Alertmanagers that form a cluster
    all, with commas, and for PagerDuty only where its account is not of the default region."""
    url_file: SecretFile = None
    """The file that holds ``url``, instead of ``url``."""
    secrets: SecretStr = SecretStr("")
    """What requests are signed with; two, with a comma, while one is being replaced."""
    secrets_file: SecretFile = None
    """The file that holds ``secrets``, instead of ``secrets``."""
    authorization: SecretStr | None = None
    """The header ``Authorization`` of each request."""
    authorization_file: SecretFile = None
    """The file that holds ``authorization``, instead of ``authorization``."""
    routing_key: SecretStr | None = None
    """The integration key of PagerDuty, which needs it."""
    routing_key_file: SecretFile = None
    """The file that holds ``routing_key``, instead of ``routing_key``."""
    severity: str = "critical"
    """The severity of every page; PagerDuty takes ``critical``, ``error``, ``warning`` and ``info``, and Slack is told
    none."""
    external_url: str = ""
    """The link on a page, in which ``{job}`` and ``{incident}`` stand for their ids."""
    pages_per_job: int = Field(5, ge=1)
    """How many incidents of a job get a page of their own within ``window_s``; one summary tells of the others, and a
    hang always has its own."""
    window_s: float = Field(600.0, gt=0)
    """The time in which ``pages_per_job`` counts, in seconds."""


class WorkerGroup(_Group):
    """How a role runs."""

    group_prefix: str = GROUP_PREFIX
    """What the names of consumer groups begin with; under another one a worker reads from the start and saves its
    states apart."""
    instance: str | None = None
    """This process's name within its group, the same after a restart, by which it resumes at once; unset, it resumes
    after ``session_timeout_s``."""
    health_port: Port | None = None
    """The port of /metrics and /live; unset, nothing listens."""
    health_host: str = "127.0.0.1"
    """The address that they listen on; whoever reaches it is answered, so name another than the loopback one only in a
    network of your own."""
    session_timeout_s: float = Field(6.0, gt=0)
    """Seconds of silence after which the brokers give a worker's partitions to others; at most 30, and brokers refuse
    less than 6 unless they are set otherwise."""
    stop_within_s: float = Field(20.0, gt=0)
    """Seconds that a worker may take to stop before its process is ended; what was not committed comes again."""
    tuning: Path | None = None
    """A file of settings of the diagnosis, one a line as variables, which a step goes by as soon as it changes."""


class LiveSettings(_Group):
    """The log agent of a host. docs/logging.md goes through it."""

    rings: Path = DEFAULT_FOLDER
    """Where training processes log, in memory that they share with the agent; the same for both."""
    folder: Path = Path("offbeat-agent")
    """Where the agent keeps what it has collected, and what waits for Kafka."""
    keep_bytes: int = Field(4 << 30, ge=1 << 20)
    """Bytes of iterations that are kept of each job, the newest; searches cannot look further back."""
    spool_bytes: int = Field(256 << 20, ge=1 << 20)
    """Bytes of messages that may wait for Kafka; beyond that the oldest are dropped and counted."""
    look_every_s: float = Field(0.1, gt=0)
    """Seconds between two looks at the rings."""
    host: str | None = None
    """This host's name where no job gives it one; unset, the machine's, which in a container is the container's."""


class CollectSettings(_Group):
    """What the agent of a host collects beside the operator log. docs/collectors.md goes through it."""

    calls: Path = DEFAULT_FOLDER / ".calls"
    """Where processes log that have the preloaded library in them; the same for them and the agent."""
    dumps: Path | None = None
    """Where NIC agents put their epoch dumps; unset, none are read."""
    port_counters: bool = False
    """Whether the counters of RDMA ports are read, for NICs without an agent."""
    infiniband: Path = Path("/sys/class/infiniband")
    """The kernel's folder of RDMA devices: their counters, and the addresses that the preloaded library looks up."""
    epoch_ms: float = Field(10.0, ge=1, le=100)
    """The length of an epoch of port counters, in milliseconds."""
    every_s: float = Field(0.5, gt=0)
    """Seconds between two looks at calls, dumps and port counters."""
    job: str | None = None
    """The name of the job: for processes with the library in them, and for what NICs sent where no such process runs
    here."""
    segment_at: Literal["stream", "edge"] = "stream"
    """Who looks for operators in NIC traffic: the worker ``segment`` (``stream``), which is told all of it, or the
    agent (``edge``), which tells operators and metrics alone."""
    keep_bytes: int = Field(512 << 20, ge=1 << 20)
    """With ``edge``, bytes of NIC traffic and calls that are kept of each job, the newest: what is still open needs
    them, and whoever asks gets them."""


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
    model: str | None = None
    """The trained forest that judges operators for Algorithm 1 instead of ``search.locate.detector``: its file, or
    ``default`` for the one that ships."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are logged."""

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
